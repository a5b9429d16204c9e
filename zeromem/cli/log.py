"""The commands on the log: add, forget, stats, scopes, reencode, and warmup."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from zeromem.cli import show
from zeromem.cli.common import (
    Args,
    emit,
    moment,
    note,
    open_memory,
    open_store,
    plural,
    progress,
    scope,
    store_path,
)
from zeromem.cli.parser import setting
from zeromem.errors import EncoderError, InvalidInputError


def add(args: Args) -> int:
    """Remember one trace."""
    metadata = {} if args.metadata is None else _json_object(args.metadata)
    text = _stdin() if args.text == "-" else args.text
    with open_memory(args, store_path(args, create=True), once=True) as memory:
        added = memory.add(
            text, id=args.id, role=args.role, speaker=args.speaker, session=args.session,
            time=args.time, title=args.title, source=args.source, metadata=metadata,
        )  # fmt: skip
    state = "remembered" if added.created else "was there already"
    emit(args, added, [f"{show.clean(added.id)}: {state}"])
    return 0


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidInputError(
            f"--metadata must be a JSON object, got {text!r}: {error}"
        ) from None
    if not isinstance(value, dict):
        raise InvalidInputError(f"--metadata must be a JSON object, got {text!r}")
    return value


def _stdin() -> str:
    try:
        return sys.stdin.buffer.read().decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"stdin must be UTF-8: {error}") from None


def stats(args: Args) -> int:
    """Count what a scope holds."""
    with open_store(args) as store:
        counted = {"scope": scope(args), **store.scope(scope(args)).stats()}
    if counted["traces"] and not counted["pending"]:
        # Where all is encoded the index is at hand or quickly built: no model runs.
        with open_memory(args, store_path(args)) as memory:
            counted = memory.stats()
    elif counted["pending"]:
        note(
            f"{plural(counted['pending'], 'trace')} not encoded yet; the next question or "
            "`zeromem reencode` does it, and stats then counts the index too"
        )
    usage = counted.pop("llm_usage", {})
    spent = {f"llm_tokens_{stage}": u.prompt + u.completion for stage, u in usage.items()}
    emit(args, counted | spent, show.table(counted | spent))
    return 0


def scopes(args: Args) -> int:
    """List scopes."""
    with open_store(args) as store:
        counted = {name: store.scope(name).stats() for name in store.scopes()}
    found = [
        {"scope": name, **{k: s[k] for k in ("traces", "pending", "fingerprint")}}
        for name, s in counted.items()
    ]
    emit(args, found, (f"{s['traces']:8}  {show.clean(str(s['scope']))}" for s in found))
    return 0


def forget(args: Args) -> int:
    """Delete traces for good."""
    limits = {"sessions": args.session, "speakers": args.speaker, "sources": args.source}
    given = {name: [value] for name, value in limits.items() if value is not None}
    times = {"after": moment(args, args.after), "before": moment(args, args.before)}
    if args.everything == bool(args.ids or given or any(times.values())):
        raise InvalidInputError(
            "forget needs ids, --session, --speaker, --source, --after or --before, or else "
            "--everything alone"
        )
    with open_store(args, write=not args.dry_run) as store:
        log = store.scope(scope(args))
        if args.speaker is not None:
            given["speakers"] = log.spellings(args.speaker)
        lsns = log.select(
            ids=args.ids or None, **given, **times, everything=args.everything  # type: ignore[arg-type]
        )  # fmt: skip
        n = len(lsns) if args.dry_run else log.forget(lsns)
    verb = "would be forgotten" if args.dry_run else "forgotten"
    emit(args, {"forgotten": n, "dry_run": args.dry_run}, [f"{plural(n, 'trace')} {verb}"])
    return 0


def reencode(args: Args) -> int:
    """Encode a scope anew, or what is still to be encoded of it."""
    with open_memory(args, store_path(args), reencode=True) as memory:
        before = _pending(args)
        # Adding a trace again writes nothing to the log and encodes what has no features yet,
        # batch by batch: a rerun goes on where this was interrupted.
        memory.add_many((s.trace for s in memory.export()), progress=progress(args))
        left = _pending(args)
        counted = memory.stats() if not left else {}
    if left:
        raise EncoderError(f"{plural(left, 'trace')} could not be encoded and stay as they were")
    record = {"scope": scope(args), "encoded": before, "fingerprint": counted["fingerprint"]}
    lines = [f"{plural(before, 'trace')} encoded with {counted['fingerprint']}"]
    emit(args, record, lines)
    return 0


def _pending(args: Args) -> int:
    with open_store(args) as store:
        return int(store.scope(scope(args)).stats()["pending"])


def warmup(args: Args) -> int:
    """Compile kernels and load models."""
    from zeromem.backend import resolve
    from zeromem.backend import warmup as compile_kernels
    from zeromem.ingest.annotate import load_annotator
    from zeromem.ingest.encode import load_encoder

    device = resolve(setting(args, "device", "auto")).device  # type: ignore[arg-type]
    seconds = dict(compile_kernels())
    start = time.perf_counter()
    load_encoder(setting(args, "encoder"), device).encode(["warm"])
    seconds["encoder"] = (encoded := time.perf_counter()) - start
    load_annotator(setting(args, "annotator")).annotate(["warm"])
    seconds["annotator"] = time.perf_counter() - encoded
    emit(args, seconds, show.table({k: show.duration(v) for k, v in seconds.items()}))
    return 0
