"""What all commands share: settings, opening, printing."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Iterable
from contextlib import suppress
from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING

from zeromem import records
from zeromem.cli import show
from zeromem.cli.parser import DEFAULT_SCOPE, DEFAULT_STORE, setting
from zeromem.errors import ModelNotFoundError, StoreError
from zeromem.store import Store
from zeromem.times import EventTime

if TYPE_CHECKING:
    from zeromem.memory import Memory

Args = argparse.Namespace


def store_path(args: Args, *, create: bool = False) -> Path:
    """Return the store's file; one that is only read must be there, or a typo would make one."""
    path = Path(setting(args, "store", DEFAULT_STORE) or DEFAULT_STORE)
    if not create and not path.exists():
        raise StoreError(
            f"there is no store {str(path)!r}; name one with --store or ZEROMEM_STORE, or make it "
            "with `zeromem add` or `zeromem import`"
        )
    return path


def scope(args: Args) -> str:
    """Return the scope's name."""
    return setting(args, "scope", DEFAULT_SCOPE) or DEFAULT_SCOPE


def zone(args: Args) -> tzinfo | None:
    """Return the zone of times that are given without one."""
    if (name := setting(args, "zone")) is None:
        return None
    from zeromem.inputs import as_zone

    return as_zone(name)


def moment(args: Args, value: str | None) -> EventTime | None:
    """Return a time from its text."""
    return None if value is None else EventTime.parse(value, zone=zone(args))


def progress(args: Args) -> bool | None:
    """Return whether bars are shown; None where the terminal decides."""
    return False if args.quiet else None


def open_memory(
    args: Args,
    path: Path | None,
    *,
    name: str | None = None,
    reencode: bool = False,
    once: bool = False,
) -> Memory:
    """Open a scope with the models that the options name.

    Parameters
    ----------
    args : Namespace
    path : Path or None
        None for a temporary store.
    name : str, optional
        Of the scope, where it is not the one of the options.
    reencode : bool
    once : bool
        It is for one text: its annotator loads in a process beside while the encoder loads here.
        (Two threads of one process would only wait for each other.)
    """
    if once:
        gc.disable()  # a short life's objects are modules: looking through them is a tenth of it
        _start_annotator(setting(args, "annotator"))
    from zeromem.memory import open as open_scope

    memory = open_scope(
        path,
        scope=name or scope(args),
        encoder=setting(args, "encoder"),
        annotator=setting(args, "annotator"),
        device=setting(args, "device", "auto"),  # type: ignore[arg-type] # checked there
        zone=zone(args),
        read_only=args.read_only,
        reencode=reencode,
    )
    if once:
        memory.warm_encoder()
    return memory


def _start_annotator(name: str | None) -> None:
    from zeromem.ingest.annotate import SpacyAnnotator, load_annotator

    with suppress(ModelNotFoundError):  # opening the memory says so
        annotator = load_annotator(name)
        if isinstance(annotator, SpacyAnnotator):
            annotator.start_apart()


def open_store(args: Args, *, write: bool = False) -> Store:
    """Open the store without any model: counting, exporting and forgetting need none."""
    return Store.open(store_path(args), read_only=args.read_only or not write, create=False)


def emit(args: Args, record: object, lines: Iterable[str]) -> None:
    """Print a result: as JSON where asked for, else as text."""
    if args.json:
        print(records.dumps(record, sys.stdout.encoding))
        return
    for line in lines:
        print(line)


def note(text: str) -> None:
    """Tell a person something that is no part of the result."""
    print(f"zeromem: {text}", file=sys.stderr)


def note_unknown_scope(args: Args) -> None:
    """Where nothing was found the scope's name may be a typo."""
    with open_store(args) as store:
        names = store.scopes()
    if scope(args) not in names:
        there = ", ".join(map(show.clean, names[:20])) or "none"
        note(f"scope {scope(args)!r} holds nothing; scopes: {there}")


def plural(n: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{n} {noun}{'' if n == 1 else 's'}"
