"""The readers that ship, by name. Each loads what it needs when it is made or first asked."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from zeromem.answer.reader import Draft, Reader

if TYPE_CHECKING:
    from zeromem.answer.extractive import ExtractiveReader
    from zeromem.answer.language import NLP
    from zeromem.answer.llama_reader import LlamaCppReader
    from zeromem.answer.openai_reader import OpenAIReader
    from zeromem.answer.similarity import Encode, Sense
    from zeromem.ingest.encoders.base import Encoder

__all__ = ["Draft", "Reader", "extractive", "llama_cpp", "openai"]


def openai(
    model: str,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    stream: bool = False,
    timeout: float = 60.0,
    max_retries: int = 3,
    backoff: float = 0.5,
    temperature: float = 0.0,
    max_tokens: int = 512,
    seed: int | None = None,
    logprobs: bool = False,
    before: Callable[[Sequence[dict[str, str]]], object] | None = None,
) -> OpenAIReader:
    """Read with a chat model behind an OpenAI-compatible endpoint.

    See :class:`zeromem.answer.openai_reader.OpenAIReader`.
    """
    from zeromem.answer.openai_reader import OpenAIReader

    return OpenAIReader(
        model, base_url=base_url, api_key=api_key, stream=stream, timeout=timeout,
        max_retries=max_retries, backoff=backoff, temperature=temperature, max_tokens=max_tokens,
        seed=seed, logprobs=logprobs, before=before,
    )  # fmt: skip


def llama_cpp(
    path: str | os.PathLike[str] | None = None, *, n_ctx: int = 4096, max_tokens: int = 96
) -> LlamaCppReader:
    """Read with a local GGUF model.

    See :class:`zeromem.answer.llama_reader.LlamaCppReader`.
    """
    from zeromem.answer.llama_reader import LlamaCppReader

    return LlamaCppReader(path, n_ctx=n_ctx, max_tokens=max_tokens)


def extractive(
    nlp: NLP | None = None, *, encode: Encode | Encoder | Sense | None = None
) -> ExtractiveReader:
    """Read without a language model: quote the evidence, deterministically.

    See :class:`zeromem.answer.extractive.ExtractiveReader`.
    """
    from zeromem.answer.extractive import ExtractiveReader

    return ExtractiveReader(nlp, encode=encode)
