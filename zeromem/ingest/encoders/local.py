"""Encoders whose weights run in this process, by PyTorch."""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from zeromem.errors import EncoderError, InvalidInputError, ModelNotFoundError
from zeromem.forks import FairLock
from zeromem.ingest.ahead import busy_cores
from zeromem.ingest.encoders.base import (
    Float32,
    Int32,
    SpanVectors,
    check_spans,
    check_vectors,
    spans_apart,
    unit,
)
from zeromem.ingest.encoders.bert import Bert, Splitter, is_plain_bert
from zeromem.ingest.encoders.find import ModelFolder
from zeromem.text import sanitize

# What torch prepares for a batch of one shape it keeps, a thousand times and half a megabyte each,
# and no two batches of texts are alike. 256 are all shapes of questions. It reads these when it is
# imported, or multiplies for the first time.
for _name, _most in (("ONEDNN_PRIMITIVE_CACHE_CAPACITY", 256), ("LRU_CACHE_CAPACITY", 64)):
    os.environ.setdefault(_name, str(_most))
# Padded tokens of one forward pass. On the CPU larger batches only fall out of its caches; on a
# device the figure fills a 24 GB card's multiprocessors and leaves most of its memory free.
_BATCH_TOKENS = {"cpu": 4096, "cuda": 65_536}
# Texts tokenised at a time: bounds the memory that a long list's offsets take.
_SLAB = 2048
_ONE_THREAD_TOKENS = 512


@dataclass(slots=True, eq=False)
class _Chunk:
    """At most the model's limit of one text's tokens, special tokens included."""

    text: int
    ids: list[int]
    offsets: NDArray[np.int64]  # (n_tokens, 2) characters; special tokens have (0, 0)


class Splits(Protocol):
    """What turns texts into tokens."""

    @property
    def pad(self) -> int:
        """The token that fills a batch up."""

    def split(self, texts: list[str]) -> list[tuple[int, list[int], NDArray[np.int64]]]:
        """Return (text, token ids, (n, 2) character ranges) of every piece of every text."""


class _HubSplitter:
    """A transformers tokenizer as one of those."""

    def __init__(self, tokenizer: Any, max_tokens: int) -> None:
        self._tokenizer = tokenizer
        self._max_tokens = max_tokens
        self.pad = int(tokenizer.pad_token_id or 0)

    def split(self, texts: list[str]) -> list[tuple[int, list[int], NDArray[np.int64]]]:
        encoded = self._tokenizer(
            texts,
            truncation=True,
            max_length=self._max_tokens,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            return_attention_mask=False,
            return_token_type_ids=False,
        )
        return [
            (owner, ids, np.asarray(offsets, np.int64).reshape(-1, 2))
            for owner, ids, offsets in zip(
                encoded["overflow_to_sample_mapping"],
                encoded["input_ids"],
                encoded["offset_mapping"],
                strict=True,
            )
        ]


class _Sums:
    """Sums of token states per text and per span, with their counts, over any number of chunks."""

    def __init__(self, n_texts: int, spans: Sequence[Int32], dim: int) -> None:
        self.spans = spans
        self.first = np.concatenate([[0], np.cumsum([len(s) for s in spans])]).astype(np.int64)
        n_spans = int(self.first[-1])
        self.texts = np.zeros((n_texts, dim), np.float32)
        self.weights = np.zeros(n_texts, np.int64)
        self.tokens = np.zeros(n_texts, np.int32)
        self.pieces = np.zeros((n_spans, dim), np.float32)
        self.piece_tokens = np.zeros(n_spans, np.int32)

    def add(self, chunk: _Chunk, states: Float32, ranges: Sequence[tuple[int, int, int]]) -> None:
        """Add one chunk's pooled `states`: its text's row, then a row for each of `ranges`."""
        n = len(chunk.ids)
        self.texts[chunk.text] += states[0]
        self.weights[chunk.text] += n
        self.tokens[chunk.text] += int((chunk.offsets[:, 1] > chunk.offsets[:, 0]).sum())
        for row, (span, first, last) in enumerate(ranges, start=1):
            self.pieces[self.first[chunk.text] + span] += states[row]
            self.piece_tokens[self.first[chunk.text] + span] += last - first

    def result(self) -> SpanVectors:
        texts = np.divide(self.texts, np.maximum(self.weights, 1)[:, None], dtype=np.float32)
        # A span of which the tokenizer keeps nothing is as its text.
        owner = np.repeat(np.arange(len(texts)), np.diff(self.first))
        empty = self.piece_tokens == 0
        self.pieces[empty] = texts[owner[empty]]
        return SpanVectors(texts, unit(self.pieces), self.tokens, self.piece_tokens)


class TorchEncoder(ABC):
    """Tokenising, batching and pooling around a PyTorch model that a subclass loads.

    Texts are tokenised whole and split at the model's limit; chunks are sorted by length and run
    in batches of a token budget; a batch that finds no memory is halved, and so is the budget.

    Parameters
    ----------
    folder : ModelFolder
    device : {"cpu", "cuda", "cuda:N"}
    batch_tokens : int, optional
        Padded tokens per forward pass.
    """

    def __init__(
        self, folder: ModelFolder, *, device: str = "cpu", batch_tokens: int | None = None
    ) -> None:
        kind = device.split(":")[0]
        if kind not in _BATCH_TOKENS:
            raise InvalidInputError(f"device must be 'cpu' or 'cuda', got {device!r}")
        if batch_tokens is not None and batch_tokens < 1:
            raise InvalidInputError(f"batch_tokens must be at least 1, got {batch_tokens!r}")
        self.folder = folder
        self.device = device
        self._budget = batch_tokens or _BATCH_TOKENS[kind]
        self._lock = FairLock()  # a question waits for one batch of whatever is being encoded
        self._loaded: tuple[Splits, Any] | None = None

    @property
    def fingerprint(self) -> str:
        return self.folder.fingerprint

    @property
    def dim(self) -> int:
        return self.folder.dim

    def encode(self, texts: Sequence[str]) -> Float32:
        """Encode questions or names; see :class:`Encoder`."""
        unique = list(dict.fromkeys(texts))
        place = {text: row for row, text in enumerate(unique)}
        vectors = self._pool(unique, [np.empty((0, 2), np.int32)] * len(unique)).text_vectors
        return unit(vectors[np.fromiter((place[t] for t in texts), np.int64, len(texts))])

    def encode_spans(self, texts: Sequence[str], spans: Sequence[Int32]) -> SpanVectors:
        """Encode texts and ranges of them; see :class:`Encoder`.

        A mean-pooled model's spans are means of the text's own token states: one pass encodes
        both. A cls-pooled model's token states are not in its vectors' space, so its spans are
        encoded as texts of their own.
        """
        check_spans(texts, spans)
        if self.folder.pooling == "mean":
            return self._pool(texts, spans)

        def whole(pieces: Sequence[str]) -> tuple[Float32, Int32]:
            found = self._pool(pieces, [np.empty((0, 2), np.int32)] * len(pieces))
            return found.text_vectors, found.n_tokens

        return spans_apart(whole, texts, spans)

    def warm(self) -> None:
        """Load the weights now."""
        with self._lock:
            self._ready()

    @abstractmethod
    def _load(self) -> tuple[Splits, Any]:
        """Return (splitter, model), the model in evaluation mode on the device."""

    @abstractmethod
    def _forward(self, model: Any, ids: Any, mask: Any) -> Any:
        """Return the batch's (b, length, dim) states, or (b, 1, dim) for a cls model."""

    def _pool(self, texts: Sequence[str], spans: Sequence[Int32]) -> SpanVectors:
        sums = _Sums(len(texts), spans, self.dim)
        for start in range(0, len(texts), _SLAB):
            chunks = self._tokenize(texts[start : start + _SLAB], start)
            # Longest first: a batch that does not fit shows at once.
            chunks.sort(key=lambda chunk: -len(chunk.ids))
            while chunks:
                n = max(1, self._budget // len(chunks[0].ids))
                self._run(chunks[:n], sums)
                del chunks[:n]
        return sums.result()

    def _tokenize(self, texts: Sequence[str], first: int) -> list[_Chunk]:
        with self._lock:
            splitter, _ = self._ready()
            found = splitter.split([sanitize(text) for text in texts])
        return [_Chunk(first + owner, ids, offsets) for owner, ids, offsets in found]

    def _run(self, chunks: list[_Chunk], sums: _Sums) -> None:
        """Encode `chunks` in one pass, or in halves where memory does not suffice."""
        pending = [chunks]
        while pending:
            batch = pending.pop()
            ranges = [_token_ranges(chunk, sums.spans[chunk.text]) for chunk in batch]
            states: Float32 | None = None
            try:
                states = self._batch(batch, ranges)
            except EncoderError:
                raise
            except Exception as error:
                if not _is_out_of_memory(error) or len(batch) == 1:
                    raise EncoderError(
                        f"encoder {self.fingerprint} failed on {self.device} for {len(batch)} "
                        f"text(s) of up to {len(batch[0].ids)} tokens: "
                        f"{type(error).__name__}: {error}"
                    ) from error
            if states is None:  # outside the handler, so that its frames hold no memory
                self._release()
                half = len(batch) // 2
                self._budget = max(1, half * len(batch[0].ids))
                pending += [batch[half:], batch[:half]]
                continue
            for chunk, rows, found in zip(batch, states, ranges, strict=True):
                sums.add(chunk, rows, found)

    def _batch(
        self, chunks: list[_Chunk], ranges: list[list[tuple[int, int, int]]]
    ) -> NDArray[np.float32]:
        """Run the model once: (b, 1 + most spans of a chunk, dim) sums of states."""
        import torch

        length = max(len(chunk.ids) for chunk in chunks)
        with self._lock, torch.inference_mode():
            splitter, model = self._ready()
            ids, mask = (torch.from_numpy(a) for a in _padded(chunks, length, splitter.pad))
            with _threads_for(ids.numel(), self.device):
                states = self._forward(model, ids.to(self.device), mask.to(self.device))
            if self.folder.pooling == "cls":
                # Chunks of one text are averaged by their tokens.
                sums = states[:, :1].float() * mask.sum(1).to(self.device)[:, None, None]
            else:
                pool = torch.from_numpy(_membership(chunks, ranges, length)).to(self.device)
                sums = torch.bmm(pool, states.float())
            result = sums.cpu().numpy()
        flat = result.reshape(-1, result.shape[-1])
        shape = (len(flat), self.dim)
        return check_vectors(flat, shape=shape, source=self.fingerprint).reshape(result.shape)

    def _ready(self) -> tuple[Splits, Any]:
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded

    def _release(self) -> None:
        import torch

        if self.device.startswith("cuda"):
            torch.cuda.empty_cache()


class TransformerEncoder(TorchEncoder):
    """A sentence-transformers-style folder: mean or cls pooling.

    A plain BERT runs by :class:`Bert`, any other model through transformers. bfloat16 where the CPU
    multiplies it natively (twice float32's speed, cosine 0.9999 to it), float16 on CUDA, float32
    elsewhere. Prompts in the folder's configuration are not applied.
    """

    def _load(self) -> tuple[Splits, Any]:
        import torch

        folder = self.folder.path
        dtype = torch.float16 if self.device.startswith("cuda") else torch.float32
        if self.device == "cpu" and _cpu_has_bfloat16():
            dtype = torch.bfloat16
        try:
            if is_plain_bert(folder):
                splitter = Splitter(folder, self.folder.max_tokens)
                with _threads_for(0, self.device), torch.no_grad():
                    return splitter, Bert(folder, dtype=dtype, device=self.device)
            with _quiet():
                from transformers import AutoModel, AutoTokenizer

                tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
                model = AutoModel.from_pretrained(folder, dtype=dtype, local_files_only=True)
        except (OSError, ValueError, ImportError, KeyError) as error:
            raise EncoderError(f"cannot load encoder {folder}: {error}") from error
        model = model.eval().to(self.device)
        return _HubSplitter(
            tokenizer, self.folder.max_tokens
        ), lambda ids, mask: model(input_ids=ids, attention_mask=mask).last_hidden_state

    def _forward(self, model: Any, ids: Any, mask: Any) -> Any:
        return model(ids, mask)


@contextlib.contextmanager
def _threads_for(n_tokens: int, device: str) -> Iterator[None]:
    """Run what is as short as a question on one thread, and leave annotating its core.

    OpenMP's threads wait for each other by spinning: for so little work that costs more than it
    brings, and where others use the cores ten times as much.
    """
    import torch

    before = torch.get_num_threads()
    wanted = 1 if n_tokens <= _ONE_THREAD_TOKENS else max(1, before - busy_cores())
    if device != "cpu" or wanted == before:
        yield
        return
    torch.set_num_threads(wanted)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class FlagEncoder(TorchEncoder):
    """BGE-M3's dense vectors through FlagEmbedding, float16 on CUDA and float32 on the CPU.

    The model object is called on batches of ours: its own ``encode`` runs the first batch of every
    call twice to try its size, and counts texts where memory goes by tokens.
    """

    def _load(self) -> tuple[Splits, Any]:
        with _quiet():
            return self._load_flag()

    def _load_flag(self) -> tuple[Splits, Any]:
        try:
            from FlagEmbedding import BGEM3FlagModel
        except ImportError as error:
            raise ModelNotFoundError(
                f"encoder {self.folder.path} is a BGE-M3 model and needs FlagEmbedding "
                f"({error}); run `pip install 'FlagEmbedding==1.4.2' 'transformers>=5.0,<5.24'`"
            ) from error
        flag = BGEM3FlagModel(
            str(self.folder.path),
            use_fp16=self.device.startswith("cuda"),
            devices=[self.device],
            normalize_embeddings=True,
        )
        splitter = _HubSplitter(flag.tokenizer, self.folder.max_tokens)
        return splitter, flag.model.eval().to(self.device)

    def _forward(self, model: Any, ids: Any, mask: Any) -> Any:
        inputs = {"input_ids": ids, "attention_mask": mask}
        found = model(inputs, return_dense=True, return_sparse=False, return_colbert_vecs=False)
        return found["dense_vecs"][:, None]


def _token_ranges(chunk: _Chunk, spans: Int32) -> list[tuple[int, int, int]]:
    """Find (span, first token, last token) for each span that has tokens in `chunk`."""
    if not len(spans):
        return []
    real = np.flatnonzero(chunk.offsets[:, 1] > chunk.offsets[:, 0])
    starts, ends = chunk.offsets[real, 0], chunk.offsets[real, 1]
    first = np.searchsorted(ends, spans[:, 0], side="right")
    last = np.searchsorted(starts, spans[:, 1], side="left")
    return [
        (span, int(real[a]), int(real[z - 1]) + 1)
        for span, (a, z) in enumerate(zip(first.tolist(), last.tolist(), strict=True))
        if z > a
    ]


def _padded(
    chunks: list[_Chunk], length: int, pad: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lay chunks side by side: (b, length) token ids and the mask of those that are no padding."""
    ids = np.full((len(chunks), length), pad, np.int64)
    mask = np.zeros((len(chunks), length), np.int64)
    for row, chunk in enumerate(chunks):
        ids[row, : len(chunk.ids)] = chunk.ids
        mask[row, : len(chunk.ids)] = 1
    return ids, mask


def _membership(
    chunks: list[_Chunk], ranges: list[list[tuple[int, int, int]]], length: int
) -> NDArray[np.float32]:
    """Build the (b, 1 + most spans, length) 0/1 matrix that sums states by one product."""
    pool = np.zeros((len(chunks), 1 + max(map(len, ranges)), length), np.float32)
    for row, (chunk, found) in enumerate(zip(chunks, ranges, strict=True)):
        pool[row, 0, : len(chunk.ids)] = 1
        for k, (_, first, last) in enumerate(found, start=1):
            pool[row, k, first:last] = 1
    return pool


def _is_out_of_memory(error: Exception) -> bool:
    import torch

    words = ("out of memory", "not enough memory", "can't allocate", "cannot allocate")
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(w in str(error).lower() for w in words)
    )


def _cpu_has_bfloat16() -> bool:
    import torch

    probes = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    found = [probe for name in probes if (probe := getattr(torch.cpu, name, None))]
    return any(probe() for probe in found)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence transformers' progress bars and warnings while a model loads."""
    from transformers.utils import logging as untyped

    logging: Any = untyped
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
