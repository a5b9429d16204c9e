"""The choice of a device, and what it costs."""

import logging
import subprocess
import sys

import numpy as np
import pytest
from device_support import with_cupy, with_driver, with_torch, without_driver

from zeromem import backend
from zeromem.device import DeviceBackend, TorchBackend
from zeromem.errors import DeviceError, InvalidInputError


@pytest.fixture(autouse=True)
def _undecided():
    """Forget the process's choice before and after each test."""
    backend._resolved.cache_clear()
    yield
    backend._resolved.cache_clear()


# --- which device --------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["gpu", "", None, "CUDA", 0])
def test_unknown_devices_are_refused(device):
    with pytest.raises(InvalidInputError, match="device must be one of auto, cpu, cuda, got"):
        backend.resolve(device)


def test_auto_without_a_driver_is_the_host(monkeypatch, caplog):
    without_driver(monkeypatch)
    with caplog.at_level(logging.INFO, "zeromem.backend"):
        first, second = backend.resolve("auto"), backend.resolve("auto")
    assert first is second
    assert first.device == "cpu"
    (record,) = caplog.records  # the choice is logged once
    assert "cpu" in record.message
    assert "no CUDA driver" in record.message


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"init": 100}, "cuInit returned 100"), ({"devices": 0}, "sees no device")],
)
def test_cuda_says_why_it_cannot_be_used(monkeypatch, options, reason):
    with_driver(monkeypatch, **options)
    with pytest.raises(DeviceError, match=reason):
        backend.resolve("cuda")
    assert backend.resolve("auto").device == "cpu"


def test_cuda_without_a_driver_raises(monkeypatch):
    without_driver(monkeypatch)
    with pytest.raises(DeviceError, match=r"device='cuda' cannot be used: no CUDA driver"):
        backend.resolve("cuda")


def test_a_driver_without_cupy_names_what_to_install(monkeypatch):
    with_driver(monkeypatch)
    monkeypatch.setitem(sys.modules, "cupy", None)
    with_torch(monkeypatch, "this torch has no CUDA")
    with pytest.raises(DeviceError, match=r"pip install 'zeromem\[gpu\]'"):
        backend.resolve("cuda")
    assert backend.resolve("auto").device == "cpu"


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_without_cupy_torch_walks(monkeypatch, caplog, device):
    with_driver(monkeypatch)
    monkeypatch.setitem(sys.modules, "cupy", None)
    with_torch(monkeypatch)
    with caplog.at_level(logging.INFO, "zeromem.backend"):
        found = backend.resolve(device)
    assert isinstance(found, TorchBackend)
    assert found.device == "cuda"
    assert "in torch" in caplog.text
    assert "CuPy is not" in caplog.text


def test_without_cupy_and_torch_the_host_computes(monkeypatch):
    with_driver(monkeypatch)
    for name in ("cupy", "torch"):
        monkeypatch.setitem(sys.modules, name, None)
    assert backend.resolve("auto").device == "cpu"


def test_a_device_that_cannot_allocate_is_not_used(monkeypatch):
    def no_memory(*_, **__):
        raise MemoryError("out of memory")

    with_driver(monkeypatch)
    with_cupy(monkeypatch, arange=no_memory)
    with pytest.raises(DeviceError, match="out of memory"):
        backend.resolve("cuda")
    assert backend.resolve("auto").device == "cpu"


def test_a_device_that_computes_wrongly_is_not_used(monkeypatch):
    with_driver(monkeypatch)
    with_cupy(monkeypatch, arange=lambda n, dtype: np.zeros(n, dtype))
    with pytest.raises(DeviceError, match="adds up wrongly"):
        backend.resolve("cuda")


def test_a_device_that_works_is_used(monkeypatch, caplog):
    with_driver(monkeypatch)
    with_cupy(monkeypatch)
    with caplog.at_level(logging.INFO, "zeromem.backend"):
        assert backend.resolve("auto").device == "cuda"
    assert "cuda" in caplog.text
    assert isinstance(backend.resolve("cuda"), DeviceBackend)
    assert backend.resolve("cpu").device == "cpu"


@pytest.mark.gpu
def test_the_real_device_resolves():
    assert backend.resolve("auto").device == "cuda"


# --- what importing costs ------------------------------------------------------------------------


def loaded_after(statement):
    code = f"import sys; {statement}; print(*sorted(sys.modules))"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return set(found.stdout.split())


HEAVY = {"torch", "cupy", "numba", "spacy", "transformers", "openai", "llama_cpp", "FlagEmbedding"}


@pytest.mark.parametrize(
    "statement",
    [
        "import zeromem",
        "import zeromem.backend",
        "from zeromem.backend import resolve; resolve('auto')",
        "from zeromem.backend import resolve; resolve('cpu')",
    ],
)
def test_importing_loads_no_model_and_no_compiler(statement):
    assert not loaded_after(statement) & HEAVY


def test_the_first_kernel_loads_the_compiler():
    loaded = loaded_after("from zeromem.backend import warmup; warmup()")
    assert loaded & HEAVY == {"numba"}


def kernels_in(value):
    """Compiled functions, also in tuples and dicts; but not what is a part of its callers."""
    if isinstance(value, dict):
        return [kernel for part in value.values() for kernel in kernels_in(part)]
    if isinstance(value, tuple):
        return [kernel for part in value for kernel in kernels_in(part)]
    if not hasattr(value, "nopython_signatures") or value.targetoptions.get("forceinline"):
        return []
    return [value]


def test_warmup_compiles_every_host_kernel():
    seconds = backend.warmup()
    assert set(seconds) == set(backend.OPERATIONS)
    assert all(value >= 0 for value in seconds.values())
    for operation in backend.OPERATIONS:
        compiled = kernels_in(vars(sys.modules[f"zeromem.kernels.{operation}_cpu"]))
        assert compiled, operation
        assert all(dispatcher.nopython_signatures for dispatcher in compiled), operation


def test_kernels_compile_where_no_folder_can_be_written(monkeypatch):
    caching = pytest.importorskip("numba.core.caching")
    from zeromem.kernels._numba import F32_1, F64, kernel

    def total(values):
        result = 0.0
        for value in values:
            result += value
        return result

    monkeypatch.setattr(caching.CompileResultCacheImpl, "_locator_classes", [])
    assert kernel(F64(F32_1))(total)(np.ones(3, np.float32)) == 3
