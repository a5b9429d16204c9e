"""The index on disk: its parts as flat arrays, checked when read, memory-mapped, beside the log.

A snapshot only saves time. Whatever is wrong with one (missing, stale, cut short, foreign, of
parts that do not belong together) it is left aside and the index is built from the log. What
depends on the configuration is stored under the configuration's key: under another one it is
derived anew from what does not.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
import re
import struct
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zeromem.config import Config
from zeromem.index.chunks import Chunks
from zeromem.index.columns import Columns
from zeromem.index.extend import derived
from zeromem.index.lists import Lists
from zeromem.index.names import Names
from zeromem.index.sound import fault
from zeromem.index.state import BASE, DERIVED, LISTS, NAMES, VECTORS, State

_log = logging.getLogger(__name__)
_MAGIC = b"ZMINDEX4"
# Magic, bytes of the JSON head, checksum of all that follows this header.
_HEADER = struct.Struct("<8sQI4x")
_ALIGN = 64
# Raise it when the same turns and configuration give other derived arrays.
_DERIVATION = 1
# Seconds after which a draft is nobody's: the number of its process may be another one's by then.
_DRAFT_SECONDS = 3600.0

# What a file raises whose checksum is right and whose contents are not; a dtype is parsed as code.
_UNREADABLE = (
    ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError, SyntaxError,
    struct.error,
)  # fmt: skip

Array = NDArray[Any]


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


class Loaded(NamedTuple):
    """A snapshot that was read.

    Attributes
    ----------
    state : State
        Its arrays are read-only memory maps.
    stamp : Stamp
    key : str
        Of the configuration that what is derived in ``state`` belongs to.
    """

    state: State
    stamp: Stamp
    key: str

    def under(self, config: Config) -> State:
        """Return the state under a configuration, deriving anew what belongs to another one."""
        return self.state if self.key == key_of(config) else derived(self.state, config)


def key_of(config: Config) -> str:
    """Name what derived arrays depend on beside the turns."""
    g, h = config.graph, config.hierarchy
    graph = (g.title_links, g.title_weight, g.speaker_weight, g.speaker_mentions, g.idf_weighting)
    spans = (h.window, h.depth, h.min_turns, h.max_turns, h.gap_hours, h.half_informative)
    return repr((_DERIVATION, g.adjacency_weight, *graph, *spans))


def save(path: Path, state: State, config: Config, stamp: Stamp) -> None:
    """Write a snapshot: to a file of its own first, then in place by one rename.

    Parameters
    ----------
    path : Path
    state : State
    config : Config
        That of the index.
    stamp : Stamp

    Raises
    ------
    OSError
        Where the folder cannot be written or the disk is full; the old snapshot stays.
    """
    blocks: list[Array] = []
    arrays = {}
    size = 0
    for name, shape, parts in _parts(state):
        arrays[name] = (parts[0].dtype.str, shape, size)
        n_bytes = sum(part.nbytes for part in parts)
        padding = -n_bytes % _ALIGN
        blocks += [*parts, np.zeros(padding, np.uint8)]
        size += n_bytes + padding
    names = {kind: list(state.names[kind]) for kind in NAMES}
    described = {"stamp": stamp, "key": key_of(config), "arrays": arrays, "names": names}
    head = json.dumps(described, ensure_ascii=True).encode()
    head += b" " * (-(_HEADER.size + len(head)) % _ALIGN)
    checksum = zlib.crc32(head)
    for block in blocks:
        checksum = zlib.crc32(_bytes(block), checksum)
    sweep(path)
    # Two memories of one process may close at once.
    draft = path.with_name(f"{path.stem}.{os.getpid()}-{threading.get_ident()}{path.suffix}")
    try:
        mode = _mode_of_store(path)
        with open(draft, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(_HEADER.pack(_MAGIC, len(head), checksum))
            file.write(head)
            for block in blocks:
                file.write(_bytes(block))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _mode_of_store(path: Path) -> int:
    """Permissions of the store that a snapshot lies beside: it holds what the store does."""
    try:
        return path.with_suffix("").with_suffix("").stat().st_mode & 0o666
    except OSError:
        return 0o600


def sweep(path: Path) -> None:
    """Remove drafts of a snapshot whose writers were killed.

    A draft goes when its process is gone, or when it has not been written to for an hour. What
    cannot be removed stays, with a line in the log.

    Parameters
    ----------
    path : Path
        Of the snapshot.
    """
    name = re.compile(rf"{re.escape(path.stem)}\.(\d+)-\d+{re.escape(path.suffix)}")
    try:
        found = [(entry, name.fullmatch(entry.name)) for entry in os.scandir(path.parent)]
        for entry, match in found:
            if match and (not _alive(int(match[1])) or _age(entry) > _DRAFT_SECONDS):
                Path(entry.path).unlink(missing_ok=True)
    except FileNotFoundError:  # its writer was faster
        return
    except OSError as error:
        _log.warning("drafts of index snapshot %s are not removed: %s", path, error)


def _age(entry: os.DirEntry[str]) -> float:
    """Seconds since a file was written to."""
    return time.time() - entry.stat().st_mtime


def _alive(pid: int) -> bool:
    """Whether a process may be running."""
    if sys.platform == "win32":  # asking there would stop it
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        return True
    return True


def _parts(state: State) -> Iterator[tuple[str, tuple[int, ...], list[Array]]]:
    """Every array by name, with its shape, in pieces that lie one behind the other."""
    for name in (*BASE, *DERIVED):
        array = state.columns[name]
        yield name, array.shape, [array]
    for name in VECTORS:
        chunks = state.vectors[name]
        yield name, (len(chunks), chunks.dim), [np.zeros((0, chunks.dim), "f2"), *chunks.parts]
    for name in LISTS:
        for part, array in zip(
            ("indptr", "values", "counts"), state.lists[name].csr(), strict=True
        ):
            yield f"{name}.{part}", array.shape, [array]


def _bytes(array: Array) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def load(path: Path) -> Loaded | None:
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
    except _UNREADABLE as error:
        _log.warning("index snapshot %s is left aside: it is damaged (%s)", path, error)
        return None


def _parse(data: mmap.mmap) -> Loaded:
    magic, n_head, checksum = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise ValueError(f"it starts with {magic!r}")
    with memoryview(data) as view:
        if zlib.crc32(view[_HEADER.size :]) != checksum:
            raise ValueError("its checksum does not match")
    head = json.loads(data[_HEADER.size : _HEADER.size + n_head])
    base = _HEADER.size + n_head
    arrays = {}
    for name, (dtype, shape, offset) in head["arrays"].items():
        flat = np.frombuffer(data, np.dtype(dtype), int(np.prod(shape)), base + offset)
        arrays[name] = flat.reshape(shape)
    lists = {}
    for name, counted in LISTS.items():
        csr = (arrays[f"{name}.indptr"], arrays[f"{name}.values"], arrays[f"{name}.counts"])
        lists[name] = Lists.sealed(csr, counted=counted)
    state = State(
        Columns.of({name: arrays[name] for name in (*BASE, *DERIVED)}),
        {kind: Names(head["names"][kind]) for kind in NAMES},
        {name: Chunks.of(arrays[name]) for name in VECTORS},
        lists,
    )
    stamp = Stamp(*head["stamp"])
    if (wrong := fault(state, stamp.dim)) is not None:
        raise ValueError(wrong)
    return Loaded(state, stamp, head["key"])
