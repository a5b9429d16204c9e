"""Files in and out: import and export."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path

from zeromem.cli import show
from zeromem.cli.common import (
    Args,
    emit,
    note_unknown_scope,
    open_memory,
    open_store,
    plural,
    progress,
    scope,
    store_path,
    zone,
)
from zeromem.cli.parser import setting
from zeromem.errors import ImportFormatError, InvalidInputError
from zeromem.importers import conversations, detect, load, to_json_line
from zeromem.importers.records import Conversation

_SINGLE = ("jsonl", "chat")  # formats whose files are one conversation


def import_(args: Args) -> int:
    """Remember a file, each of its conversations in a scope of its own."""
    done: list[tuple[str, int, int]] = []
    with _file(args.file) as path:
        try:
            for name, found in _targets(args, path):
                with open_memory(args, store_path(args, create=True), name=name) as memory:
                    added = memory.add_many(found.traces, progress=progress(args))
                done.append((name, len(added), sum(a.created for a in added)))
        except ImportFormatError as error:
            raise ImportFormatError(f"{args.file}: {error}") from None
    emit(
        args,
        [{"scope": name, "traces": n, "added": n_new} for name, n, n_new in done],
        (f"{show.clean(name)}: {plural(n, 'trace')}, {n_new} new" for name, n, n_new in done),
    )
    return 0


@contextmanager
def _file(name: str) -> Iterator[Path]:
    """Give a file that can be read twice, as telling its format needs: stdin is copied first."""
    if name != "-":
        yield Path(name)
        return
    with tempfile.TemporaryDirectory(prefix="zeromem-") as folder:
        path = Path(folder, "stdin")
        with path.open("wb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        yield path


def _targets(args: Args, path: Path) -> Iterator[tuple[str, Conversation]]:
    """Yield each conversation with the scope that it goes into."""
    form = detect(path) if args.format == "auto" else args.format
    if args.sample is not None:
        if form in _SINGLE:
            raise InvalidInputError(
                f"--sample goes with files of several conversations, and {args.file!r} ({form}) "
                "is one; leave it out"
            )
        traces = load(
            path, form, conversation=args.sample, zone=zone(args), source=args.source,
            keep_system=args.keep_system,
        )  # fmt: skip
        yield scope(args), Conversation(args.sample, traces)
        return
    found = conversations(
        path, form, zone=zone(args), source=args.source, keep_system=args.keep_system
    )
    first = list(islice(found, 1 if form in _SINGLE else 2))
    for talk in chain(first, found):
        alone = len(first) < 2
        yield scope(args) if alone else _scope_of(args, talk), talk


def _scope_of(args: Args, talk: Conversation) -> str:
    prefix = setting(args, "scope")
    return f"{prefix}/{talk.name}" if prefix else str(talk.name)


def export(args: Args) -> int:
    """Write a scope as JSON Lines; a file appears whole or not at all."""
    n = 0

    def lines() -> Iterator[bytes]:
        nonlocal n
        for stored in store.scope(scope(args)).export():
            n += 1
            line = to_json_line(stored.trace, lsn=stored.lsn, stored=stored.ingested_at)
            yield line.encode() + b"\n"

    with open_store(args) as store:
        if args.file == "-":
            sys.stdout.buffer.writelines(lines())
        else:
            _write(Path(args.file), store_path(args), lines())
    if not n:
        note_unknown_scope(args)
    if args.file != "-":
        record = {"scope": scope(args), "traces": n, "file": args.file}
        emit(args, record, [f"{plural(n, 'trace')} written to {args.file}"])
    return 0


def _write(path: Path, store: Path, lines: Iterable[bytes]) -> None:
    if path.resolve() == store.resolve() or path.is_dir():
        raise InvalidInputError(f"export needs a file to write, got {str(path)!r}; name another")
    if path.exists() and not path.is_file():  # a pipe or a device cannot be replaced
        with path.open("wb") as device:
            device.writelines(lines)
        return
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("xb") as file:
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
