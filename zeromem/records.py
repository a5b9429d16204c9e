"""Results as plain JSON values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

from zeromem.times import EventTime
from zeromem.types import Answer, Boundary, Evidence, Explanation, QueryProfile, Retrieval

_NO_BOUNDARY = Boundary()
_BOUNDARY = tuple(f.name for f in fields(Boundary))


def dumps(value: object, encoding: str | None) -> str:
    """Write JSON for a stream of that encoding; lone surrogates become escapes.

    Parameters
    ----------
    value : object
    encoding : str, optional
        Of the stream. Where it is not UTF-8 the text is pure ASCII.
    """
    text = json.dumps(plain(value), ensure_ascii=False, indent=2)
    try:
        text.encode("utf-8" if (encoding or "").lower().replace("-", "") == "utf8" else "ascii")
    except UnicodeEncodeError:
        return json.dumps(plain(value), indent=2)
    return text


def plain(value: Any) -> Any:
    """Return a value as JSON's own types: dataclasses by field, times as ISO 8601."""
    match value:
        case EventTime() | datetime():
            return value.isoformat()
        case Evidence():
            return evidence(value)
        case Retrieval():
            return retrieval(value)
        case Mapping():
            return {str(k): plain(v) for k, v in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(v) for v in value]
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    return value


def evidence(item: Evidence) -> dict[str, Any]:
    """Return one item of R(q) with its trace's fields beside its own; the text is the item's."""
    trace = item.trace
    # Named one by one: servers write thousands a second.
    return {
        "id": item.id,
        "role": trace.role,
        "speaker": trace.speaker,
        "session": trace.session,
        "time": None if trace.time is None else trace.time.isoformat(),
        "title": trace.title,
        "source": trace.source,
        "metadata": plain(trace.metadata) if trace.metadata else {},
        "text": item.text,
        "lsn": item.lsn,
        "start": item.start,
        "end": item.end,
        "kind": item.kind,
        "score": item.score,
        "fused": item.fused,
        "main_rank": item.main_rank,
        "graph_rank": item.graph_rank,
        "hierarchy_rank": item.hierarchy_rank,
        "matched": list(item.matched),
        "entities": list(item.entities),
        "why": item.why,
        "n_tokens": item.n_tokens,
    }


def profile(found: QueryProfile) -> dict[str, Any]:
    """Return what was understood of a question."""
    cue, limits = found.temporal, found.boundary
    return {
        "text": found.text,
        "subjects": list(found.subjects),
        "keywords": list(found.keywords),
        "phrases": list(found.phrases),
        "answer_type": found.answer_type,
        "choices": list(found.choices),
        "temporal": {"kind": cue.kind, "start": plain(cue.start), "end": plain(cue.end)},
        "aggregation": found.aggregation,
        "asks_help": found.asks_help,
        "boundary": dict.fromkeys(_BOUNDARY) if limits == _NO_BOUNDARY else plain(limits),
        "reference_time": plain(found.reference_time),
    }


def retrieval(found: Retrieval) -> dict[str, Any]:
    """Return R(q), the route and what it took."""
    return {**_path(found), "evidence": [evidence(item) for item in found]}


def _path(found: Retrieval) -> dict[str, Any]:
    return {
        "question": found.profile.text,
        "route": str(found.route),
        "route_reason": found.route_reason,
        "profile": profile(found.profile),
        "n_tokens": found.n_tokens,
        "seconds": dict(found.seconds),
    }


def answer(given: Answer) -> dict[str, Any]:
    """Return an answer with its sources, its calibration and its evidence."""
    return {
        "answer": given.text,
        "draft": given.draft,
        "citations": plain(given.citations),
        "steps": plain(given.steps),
        "usage": plain(given.usage),
        **retrieval(given.retrieval),
    }


def explanation(given: Explanation) -> dict[str, Any]:
    """Return how R(q) came about."""
    return {
        **_path(given.retrieval),
        "evidence": [
            {
                **evidence(item.evidence),
                "graph_score": item.graph_score,
                "hierarchy_score": item.hierarchy_score,
                "sentences": [{"text": s, "similarity": value} for s, value in item.sentences],
            }
            for item in given.items
        ],
        "seeds": [{"entity": name, "activation": value} for name, value in given.seeds],
        "activated": [{"entity": name, "activation": value} for name, value in given.activated],
        "left_out": plain(given.left_out),
        "n_outside": given.n_outside,
    }
