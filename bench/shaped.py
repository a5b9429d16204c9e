"""An encoder of BGE-M3's shape with random weights: for speed alone, what it finds means nothing.

XLM-RoBERTa large: 24 layers of 1,024 columns. It reads tokens that are words by hash, so that it
needs neither weights nor a vocabulary from anywhere.
"""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.ingest.encode import SpanVectors

Array = NDArray[Any]
BGE_M3: Mapping[str, int] = {
    "vocab_size": 250_002, "hidden_size": 1024, "num_hidden_layers": 24,
    "num_attention_heads": 16, "intermediate_size": 4096, "max_position_embeddings": 8194,
}  # fmt: skip
TINY: Mapping[str, int] = {
    "vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "intermediate_size": 128, "max_position_embeddings": 514,
}  # fmt: skip
_BATCH_TOKENS = 32_768
_LONGEST = 510
_FIRST_WORD = 10  # ids below are special
_WORD = re.compile(r"\w+|[^\w\s]")


class ShapedEncoder:
    """Implements zeromem's encoder protocol.

    Parameters
    ----------
    device : {"cpu", "cuda"}
    shape : mapping
        Of the configuration: ``BGE_M3`` or ``TINY``.

    Attributes
    ----------
    label : str
        What results call it.
    seconds : float
        Spent in it so far, the device's work included.
    """

    def __init__(self, device: str, shape: Mapping[str, int]) -> None:
        import torch
        from transformers import XLMRobertaConfig, XLMRobertaModel

        self._torch = torch
        if device == "cpu":
            torch.set_num_threads(1)  # a rehearsal: two cores that wait for one another take longer
        self._device = torch.device(device)
        self.dim = shape["hidden_size"]
        self._vocabulary = shape["vocab_size"]
        layers = shape["num_hidden_layers"]
        self.label = f"random weights, {layers} layers, {self.dim} columns, for speed alone"
        self.fingerprint = f"random-xlm-roberta-{layers}x{self.dim}"
        self.seconds = 0.0
        torch.manual_seed(0)
        config = XLMRobertaConfig(**shape, type_vocab_size=1)
        with torch.device(self._device):
            model = XLMRobertaModel(config, add_pooling_layer=False)
        self._half = device != "cpu"
        self._model = (model.half() if self._half else model).eval()

    def encode(self, texts: Sequence[str]) -> Array:
        """Return (n, dim) float32 unit rows."""
        spans = [np.zeros((0, 2), np.int32)] * len(texts)
        return _unit(self.encode_spans(texts, spans).text_vectors)

    def encode_spans(self, texts: Sequence[str], spans: Sequence[Array]) -> SpanVectors:
        """Encode texts once each, and their spans as means of their tokens' states."""
        start = time.perf_counter()
        tokens, ranges = zip(*map(self._tokens, texts), strict=True) if texts else ((), ())
        lengths = np.array([len(t) for t in tokens], np.int64)
        where = [
            np.searchsorted(r[:, 0], s) if len(s) else np.zeros((0, 2), np.int64)
            for r, s in zip(ranges, spans, strict=True)
        ]
        whole = np.zeros((len(texts), self.dim), np.float32)
        parts = [np.zeros((len(s), self.dim), np.float32) for s in spans]
        for batch in self._batches(lengths):
            states = self._states([tokens[i] for i in batch])
            for row, i in enumerate(batch):
                cumulated = states[row]
                whole[i] = _means(cumulated, np.array([[0, lengths[i]]]))[0]
                parts[i] = _means(cumulated, where[i])
        self.seconds += time.perf_counter() - start
        n_tokens = lengths.astype(np.int32)
        counts = [np.maximum(w[:, 1] - w[:, 0], 1) for w in where]
        return SpanVectors(
            0.9 * _unit(whole),
            _unit(np.concatenate(parts)) if parts else np.zeros((0, self.dim), np.float32),
            n_tokens,
            np.concatenate(counts).astype(np.int32) if counts else np.zeros(0, np.int32),
        )

    def run_lengths(self, lengths: Array) -> None:
        """Encode random tokens of these lengths and wait until the device is done."""
        torch = self._torch
        for batch in self._batches(np.minimum(lengths, _LONGEST)):
            n = int(lengths[batch].clip(max=_LONGEST).max()) + 2
            ids = torch.randint(_FIRST_WORD, self._vocabulary, (len(batch), n), device=self._device)
            size = torch.as_tensor(lengths[batch].clip(max=_LONGEST) + 2, device=self._device)
            mask = torch.arange(n, device=self._device)[None] < size[:, None]
            with torch.inference_mode():
                self._model(input_ids=ids, attention_mask=mask)
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def _tokens(self, text: str) -> tuple[Array, Array]:
        """Ids of a text's words, and their character ranges."""
        found = [(m.group(), m.start(), m.end()) for m in _WORD.finditer(text)][:_LONGEST]
        room = self._vocabulary - _FIRST_WORD
        ids = [_FIRST_WORD + zlib.crc32(word.encode()) % room for word, _, _ in found]
        ranges = np.array([(a, z) for _, a, z in found], np.int64).reshape(-1, 2)
        return np.array(ids, np.int64), ranges

    def _batches(self, lengths: Array) -> list[Array]:
        """Group texts of like length so that a group, padded, holds a bounded number of tokens."""
        order = np.argsort(-lengths, kind="stable")
        groups, first = [], 0
        while first < len(order):
            n = max(1, _BATCH_TOKENS // (int(lengths[order[first]]) + 2))
            groups.append(order[first : first + n])
            first += n
        return groups

    def _states(self, tokens: Sequence[Array]) -> list[Array]:
        """Sums of token states from each text's start: (length + 1, dim) float32 each."""
        torch = self._torch
        n = max(map(len, tokens)) + 2
        ids = np.ones((len(tokens), n), np.int64)
        for row, found in zip(ids, tokens, strict=True):
            row[0], row[1 : len(found) + 1], row[len(found) + 1] = 0, found, 2
        given = torch.as_tensor(ids, device=self._device)
        with torch.inference_mode():
            states = self._model(input_ids=given, attention_mask=given != 1).last_hidden_state
            sums = torch.nn.functional.pad(states[:, 1:-1].float().cumsum(1), (0, 0, 1, 0))
            host = sums.cpu().numpy()
        return [host[i, : len(found) + 1] for i, found in enumerate(tokens)]


def _means(cumulated: Array, ranges: Array) -> Array:
    width = np.maximum(ranges[:, 1] - ranges[:, 0], 1)[:, None]
    means: Array = (cumulated[ranges[:, 1]] - cumulated[ranges[:, 0]]) / width
    return means.astype(np.float32)


def _unit(rows: Array) -> Array:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(norms, 1e-12), np.float32)
