"""The index on disk: its segments' arrays, checked when read, memory-mapped, beside the log.

A snapshot only saves time. Whatever is wrong with one (missing, stale, cut short, foreign) it is
left aside and the index is built from the log.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
import struct
import threading
import zlib
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from zeromem.index.segment import Segment

_log = logging.getLogger(__name__)
_MAGIC = b"ZMINDEX3"
# Magic, bytes of the JSON head, checksum of all that follows this header.
_HEADER = struct.Struct("<8sQI4x")
_ALIGN = 64
_NAMES = ("vocabulary", "entities", "speakers", "sessions", "sources")
_ARRAYS = tuple(f.name for f in fields(Segment) if f.name not in _NAMES)


class Stamp(NamedTuple):
    """What a snapshot belongs to.

    Attributes
    ----------
    fingerprint : str
        Of the features.
    dim : int
    last_lsn, n_forgotten_ops : int
        The log's state that the index shows.
    last : str
        What the trace at ``last_lsn`` is: the same numbers occur in other logs too, such as a
        backup that was put back and went on.
    """

    fingerprint: str
    dim: int
    last_lsn: int
    n_forgotten_ops: int
    last: str


def save(path: Path, segments: tuple[Segment, ...], stamp: Stamp) -> None:
    """Write a snapshot: to a file of its own first, then in place by one rename.

    Raises
    ------
    OSError
        Where the folder cannot be written or the disk is full; the old snapshot stays.
    """
    blocks: list[bytes] = []
    described = []
    size = 0
    for segment in segments:
        arrays = {}
        for name in _ARRAYS:
            array = np.ascontiguousarray(getattr(segment, name))
            arrays[name] = (array.dtype.str, array.shape, size)
            padding = -array.nbytes % _ALIGN
            blocks += [array.tobytes(), b"\0" * padding]
            size += array.nbytes + padding
        described.append({"arrays": arrays, **{n: getattr(segment, n) for n in _NAMES}})
    head = json.dumps({"stamp": stamp, "segments": described}, ensure_ascii=True).encode()
    head += b" " * (-(_HEADER.size + len(head)) % _ALIGN)
    checksum = zlib.crc32(head)
    for block in blocks:
        checksum = zlib.crc32(block, checksum)
    # Two memories of one process may close at once.
    draft = path.with_name(f"{path.stem}.{os.getpid()}-{threading.get_ident()}{path.suffix}")
    try:
        with draft.open("wb") as file:
            file.write(_HEADER.pack(_MAGIC, len(head), checksum))
            file.write(head)
            file.writelines(blocks)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def load(path: Path) -> tuple[tuple[Segment, ...], Stamp] | None:
    """Read a snapshot; None, with a line in the log, where there is none that can be trusted."""
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        _log.warning("index snapshot %s is left aside: %s", path, error)
        return None
    try:
        return _parse(data)
    except (ValueError, KeyError, TypeError, struct.error) as error:
        _log.warning("index snapshot %s is left aside: it is damaged (%s)", path, error)
        return None


def _parse(data: mmap.mmap) -> tuple[tuple[Segment, ...], Stamp]:
    magic, n_head, checksum = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise ValueError(f"it starts with {magic!r}")
    with memoryview(data) as view:
        if zlib.crc32(view[_HEADER.size :]) != checksum:
            raise ValueError("its checksum does not match")
    head = json.loads(data[_HEADER.size : _HEADER.size + n_head])
    base = _HEADER.size + n_head
    segments = []
    for described in head["segments"]:
        arrays: dict[str, Any] = {}
        for name in _ARRAYS:
            dtype, shape, offset = described["arrays"][name]
            count = int(np.prod(shape))
            flat = np.frombuffer(data, np.dtype(dtype), count, base + offset)
            arrays[name] = flat.reshape(shape)
        parts: dict[str, Any] = {**arrays, **{n: tuple(described[n]) for n in _NAMES}}
        segments.append(Segment(**parts))
    return tuple(segments), Stamp(*head["stamp"])
