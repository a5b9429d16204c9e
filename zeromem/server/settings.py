"""What a server is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass, fields

from zeromem.errors import InvalidInputError

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Limits and choices of a server.

    Attributes
    ----------
    auth : bool
        Whether requests need an API key. Without, whoever reaches the port may read and write
        everything.
    hosts : tuple of str, optional
        Names that requests may give in their Host header; None for any. A server without keys
        answers to its own names alone, or a web page could reach it by a name that it made point
        here.
    batching : bool
        Whether questions that are asked at about the same time are answered as one batch.
    batch_window : float
        Seconds without a further question after which a batch begins; who asks alone waits for
        nobody.
    max_batch : int
        Questions of one batch.
    max_waiting : int
        Questions that may wait; further ones are refused with 429.
    timeout : float
        Seconds that a request may take, imports, exports and streamed bodies aside.
    read_timeout : float
        Seconds that a client may be silent in the middle of a request's body, or read nothing of
        a streamed reply.
    shutdown_timeout : float
        Seconds that requests in progress have when the server stops.
    max_body : int
        Bytes of a request's body, streamed ones aside.
    max_upload : int
        Bytes of a streamed body: an import, or JSON Lines.
    max_traces, max_questions, max_k : int
        Of one request.
    max_text : int
        Characters of a question.
    rate : float, optional
        Requests a second of one key, where the key itself does not say; None for no limit.
    burst : float
        Seconds for which a key may save up its rate.
    metrics : bool
        Whether ``/metrics`` is there.
    """

    auth: bool = True
    hosts: tuple[str, ...] | None = None
    batching: bool = True
    batch_window: float = 0.0015
    max_batch: int = 64
    max_waiting: int = 1024
    timeout: float = 30.0
    read_timeout: float = 20.0
    shutdown_timeout: float = 30.0
    max_body: int = 16 << 20
    max_upload: int = 1 << 30
    max_traces: int = 1000
    max_questions: int = 256
    max_k: int = 1000
    max_text: int = 32_768
    rate: float | None = None
    burst: float = 2.0
    metrics: bool = True

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("auth", "batching", "metrics", "hosts") or value is None:
                continue
            least = 0 if field.name == "batch_window" else 1e-9
            if isinstance(value, bool) or not isinstance(value, int | float) or value < least:
                raise InvalidInputError(f"{field.name} must be a number above 0, got {value!r}")
