"""The commands that ask: search, ask, explain."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from zeromem import records
from zeromem.cli import show
from zeromem.cli.common import Args, emit, note_unknown_scope, open_memory, store_path
from zeromem.errors import InvalidInputError

if TYPE_CHECKING:
    from zeromem.answer import Reader


def _options(args: Args) -> dict[str, Any]:
    return {
        **({} if args.k is None else {"k": args.k}),
        "token_budget": args.token_budget,
        "view": args.view,
        "closure": not args.no_closure,
        "calibration": not args.no_calibration,
        "sessions": args.session,
        "speakers": args.speaker,
        "sources": args.source,
        "roles": args.role,
        "after": args.after,
        "before": args.before,
        "as_of": _as_of(args.as_of),
        "reference_time": args.asked_at,
    }


def _as_of(value: str | None) -> str | int | None:
    if value is None or not value.startswith("lsn:"):
        return value
    try:
        return int(value[4:])
    except ValueError:
        raise InvalidInputError(f"--as-of lsn:N takes a whole number, got {value!r}") from None


def search(args: Args) -> int:
    """Find evidence."""
    with open_memory(args, store_path(args), once=True) as memory:
        found = memory.retrieve(args.question, **_options(args))
    if not found:
        note_unknown_scope(args)
    emit(args, found, show.retrieval(found))
    return 0


def ask(args: Args) -> int:
    """Answer a question."""
    reader = _reader(args)
    with open_memory(args, store_path(args)) as memory:
        start = time.perf_counter()
        given = memory.answer(args.question, reader=reader, **_options(args))
        total = time.perf_counter() - start
    if not given.retrieval:
        note_unknown_scope(args)
    found = sum(given.retrieval.seconds.values())
    seconds = {**given.retrieval.seconds, "read and calibrate": max(0.0, total - found)}
    record = {**records.answer(given), "seconds": seconds}
    emit(args, record, show.answer(given, seconds, args.evidence))
    return 0


def explain(args: Args) -> int:
    """Show how evidence came about."""
    with open_memory(args, store_path(args), once=True) as memory:
        given = memory.explain(args.question, **_options(args))
    if not given.items:
        note_unknown_scope(args)
    emit(args, records.explanation(given), show.explanation(given))
    return 0


def _reader(args: Args) -> Reader | None:
    """Make the reader; an option of another reader is a mistake and not ignored."""
    theirs = {"model": "openai", "base_url": "openai", "model_path": "llama_cpp"}
    for option, owner in theirs.items():
        if getattr(args, option) is not None and args.reader != owner:
            flag = option.replace("_", "-")
            raise InvalidInputError(f"--{flag} goes with --reader {owner}, not with {args.reader}")
    from zeromem.answer import readers

    if args.reader == "openai":
        if args.model is None:
            raise InvalidInputError("--reader openai needs --model, the chat model's name")
        return readers.openai(args.model, base_url=args.base_url)
    if args.reader == "llama_cpp":
        return readers.llama_cpp(args.model_path)
    return None  # the memory makes it, with its own encoder
