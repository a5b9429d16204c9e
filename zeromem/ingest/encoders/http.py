"""An encoder behind an OpenAI-compatible ``/embeddings`` endpoint, by the standard library."""

from __future__ import annotations

import email.utils
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

import numpy as np

from zeromem.errors import EncoderError, InvalidInputError
from zeromem.forks import Lock
from zeromem.ingest.encoders.base import (
    Float32,
    Int32,
    SpanVectors,
    check_spans,
    check_vectors,
    spans_apart,
    unit,
)
from zeromem.text import sanitize, word_spans

_TRANSIENT = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_LONGEST_WAIT = 60.0


class HTTPEncoder:
    """Embeddings from a server.

    Parameters
    ----------
    model : str
        The model's name there.
    base_url : str
        Up to and without ``/embeddings``.
    api_key : str, optional
        Sent as a bearer token; never shown in an error.
    dimensions : int, optional
        Asked of the server where it offers shorter vectors. Without it the first answer says.
    batch_size : int
        Texts per request.
    max_chars : int
        Longer texts are encoded in parts: a server's limit counts tokens that only it knows, and
        a token is a character at the least.
    timeout : float
        Seconds without an answer before a request counts as failed.
    max_retries : int
        Further tries after a timeout, a broken connection or answer, 408, 409, 425, 429 or 5xx,
        with doubling waits; a ``Retry-After`` of up to a minute is obeyed.

    Raises
    ------
    EncoderError
        Where the server refuses, keeps failing, or answers with other than one finite vector of
        one size per text.
    """

    remote = True
    """It is waited for, and takes no core meanwhile."""

    def __init__(
        self,
        model: str,
        *,
        base_url: str = "https://api.openai.com/v1",
        api_key: str | None = None,
        dimensions: int | None = None,
        batch_size: int = 64,
        max_chars: int = 6000,
        timeout: float = 60.0,
        max_retries: int = 5,
        backoff: float = 0.5,
    ) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise InvalidInputError(
                f"base_url must start with http:// or https://, got {base_url!r}"
            )
        for name, value, low in (
            ("dimensions", dimensions, 1),
            ("batch_size", batch_size, 1),
            ("max_chars", max_chars, 1),
            ("max_retries", max_retries, 0),
        ):
            if value is not None and value < low:
                raise InvalidInputError(f"{name} must be at least {low}, got {value!r}")
        if not timeout > 0:
            raise InvalidInputError(f"timeout must be positive, got {timeout!r}")
        self.model = model
        self.url = base_url.rstrip("/") + "/embeddings"
        self._api_key = api_key
        self._dimensions = dimensions
        self._dim = dimensions
        self._batch_size = batch_size
        self._max_chars = max_chars
        self._timeout = timeout
        self._max_retries = max_retries
        self._backoff = backoff
        self._lock = Lock()

    @property
    def fingerprint(self) -> str:
        """The model's name and size; a model served elsewhere is the same model."""
        return f"http-{self.model}-{self._dimensions or 'full'}"

    @property
    def dim(self) -> int:
        """Columns of every vector; asks the server where nothing has said yet."""
        if self._dim is None:
            self._request(["dimension"])
        return self._dim or 0

    def encode(self, texts: Sequence[str]) -> Float32:
        """Encode questions or names; see :class:`~zeromem.ingest.encode.Encoder`."""
        unique = list(dict.fromkeys(texts))
        place = {text: row for row, text in enumerate(unique)}
        vectors, _ = self._encode(unique)
        return unit(vectors[np.fromiter((place[t] for t in texts), np.int64, len(texts))])

    def encode_spans(self, texts: Sequence[str], spans: Sequence[Int32]) -> SpanVectors:
        """Encode texts and ranges of them, each as a text of its own; tokens are words."""
        check_spans(texts, spans)
        return spans_apart(self._encode, texts, spans)

    def _encode(self, texts: Sequence[str]) -> tuple[Float32, Int32]:
        parts: list[str] = []
        owner: list[int] = []
        for i, text in enumerate(texts):
            for part in _split(text, self._max_chars):
                # Servers refuse empty strings.
                parts.append(sanitize(part) if part.strip() else ".")
                owner.append(i)
        rows = [
            self._request(parts[start : start + self._batch_size])
            for start in range(0, len(parts), self._batch_size)
        ]
        sums: Float32 = np.zeros((len(texts), self.dim), np.float32)
        if not parts:
            return sums, np.zeros(0, np.int32)
        words = np.asarray([max(1, len(word_spans(part))) for part in parts], np.int32)
        np.add.at(sums, owner, np.concatenate(rows) * words[:, None].astype(np.float32))
        counts = np.zeros(len(texts), np.int32)
        np.add.at(counts, owner, words)
        return np.divide(sums, counts[:, None], dtype=np.float32), counts

    def _request(self, texts: Sequence[str]) -> Float32:
        body: dict[str, Any] = {
            "model": self.model,
            "input": list(texts),
            "encoding_format": "float",
        }
        if self._dimensions:
            body["dimensions"] = self._dimensions
        data = json.dumps(body).encode()
        for attempt in range(self._max_retries + 1):
            try:
                answer = self._post(data)
            except _RetryError as failure:
                if attempt == self._max_retries:
                    told = f"{self.url} failed {attempt + 1} times, last with {failure}"
                    raise _noted(EncoderError(told), failure.said) from failure
                time.sleep(failure.wait or min(self._backoff * 2**attempt, _LONGEST_WAIT))
            else:
                return self._vectors(answer, len(texts))
        raise AssertionError("unreachable")

    def _post(self, data: bytes) -> Any:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._api_key:
            headers["Authorization"] = f"Bearer {self._api_key}"
        request = urllib.request.Request(self.url, data, headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as response:
                return json.loads(response.read())
        except urllib.error.HTTPError as error:
            said = error.read(2000).decode("utf-8", "replace").strip()
            if error.code in _TRANSIENT:
                wait = _retry_after(error.headers.get("Retry-After"))
                raise _RetryError(f"status {error.code}", wait, said) from error
            raise _noted(EncoderError(f"{self.url} answered status {error.code}"), said) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            # Refused, reset, timed out, cut short, or not JSON.
            raise _RetryError(f"{type(error).__name__}: {error}") from error

    def _vectors(self, answer: Any, n: int) -> Float32:
        try:
            items = sorted(answer["data"], key=lambda item: item["index"])
            places = [item["index"] for item in items]
            rows = [item["embedding"] for item in items]
        except (KeyError, TypeError) as error:
            wrong = EncoderError(f"{self.url} answered no embeddings object")
            raise _noted(wrong, str(answer)) from error
        if places != list(range(n)):
            raise EncoderError(f"{self.url} answered indices {places[:20]} for {n} texts")
        with self._lock:
            if self._dim is None:
                self._dim = len(rows[0])
        if any(len(row) != self._dim for row in rows):
            found = sorted({len(row) for row in rows})
            raise EncoderError(
                f"{self.url} answered vectors of {found} numbers, expected {self._dim}; another "
                "model seems to be served"
            )
        return check_vectors(rows, shape=(n, self._dim), source=self.url)


class _RetryError(Exception):
    """A failure that may pass; `wait` is what the server asked for, in seconds."""

    def __init__(self, message: str, wait: float | None = None, said: str = "") -> None:
        super().__init__(message)
        self.wait = wait
        self.said = said


def _noted(error: EncoderError, said: str) -> EncoderError:
    """Note what a server said apart from the message, which is logged: it may quote the texts."""
    if said:
        error.add_note(f"it said: {said[:500]}")
    return error


def _retry_after(header: str | None) -> float | None:
    """Read seconds or an HTTP date; None where absent, unreadable or past."""
    if not header:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(header).timestamp() - time.time()
        except ValueError:
            return None
    return min(seconds, _LONGEST_WAIT) if seconds > 0 else None


def _split(text: str, limit: int) -> list[str]:
    """Cut a text into parts of at most `limit` characters, at whitespace where there is some."""
    parts: list[str] = []
    start = 0
    while len(text) - start > limit:
        end = text.rfind(" ", start + limit // 2, start + limit) + 1 or start + limit
        parts.append(text[start:end])
        start = end
    return [*parts, text[start:]]
