"""Ask a server for minutes, as many clients of many tenants, and check each reply by a model.

    python bench/soak.py [--minutes 10] [--clients 50] [--tenants 200] [--seed 0]
        [--encoder words|default|NAME] [--json FILE]

The server is a process of its own, on loopback and with API keys. Every trace has a fact that no
other one has: its question must bring it back, as soon as it is acknowledged and until it is
forgotten. At the end the server is stopped and started again, and each scope's export is compared
with the model. The exit code is 1 where anything is wrong.

Clients share the machine with the server; what they take is told. Memory is called flat where the
line fitted to the server's resident bytes, the first half of the time aside, rises by less than 5%
of their mean or 16 MB; a run of less than five minutes is too short to tell.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
from soak_clients import Client, Tally, Tenant
from soak_model import Clock

from zeromem.evaluation.report import commit, hardware
from zeromem.keys import Keys
from zeromem.store import Store

HERE = Path(__file__).parent
SCOPES = ("default", "notes/söndag")
JUDGED_MINUTES = 5.0
_RISE_SHARE, _RISE_BYTES, _RISE_FILES = 0.05, 16e6, 16
_START_SECONDS, _STOP_SECONDS = 120.0, 60.0
_IDLE_SECONDS = 2.0
_STOPPED = (0, -signal.SIGTERM)
_TICK = os.sysconf("SC_CLK_TCK")


class Server:
    """A server process over one store."""

    def __init__(self, store: Path, options: Sequence[str]) -> None:
        self._command = [sys.executable, str(HERE / "soak_server.py"), str(store), *options]
        self._process: subprocess.Popen[str] | None = None
        self.pid = 0

    def start(self) -> str:
        """Start it, and return its URL."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid
        assert self._process.stdout is not None
        url = self._process.stdout.readline().strip()
        if not url:
            raise SystemExit(f"the server did not start: {' '.join(self._command)}")
        return url

    def stop(self) -> int:
        """Ask it to stop, and return its exit code."""
        if self._process is None:
            return 0
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
        finally:
            self._process = None

    def sample(self, folder: Path) -> dict[str, float]:
        """Measure what it takes now."""
        process = Path(f"/proc/{self.pid}")
        pages = int((process / "statm").read_text().split()[1])
        stat = (process / "stat").read_text().rpartition(")")[2].split()
        return {
            "at": time.monotonic(),
            "resident": pages * os.sysconf("SC_PAGE_SIZE"),
            "files": len(os.listdir(process / "fd")),
            "disk": sum(map(_size, folder.iterdir())),
            "cpu": (int(stat[11]) + int(stat[12])) / _TICK,
        }


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:  # a snapshot that was just written anew
        return 0


def make_tenants(store: Path, n: int, clock: Clock) -> list[Tenant]:
    """Make the tenants with their keys."""
    with Keys(store) as keys:
        names = [f"tenant-{i}" for i in range(n)]
        return [Tenant(name, keys.create(name)[1], SCOPES, clock) for name in names]


async def ready(http: aiohttp.ClientSession, url: str) -> float:
    """Wait until the server has loaded everything; return the seconds."""
    start = time.monotonic()
    while time.monotonic() < start + _START_SECONDS:
        async with http.get(f"{url}/readyz") as response:
            if response.status == 200:
                return time.monotonic() - start
        await asyncio.sleep(0.2)
    raise SystemExit("the server does not become ready")


async def drive(
    url: str, tenants: Sequence[Tenant], clock: Clock, tally: Tally, *, clients: int,
    seconds: float, seed: int, size: int = 20,
) -> None:  # fmt: skip
    """Let clients ask a server for some seconds."""
    until = time.monotonic() + seconds
    async with session(clients) as http, asyncio.TaskGroup() as group:
        for i in range(clients):
            rng = random.Random(f"{seed} {i}")
            group.create_task(Client(http, url, tenants, clock, tally, rng, size).run(until))


async def check_all(url: str, tenants: Sequence[Tenant], clock: Clock, tally: Tally) -> int:
    """Check every scope's export; return how many traces there are by the model."""
    async with session(8) as http:
        for tenant in tenants:
            client = Client(http, url, tenants, clock, tally, random.Random(0), 0)
            for scope in tenant.scopes:
                await client.export(tenant, scope)
    return sum(len(scope.live()) for tenant in tenants for scope in tenant.scopes)


def session(clients: int) -> aiohttp.ClientSession:
    """Connections that are kept, one for each client."""
    # Let go of before the server does, or a request could meet a connection that is just closed.
    connector = aiohttp.TCPConnector(limit=clients, keepalive_timeout=_IDLE_SECONDS)
    return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=120))


async def run(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Soak a server; return the record of it."""
    store, clock, tally = folder / "soak.zm", Clock(), Tally()
    tenants = make_tenants(store, args.tenants, clock)
    options = ["--encoder", args.encoder, "--max-open", str(args.max_open)]
    server = Server(store, options)
    samples: list[dict[str, float]] = []

    async def sampling() -> None:
        while True:
            samples.append(server.sample(folder))
            await asyncio.sleep(1.0)

    try:
        url = server.start()
        async with session(1) as http:
            await ready(http, url)
        own, watching = _cpu(), asyncio.create_task(sampling())
        await drive(
            url, tenants, clock, tally, clients=args.clients, seconds=60 * args.minutes,
            seed=args.seed,
        )  # fmt: skip
        if watching.done():
            watching.result()
        watching.cancel()
        samples.append(server.sample(folder))
        own = _cpu() - own
        if (code := server.stop()) not in _STOPPED:
            tally.fault("stop", f"the server's exit code is {code}")
        began = time.monotonic()
        url = server.start()
        restarted = time.monotonic() - began
        live = await check_all(url, tenants, clock, tally)
    finally:
        code = server.stop()
    if code not in _STOPPED:
        tally.fault("stop", f"the second server's exit code is {code}")
    with Store.open(store, read_only=True) as opened:
        opened.check()
    record = _record(args, tally, samples, own)
    return record | {"restart_seconds": round(restarted, 2), "traces_at_the_end": live}


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _record(
    args: argparse.Namespace, tally: Tally, samples: Sequence[dict[str, float]], own: float
) -> dict[str, Any]:
    at = {name: np.array([s[name] for s in samples]) for name in samples[0]}
    seconds = float(at["at"][-1] - at["at"][0])
    grown = growth(at["at"], at["resident"], at["files"])
    if 60 * args.minutes >= 60 * JUDGED_MINUTES:
        for what in grown["faults"]:
            tally.fault("growth", what)
    milliseconds = {k: 1000 * np.array(v) for k, v in sorted(tally.seconds.items())}
    n = sum(tally.requests.values())
    return {
        "minutes": args.minutes, "clients": args.clients, "tenants": args.tenants,
        "scopes": len(SCOPES) * args.tenants, "encoder": args.encoder, "seed": args.seed,
        "max_open": args.max_open, "commit": commit(), "hardware": hardware("cpu"),
        "requests": n, "per_second": round(n / seconds, 1),
        "kinds": {
            kind: {"n": len(v), "p50_ms": _rounded(np.percentile(v, 50)),
                   "p99_ms": _rounded(np.percentile(v, 99)), "max_ms": _rounded(v.max())}
            for kind, v in milliseconds.items()
        },
        "traces": dict(tally.traces), "statuses": dict(sorted(tally.statuses.items())),
        "errors_5xx": sum(n for s, n in tally.statuses.items() if s >= 500),
        "refused_429": tally.refused, "reconnected": tally.reconnected,
        "cpu": {"server_cores": round(float(at["cpu"][-1] - at["cpu"][0]) / seconds, 2),
                "clients_cores": round(own / seconds, 2)},
        "memory": {"resident_mb": [round(x / 1e6, 1) for x in _thinned(at["resident"])], **grown},
        "disk_mb": [round(x / 1e6, 2) for x in _thinned(at["disk"])],
        "wrong": sum(tally.faults.values()), "faults": dict(tally.faults), "told": tally.told,
    }  # fmt: skip


def growth(at: Any, resident: Any, files: Any) -> dict[str, Any]:
    """Fit a line to the second half of the samples; say what is not flat about it."""
    late = at >= (at[0] + at[-1]) / 2
    mean, duration = float(resident[late].mean()), float(at[-1] - at[late][0])
    slope = float(np.polyfit(at[late] - at[0], resident[late], 1)[0]) if late.sum() > 1 else 0.0
    more = int(files[late].max()) - int(files[~late].max()) if (~late).any() else 0
    faults = []
    if slope * duration > max(_RISE_SHARE * mean, _RISE_BYTES):
        faults.append(f"resident memory rises by {slope * 60 / 1e6:.2f} MB a minute")
    if more > _RISE_FILES:
        faults.append(f"open files rise by {more}")
    return {
        "mb_a_minute": round(slope * 60 / 1e6, 3), "files": int(files[-1]), "more_files": more,
        "faults": faults,
    }  # fmt: skip


def _thinned(values: Any, n: int = 12) -> list[float]:
    return [
        float(values[i]) for i in np.linspace(0, len(values) - 1, min(n, len(values))).astype(int)
    ]


def _rounded(value: Any) -> float:
    return round(float(value), 2)


def parser() -> argparse.ArgumentParser:
    """Return the command's options."""
    found = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    found.add_argument("--minutes", type=float, default=10.0)
    found.add_argument("--clients", type=int, default=50)
    found.add_argument("--tenants", type=int, default=200)
    found.add_argument("--encoder", default="words", help="words (no model), default, or any other")
    found.add_argument(
        "--max-open", type=int, default=150, help="memories that the server keeps open"
    )
    found.add_argument("--seed", type=int, default=0)
    found.add_argument("--json", type=Path, help="write the figures here")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak, report, and say by the exit code whether all was right."""
    args = parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="zeromem-soak-") as folder:
        record = asyncio.run(run(args, Path(folder)))
    text = json.dumps(record, indent=1)
    if args.json:
        args.json.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 1 if record["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
