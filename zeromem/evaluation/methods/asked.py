"""Vectors and names of questions, kept: what every run of an evaluation asks again."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from zeromem.errors import CorruptStoreError, StoreError
from zeromem.ingest.annotate import Annotation, Annotator
from zeromem.ingest.encode import Encoder
from zeromem.ingest.encoders.base import SpanVectors

_BUSY_SECONDS = 60.0


class Asked:
    """Values by kind and text, in memory and, where a path is given, in a SQLite file.

    Parameters
    ----------
    path : Path, optional
    """

    def __init__(self, path: Path | None = None) -> None:
        self._known: dict[tuple[str, str], bytes] = {}
        self._lock = threading.Lock()
        self._file: sqlite3.Connection | None = None
        if path is not None:
            self._file = _opened(path)

    def get(
        self, kind: str, texts: Sequence[str], make: Callable[[list[str]], Sequence[bytes]]
    ) -> list[bytes]:
        """Return the value of each text; those not known are made in one call."""
        with self._lock:
            for text in texts:
                if (kind, text) not in self._known:
                    kept = self._read(kind, text)
                    if kept is not None:
                        self._known[kind, text] = kept
            missing = [text for text in dict.fromkeys(texts) if (kind, text) not in self._known]
            if missing:
                made = dict(zip(missing, make(missing), strict=True))
                self._known.update({(kind, text): value for text, value in made.items()})
                self._write(kind, made)
            return [self._known[kind, text] for text in texts]

    def close(self) -> None:
        """Close the file; may be called twice."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self, kind: str, text: str) -> bytes | None:
        if self._file is None:
            return None
        row = self._file.execute("SELECT value FROM asked WHERE key = ?", (_key(kind, text),))
        found = row.fetchone()
        return None if found is None else bytes(found[0])

    def _write(self, kind: str, made: dict[str, bytes]) -> None:
        if self._file is not None:
            rows = [(_key(kind, text), value) for text, value in made.items()]
            with self._file:
                self._file.executemany("INSERT OR IGNORE INTO asked VALUES (?, ?)", rows)


def _opened(path: Path) -> sqlite3.Connection:
    try:
        file = sqlite3.connect(path, timeout=_BUSY_SECONDS, check_same_thread=False)
        file.execute("PRAGMA journal_mode = WAL")
        file.execute(
            "CREATE TABLE IF NOT EXISTS asked "
            "(key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
        )
    except sqlite3.Error as error:
        raise StoreError(
            f"{path} keeps no questions ({error}): its folder must exist, and a damaged file can "
            "be removed, as it only saves time"
        ) from error
    return file


def _key(kind: str, text: str) -> bytes:
    data = f"{len(kind)}/{kind}/{text}".encode("utf-8", "surrogatepass")
    return blake2b(data, digest_size=20).digest()


class AskedEncoder:
    """An encoder that keeps the vectors of questions.

    Parameters
    ----------
    encoder : Encoder
    asked : Asked

    Attributes
    ----------
    asking : bool
        Off while traces are taken in: names of entities go to the encoder itself, and what is made
        of them is kept with the traces.
    error : Exception, optional
        What the encoder last raised. An engine may answer without vectors then; a measurement
        must not take that for its answer.
    """

    def __init__(self, encoder: Encoder, asked: Asked) -> None:
        self.fingerprint = encoder.fingerprint
        self.dim = encoder.dim
        self.asking = True
        self.error: Exception | None = None
        self._encoder = encoder
        self._asked = asked

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return unit rows; those of questions that were asked before are as they were then."""
        if not self.asking:
            return self._encoder.encode(texts)
        try:
            return self._kept(texts)
        except Exception as error:
            self.error = error
            raise

    def _kept(self, texts: Sequence[str]) -> NDArray[np.float32]:

        def make(missing: list[str]) -> list[bytes]:
            return [row.tobytes() for row in np.asarray(self._encoder.encode(missing), np.float32)]

        rows = self._asked.get(f"vector|{self.fingerprint}", texts, make)
        if any(len(row) != 4 * self.dim for row in rows):
            raise CorruptStoreError(
                f"a kept question vector has not {self.dim} numbers: remove the file with the "
                "ending .asked beside the store, which only saves time"
            )
        return np.frombuffer(b"".join(rows), np.float32).reshape(len(texts), self.dim)

    def encode_spans(self, texts: Sequence[str], spans: Sequence[NDArray[np.int32]]) -> SpanVectors:
        """Encode traces, which are kept elsewhere."""
        return self._encoder.encode_spans(texts, spans)


class AskedAnnotator:
    """An annotator that keeps what it found in questions.

    Parameters
    ----------
    annotator : Annotator
    asked : Asked

    Attributes
    ----------
    asking : bool
        Off while traces are taken in.
    """

    def __init__(self, annotator: Annotator, asked: Asked) -> None:
        self.fingerprint = annotator.fingerprint
        self.asking = True
        self._annotator = annotator
        self._asked = asked

    def annotate(self, texts: Sequence[str]) -> list[Annotation]:
        """Annotate each text."""
        if not self.asking:
            return self._annotator.annotate(texts)

        def make(missing: list[str]) -> list[bytes]:
            return [_packed(found) for found in self._annotator.annotate(missing)]

        kept = self._asked.get(f"names|{self.fingerprint}", texts, make)
        return [_unpacked(data) for data in kept]


def _packed(found: Annotation) -> bytes:
    return json.dumps([found.sentences.tolist(), found.mentions]).encode()


def _unpacked(data: bytes) -> Annotation:
    sentences, mentions = json.loads(data)
    return Annotation(
        np.array(sentences, np.int32).reshape(-1, 2),
        [(start, end, label) for start, end, label in mentions],
    )
