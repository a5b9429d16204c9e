"""What a server is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from urllib.parse import urlsplit

from zeromem.errors import InvalidInputError

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSettings:
    """The server of language models that chats are passed on to.

    Attributes
    ----------
    url : str
        Of any server that speaks OpenAI's protocol, mostly ending in "/v1".
    api_key : str, optional
        The operator's; never told to a client nor logged.
    model : str, optional
        The one model that chats may ask for, and the one of those that name none; without it a
        chat names its own.
    reader_model : str, optional
        Answers the questions of ``/v1/answer``; without it the extractive reader does.
    connect_timeout : float
        Seconds to make a connection.
    gap_timeout : float
        Seconds for which a stream may stand still, before its first part too.
    timeout : float
        Seconds that a whole reply may take, retries included.
    max_retries : int
        Further tries before anything of a reply has come: where no connection was made or it broke,
        and where the reply is 429 or 5xx and says when to come again.
    max_requests : int
        Requests at once, of all tenants; one that has more than its share is refused first.
    max_reply : int
        Bytes of a reply that comes as a whole, or of one part of a stream.
    """

    url: str
    api_key: str | None = field(default=None, repr=False)
    model: str | None = None
    reader_model: str | None = None
    connect_timeout: float = 10.0
    gap_timeout: float = 120.0
    timeout: float = 600.0
    max_retries: int = 2
    max_requests: int = 256
    max_reply: int = 32 << 20

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname)
            usable = usable and (parts.port or 1) > 0 and not (parts.query or parts.fragment)
        except (ValueError, AttributeError, TypeError):
            usable = False
        if not usable or "@" in parts.netloc:
            raise InvalidInputError(
                f"upstream must be a URL such as 'http://localhost:8000/v1', got "
                f"{_without_password(self.url)!r}; the key goes into ZEROMEM_UPSTREAM_API_KEY"
            )
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.isprintable()):
            raise InvalidInputError(
                "the upstream's API key must be printable ASCII, and the one given is not; check "
                "ZEROMEM_UPSTREAM_API_KEY for line ends and quotes"
            )
        for name in ("model", "reader_model"):
            if getattr(self, name) == "":
                raise InvalidInputError(f"{name} must name a model, got ''; leave it out for none")
        _check_numbers(self, {"max_retries": 0})


def _without_password(url: object) -> str:
    return str(url).rpartition("@")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Limits and choices of a server.

    Attributes
    ----------
    auth : bool
        Whether requests need an API key. Without, whoever reaches the port may read and write
        everything.
    scope : str
        Whose memory is meant where a request does not say.
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
        Seconds that a client may be silent in the middle of a request's body, or take nothing of
        a streamed reply.
    shutdown_timeout : float
        Seconds that requests in progress have when the server stops.
    max_body : int
        Bytes of a request's body, streamed ones aside.
    max_upload : int
        Bytes of a streamed body: an import, or JSON Lines.
    max_traces, max_questions, max_k : int
        Of one request.
    max_metadata : int
        Bytes of a trace's metadata, as JSON.
    max_text : int
        Characters of a question.
    rate : float, optional
        Requests a second of one key, where the key itself does not say; None for no limit.
    burst : float
        Seconds for which a key may save up its rate.
    metrics : bool
        Whether ``/metrics`` is there.
    upstream : UpstreamSettings, optional
        Language models, for ``/v1/chat/completions``.
    """

    auth: bool = True
    scope: str = "default"
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
    max_metadata: int = 65_536
    max_text: int = 32_768
    rate: float | None = None
    burst: float = 2.0
    metrics: bool = True
    upstream: UpstreamSettings | None = None

    def __post_init__(self) -> None:
        _check_numbers(self, {"batch_window": 0})


def _check_numbers(settings: Settings | UpstreamSettings, least: dict[str, int]) -> None:
    for one in fields(settings):
        value = getattr(settings, one.name)
        if not str(one.type).startswith(("int", "float")) or value is None:
            continue
        low = least.get(one.name, 1e-9)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= low:
            bound = "of at least 0" if one.name in least else "above 0"
            raise InvalidInputError(f"{one.name} must be a number {bound}, got {value!r}")
