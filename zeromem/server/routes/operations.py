"""Operations: scopes, statistics, health, metrics."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from zeromem.memory import Memory
from zeromem.records import plain
from zeromem.server.metrics import CONTENT_TYPE
from zeromem.server.problems import Problem
from zeromem.server.routes.common import Reading, Serving, replies, reply
from zeromem.server.schemas import HealthOut, ScopesOut, StatsOut

router = APIRouter(tags=["operations"])
# Of the store as a whole, which other tenants share.
_SHARED = ("store_bytes", "llm_usage")


@router.get("/v1/scopes", responses=replies(ScopesOut))
async def scopes(access: Reading, service: Serving) -> Response:
    """List the scopes that hold anything."""
    return reply({"scopes": await service.run_alone(service.scopes, access)})


@router.get("/v1/stats", responses=replies(StatsOut))
async def stats(access: Reading, service: Serving) -> Response:
    """Count what the scope holds, and name its models."""
    counts: dict[str, Any] = await service.run(access, Memory.stats)
    own = {name: value for name, value in counts.items() if name not in _SHARED}
    return reply(plain(own | {"scope": access.name}))


@router.get("/healthz", responses={200: {"model": HealthOut}})
async def health() -> Response:
    """Say that the process runs."""
    return reply({"status": "ok"})


@router.get("/readyz", responses=replies(HealthOut))
async def ready(service: Serving) -> Response:
    """Say whether requests should come: all is loaded, the store can be read, nothing stops."""
    if (problem := service.problem) is not None:
        raise Problem(503, "not-ready", f"{problem}; try again soon", retry_after=1)
    await service.run_alone(service.memories.store.ping)
    return reply({"status": "ok"})


@router.get("/metrics", include_in_schema=False)
async def metrics(service: Serving) -> Response:
    """Return counts for Prometheus."""
    if not service.settings.metrics:
        raise Problem(404, "not-found", "metrics are off")
    return Response(service.measured(), media_type=CONTENT_TYPE)
