"""The commands on the store as a file: backup and restore."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from zeromem.cli.common import Args, emit, open_store, plural, store_path
from zeromem.errors import ReadOnlyStoreError
from zeromem.store import Copied
from zeromem.store import restore as put_back
from zeromem.store.backup import Progress


def backup(args: Args) -> int:
    """Copy the whole store into one file, while others use it."""
    with open_store(args) as store, _bar(args, "copying") as progress:
        done = store.backup(args.target, overwrite=args.force, progress=progress)
    _told(args, done, "written to")
    return 0


def restore(args: Args) -> int:
    """Put a backup in the place of the store."""
    if args.read_only:
        raise ReadOnlyStoreError("restore writes a store; leave --read-only out")
    target = store_path(args, create=True)
    with _bar(args, "copying") as progress:
        done = put_back(args.backup, target, overwrite=args.force, progress=progress)
    _told(args, done, "restored to")
    return 0


def _told(args: Args, done: Copied, verb: str) -> None:
    record = {"file": str(done.path), "traces": done.n_traces, "bytes": done.n_bytes}
    line = f"{plural(done.n_traces, 'trace')}, {done.n_bytes:,} bytes {verb} {done.path}"
    emit(args, record, [line])


@contextmanager
def _bar(args: Args, label: str) -> Iterator[Progress | None]:
    """Show how far the copy is, where somebody looks."""
    if args.quiet or not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    with tqdm(desc=label, unit="B", unit_scale=True, leave=False, file=sys.stderr) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield show
