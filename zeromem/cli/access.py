"""The commands on API keys: create, list, revoke."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC
from typing import Any

from zeromem.cli import show
from zeromem.cli.common import Args, emit, note, store_path
from zeromem.errors import InvalidInputError, ReadOnlyStoreError
from zeromem.keys import Key, Keys, id_of


def keys(args: Args) -> int:
    """Make, list or take back the keys of a server's clients."""
    run = {"create": _create, "list": _list, "revoke": _revoke}[args.keys_command]
    if args.read_only and run is not _list:
        raise ReadOnlyStoreError(
            f"keys {args.keys_command} writes; leave --read-only out (after `keys create` it makes "
            "a key that may only read)"
        )
    # The keys may be made before the store is.
    with Keys(store_path(args, create=True)) as found:
        return run(args, found)


def _create(args: Args, found: Keys) -> int:
    key, secret = found.create(
        args.tenant, name=args.name, read_only=args.key_read_only, rate=args.rate
    )
    emit(args, {"key": secret, **_record(key)}, [secret])
    note(f"this is the only time the key is shown; {found.path} has its hash alone")
    return 0


def _list(args: Args, found: Keys) -> int:
    known = found.list()
    emit(args, [_record(key) for key in known], map(_line, known))
    if not known:
        note(f"there are no keys in {str(found.path)!r}; make one with `zeromem keys create`")
    return 0


def _revoke(args: Args, found: Keys) -> int:
    id = id_of(args.id)  # of a whole key too: that is what one has of a key that got out
    known = {key.id: key for key in found.list()}
    if id not in known:
        raise InvalidInputError(
            f"there is no key {id!r} in {str(found.path)!r}; `zeromem keys list` shows them"
        )
    when = known[id].revoked_at
    if when is not None or not found.revoke(id):
        raise InvalidInputError(f"key {id!r} was revoked already; nothing is left to do")
    emit(args, {"id": id, "revoked": True}, [f"{id}: revoked"])
    return 0


def _record(key: Key) -> dict[str, Any]:
    return {name: getattr(key, name) for name in key.__dataclass_fields__}


def _line(key: Key) -> str:
    return "  ".join(_cells(key)).rstrip()


def _cells(key: Key) -> Iterator[str]:
    yield key.id
    yield f"{key.created_at.astimezone(UTC):%Y-%m-%d}"
    yield "all tenants" if key.tenant is None else show.clean(repr(key.tenant))
    if key.read_only:
        yield "read-only"
    if key.rate is not None:
        yield f"{key.rate:g}/s"
    if key.revoked_at is not None:
        yield f"revoked {key.revoked_at.astimezone(UTC):%Y-%m-%d}"
    yield show.clean(key.name)
