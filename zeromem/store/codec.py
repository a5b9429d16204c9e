"""Traces to and from the store's columns. Every string round-trips, lone surrogates included."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple, cast

from zeromem.errors import InvalidInputError
from zeromem.store.arguments import shown
from zeromem.times import EventTime, Precision, in_zone, named_zone, to_micros, zone_name
from zeromem.types import ROLES, Role, Trace

MAX_BYTES = 900_000_000
"""SQLite takes a billion bytes per row; no single field may come near."""

_MAX_DEPTH = 100
_MAX_DIGITS = 4300  # Python reads no longer number from JSON
_TOO_LARGE = 10**_MAX_DIGITS
_LENGTHS = struct.Struct("<6q")
_STRINGS = ("text", "id", "speaker", "session", "title", "source")

Columns = tuple[bytes | None, ...]


class Prepared(NamedTuple):
    """A checked trace, ready to be written.

    ``columns`` are in the order of ``schema.TEXT_COLUMNS``; ``digest`` identifies the content:
    everything but the id and the metadata.
    """

    id: str
    id_hash: bytes
    digest: bytes
    feature_key: bytes
    columns: Columns


def encode(text: str) -> bytes:
    """UTF-8, lone surrogates passed through."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def decode(data: bytes) -> str:
    """Inverse of :func:`encode`."""
    return data.decode("utf-8", "surrogatepass")


def maybe(data: bytes | None) -> str | None:
    """:func:`decode` where there is something."""
    return None if data is None else data.decode("utf-8", "surrogatepass")


def short_hash(data: bytes) -> bytes:
    """16 bytes of BLAKE2b."""
    return blake2b(data, digest_size=16).digest()


def prepare_trace(trace: Trace, key: bytes, index: int) -> Prepared:
    """Check a trace and lay it out in columns.

    Parameters
    ----------
    trace : Trace
    key : bytes
        Its feature key.
    index : int
        Its place in the caller's batch, for error messages.

    Raises
    ------
    InvalidInputError
        Naming the trace, the field, its value and what it should be.
    """
    try:
        text = encode(trace.text)
        speaker = None if trace.speaker is None else encode(trace.speaker)
        session = None if trace.session is None else encode(trace.session)
        title = None if trace.title is None else encode(trace.title)
        source = None if trace.source is None else encode(trace.source)
        given = None if trace.id is None else encode(trace.id)
    except (AttributeError, TypeError):
        raise _wrong_type(trace, index) from None
    if trace.role not in ROLES or trace.id == "" or len(text) > MAX_BYTES:
        raise _wrong_value(trace, index, len(text))
    if not isinstance(key, bytes) or not key:
        raise InvalidInputError(f"keys[{index}] must be non-empty bytes, got {shown(key)}")
    role = trace.role.encode()
    when, instant = _encode_time(trace.time, index)
    metadata = _encode_metadata(trace.metadata, index)
    digest = _digest(role, speaker, session, instant, title, source, text)
    # Without an id the content is the id; a hexadecimal string, so that it survives any export.
    name = given if given is not None else digest.hex().encode()
    columns = (name, role, speaker, session, when, title, source, metadata, text)
    return Prepared(trace.id or name.decode(), short_hash(name), digest, key, columns)


def _digest(*content: bytes | None) -> bytes:
    """Hash the content; the text comes last."""
    *fields, text = content
    lengths = _LENGTHS.pack(*[-1 if f is None else len(f) for f in fields])
    found = blake2b(lengths + b"".join(filter(None, fields)), digest_size=16)
    found.update(text or b"")
    return found.digest()


def stored_digest(columns: Sequence[bytes | None]) -> bytes:
    """Hash the content as it is stored, whatever today's program would make of it."""
    _, role, speaker, session, when, title, source, _, text = columns
    instant = None
    if when is not None:
        precision, iso, _ = when.decode().split(" ", 2)
        instant = f"{precision} {to_micros(datetime.fromisoformat(iso))}".encode()
    return _digest(role, speaker, session, instant, title, source, text)


def _wrong_type(trace: object, index: int) -> InvalidInputError:
    if not isinstance(trace, Trace):
        return InvalidInputError(f"trace {index}: must be a Trace, got {shown(trace)}")
    for field in _STRINGS:
        value = getattr(trace, field)
        if not (isinstance(value, str) or (value is None and field != "text")):
            return InvalidInputError(f"trace {index}: {field} must be a string, got {shown(value)}")
    return InvalidInputError(f"trace {index}: has a field of a wrong type: {shown(trace)}")


def _wrong_value(trace: Trace, index: int, n_bytes: int) -> InvalidInputError:
    if trace.role not in ROLES:
        return InvalidInputError(
            f"trace {index}: role must be one of {', '.join(ROLES)}, got {shown(trace.role)}"
        )
    if trace.id == "":
        return InvalidInputError(
            f"trace {index}: id must not be empty, got ''; leave it out to have one made"
        )
    return InvalidInputError(
        f"trace {index}: text has {n_bytes} bytes, the limit is {MAX_BYTES}; split it"
    )


def _encode_time(time: EventTime | None, index: int) -> tuple[bytes | None, bytes | None]:
    """Give the lossless form, and the canonical one (equal for equal times whatever their zone)."""
    if time is None:
        return None, None
    if not isinstance(time, EventTime):
        raise InvalidInputError(
            f"trace {index}: time must be an EventTime, got {shown(time)}; "
            "make one with EventTime.parse('2026-05-03T10:00+02:00')"
        )
    start = time.start
    data = f"{time.precision} {start.isoformat()} {zone_name(start) or ''}".encode()
    if decode_time(data).start.isoformat() != start.isoformat():
        raise InvalidInputError(
            f"trace {index}: time cannot be kept as it is, got {shown(time)}; "
            "give it an offset ('…T10:00+02:00') or a zoneinfo.ZoneInfo as its zone"
        )
    return data, f"{time.precision} {to_micros(start)}".encode()


@lru_cache(maxsize=4096)
def decode_time(data: bytes) -> EventTime:
    """Read the lossless form.

    Where the zone's name is unknown here, or its clock would leave the years 1 to 9999, the
    instant keeps its offset.
    """
    precision, iso, name = data.decode().split(" ", 2)
    start = datetime.fromisoformat(iso)
    zone = named_zone(name) if name else None
    return EventTime(start if zone is None else in_zone(start, zone), cast(Precision, precision))


def _encode_metadata(metadata: Mapping[str, Any] | None, index: int) -> bytes | None:
    if metadata is None:
        return None
    if not isinstance(metadata, Mapping):
        raise InvalidInputError(
            f"trace {index}: metadata must be a mapping such as {{'mood': 'calm'}}, got "
            f"{shown(metadata)}"
        )
    if not metadata:
        return None
    plain = _plain(metadata, f"trace {index}: metadata", 0)
    try:
        return json.dumps(plain, separators=(",", ":")).encode()
    except ValueError as exc:  # sys.set_int_max_str_digits allows less than the usual
        raise InvalidInputError(
            f"trace {index}: metadata cannot be written as JSON: {exc}; use a string"
        ) from None


def _plain(value: Any, where: str, depth: int) -> Any:
    """Copy to plain JSON types; the path names what JSON cannot hold."""
    if depth > _MAX_DEPTH:
        raise InvalidInputError(
            f"{where[:200]} is nested more than {_MAX_DEPTH} levels deep, or contains itself"
        )
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        if abs(value) >= _TOO_LARGE:
            raise InvalidInputError(
                f"{where} is an integer of more than {_MAX_DIGITS} digits, got one of "
                f"{value.bit_length()} bits; write it as a string"
            )
        return value
    if isinstance(value, float):
        if value - value != 0:
            raise InvalidInputError(f"{where} must be finite, JSON has no {value!r}; leave it out")
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise InvalidInputError(f"{where} has the key {shown(key)}; JSON keys are strings")
        return {str(k): _plain(v, f"{where}[{k!r}]", depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v, f"{where}[{i}]", depth + 1) for i, v in enumerate(value)]
    raise InvalidInputError(
        f"{where} is {shown(value)}, which JSON cannot hold; use strings, "
        "numbers, booleans, None, lists and mappings"
    )


def decode_trace(columns: Sequence[bytes | None]) -> Trace:
    """Rebuild a trace from its columns, ``id`` filled in."""
    name, role, speaker, session, when, title, source, metadata, text = columns
    return Trace(
        text=decode(text or b""),
        id=maybe(name),
        role=cast(Role, maybe(role)),
        speaker=maybe(speaker),
        session=maybe(session),
        time=None if when is None else decode_time(when),
        title=maybe(title),
        source=maybe(source),
        metadata={} if metadata is None else _decode_metadata(metadata),
    )


def _decode_metadata(data: bytes) -> dict[str, Any]:
    found = json.loads(data)
    # Programs before the check in _encode_metadata stored what is no mapping as well.
    return found if isinstance(found, dict) else {"metadata": found}
