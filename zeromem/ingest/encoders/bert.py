"""BERT's forward pass over a folder's own weights: what MiniLM and its like need, and no more.

Importing ``transformers`` takes longer than all that a question needs beside it, and its linear
layers lay their weights out anew in every call. The arithmetic is the same, operation by operation:
states are equal to the bit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

# What `tokenizer.json` alone decides for; another class may change what it says.
_TOKENIZERS = frozenset(
    {"BertTokenizer", "BertTokenizerFast", "PreTrainedTokenizerFast", "TokenizersBackend"}
)
_CONFIG = {
    "model_type": ("bert",),
    "hidden_act": ("gelu",),
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "add_cross_attention": (False, None),
}

# torch's tensors and modules, imported only where a model loads.
Tensor = Any


def is_plain_bert(folder: Path) -> bool:
    """Whether a folder holds a BERT that :class:`Bert` and :class:`Splitter` read as it is meant.

    Parameters
    ----------
    folder : Path
    """
    names = ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json")
    if not all((folder / name).is_file() for name in names):
        return False
    config, tokenizer, asked = (_read(folder / name) for name in names[1:])
    normalizer = tokenizer.get("normalizer") or {}
    return (
        all(config.get(key) in values for key, values in _CONFIG.items())
        and asked.get("tokenizer_class") in _TOKENIZERS
        and (tokenizer.get("model") or {}).get("type") == "WordPiece"
        and normalizer.get("type") == "BertNormalizer"
        # Some classes build the normalizer from their own configuration: both must say the same.
        and asked.get("do_lower_case", normalizer.get("lowercase")) == normalizer.get("lowercase")
        and asked.get("strip_accents") in (None, normalizer.get("strip_accents"))
    )


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


class Splitter:
    """A folder's ``tokenizer.json``: texts to the tokens that the model reads.

    Parameters
    ----------
    folder : Path
    max_tokens : int
        Of one piece, special tokens included.
    """

    def __init__(self, folder: Path, max_tokens: int) -> None:
        from tokenizers import Tokenizer

        try:
            self._rust = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # it raises no kind of its own
            raise ValueError(f"tokenizer.json: {error}") from error
        self._rust.no_padding()
        self._rust.enable_truncation(max_tokens)
        self.pad = int(_read(folder / "config.json").get("pad_token_id") or 0)

    def split(self, texts: list[str]) -> list[tuple[int, list[int], Any]]:
        """Return (text, token ids, (n, 2) character ranges) of every piece of every text."""
        # A batch starts the tokenizer's threads; one text is done before they wake.
        one = self._rust.encode
        found = [one(texts[0])] if len(texts) == 1 else self._rust.encode_batch(texts)
        return [
            (owner, piece.ids, np.asarray(piece.offsets, np.int64).reshape(-1, 2))
            for owner, whole in enumerate(found)
            for piece in (whole, *whole.overflowing)
        ]


@dataclass(slots=True, eq=False)
class _Linear:
    """A linear layer; its weight is laid out for the processor once where torch can."""

    weight: Tensor
    bias: Tensor
    packed: bool

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor) -> _Linear:
        import torch

        if not _packs(weight.device.type, weight.dtype, tuple(weight.shape)):
            return cls(weight, bias, False)
        return cls(torch.ops.mkldnn._reorder_linear_weight(weight), bias, True)

    def __call__(self, x: Tensor) -> Tensor:
        import torch

        if self.packed:
            return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return torch.nn.functional.linear(x, self.weight, self.bias)


@cache
def _packs(device: str, dtype: Any, shape: tuple[int, int]) -> bool:
    """Whether this torch lays a weight out for oneDNN, and then computes the same bits."""
    import torch

    if device != "cpu" or dtype != torch.bfloat16:
        return False
    rows = torch.linspace(-1, 1, 3 * shape[1], dtype=dtype).reshape(3, -1)
    weight = torch.linspace(-0.1, 0.2, shape[0] * shape[1], dtype=dtype).reshape(shape)
    bias = torch.linspace(-0.3, 0.3, shape[0], dtype=dtype)
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight)
        found = torch.ops.mkldnn._linear_pointwise(rows, packed, bias, "none", [], "")
    except (AttributeError, RuntimeError):  # no public names: another torch may lack them
        return False
    return torch.equal(found, torch.nn.functional.linear(rows, weight, bias))


@dataclass(slots=True, eq=False)
class _Norm:
    weight: Tensor
    bias: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        import torch

        return torch.nn.functional.layer_norm(x, self.bias.shape, self.weight, self.bias, self.eps)


class _Layer:
    """Self-attention and the feed-forward block, each with its residual and norm."""

    def __init__(
        self, weights: Mapping[str, Tensor], prefix: str, n_heads: int, eps: float
    ) -> None:
        def linear(name: str) -> _Linear:
            name = f"{prefix}.{name}"
            return _Linear.of(weights[f"{name}.weight"], weights[f"{name}.bias"])

        self.query, self.key, self.value = (
            linear(f"attention.self.{name}") for name in ("query", "key", "value")
        )
        self.attended, self.wide, self.narrow = (
            linear(f"{name}.dense") for name in ("attention.output", "intermediate", "output")
        )
        self.norms = [
            _norm(weights, f"{prefix}.{name}.LayerNorm", eps)
            for name in ("attention.output", "output")
        ]
        self.n_heads = n_heads

    def __call__(self, x: Tensor, mask: Tensor | None) -> Tensor:
        import torch

        b, length, dim = x.shape
        query, key, value = (
            part(x).view(b, length, self.n_heads, -1).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        heads = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = self.norms[0](self.attended(heads.transpose(1, 2).reshape(b, length, dim)) + x)
        return self.norms[1](self.narrow(torch.nn.functional.gelu(self.wide(x))) + x)


def _norm(weights: Mapping[str, Tensor], name: str, eps: float) -> _Norm:
    return _Norm(weights[f"{name}.weight"], weights[f"{name}.bias"], eps)


class Bert:
    """The model of a folder for which :func:`is_plain_bert` holds.

    Parameters
    ----------
    folder : Path
    dtype : torch.dtype
    device : str

    Raises
    ------
    KeyError
        A weight is missing.
    OSError, ValueError
        The files cannot be read.
    """

    def __init__(self, folder: Path, *, dtype: Any, device: str) -> None:
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        config = _read(folder / "config.json")
        eps = float(config.get("layer_norm_eps", 1e-12))
        try:
            stored = load_file(folder / "model.safetensors")
        except SafetensorError as error:
            raise ValueError(f"model.safetensors: {error}") from error
        weights = {name.removeprefix("bert."): tensor for name, tensor in stored.items()}
        # Most of the file, of which a question needs a few rows: they stay where they are, mapped,
        # and are rounded when they are taken.
        self.words = weights.pop("embeddings.word_embeddings.weight").to(device)
        weights = {n: t.to(device, dtype) for n, t in weights.items() if t.is_floating_point()}
        self.dtype = dtype
        self.kind = weights["embeddings.token_type_embeddings.weight"][0]
        self.positions = weights["embeddings.position_embeddings.weight"]
        self.norm = _norm(weights, "embeddings.LayerNorm", eps)
        self.layers = [
            _Layer(weights, f"encoder.layer.{i}", int(config["num_attention_heads"]), eps)
            for i in range(int(config["num_hidden_layers"]))
        ]

    def __call__(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return the (b, length, dim) states of token ids under a (b, length) mask of 0 and 1."""
        # In this order: each sum is rounded.
        x = self.words[ids].to(self.dtype) + self.kind
        x = self.norm(x + self.positions[: ids.shape[1]])
        # Without padding there is nothing to mask, and attention is faster.
        seen = None if bool(mask.all()) else mask.bool()[:, None, None, :]
        for layer in self.layers:
            x = layer(x, seen)
        return x
