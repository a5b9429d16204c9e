"""The choice of a device, and that a device's path gives what the host's gives."""

import ctypes
import gc
import inspect
import logging
import subprocess
import sys
import types

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from zeromem import backend
from zeromem.backend import Backend, DeviceBackend
from zeromem.errors import DeviceError, InvalidInputError


@pytest.fixture(autouse=True)
def _undecided():
    """Forget the process's choice before and after each test."""
    backend._resolved.cache_clear()
    yield
    backend._resolved.cache_clear()


class FakeDriver:
    """Stands for libcuda with a given answer of cuInit and a number of devices."""

    def __init__(self, init=0, devices=1):
        self.init, self.devices = init, devices

    def cuInit(self, flags):
        return self.init

    def cuDeviceGetCount(self, count):
        count._obj.value = self.devices
        return 0


def with_driver(monkeypatch, **options):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeDriver(**options))


def without_driver(monkeypatch):
    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)


def with_cupy(monkeypatch, arange=np.arange):
    """Put a module that looks like CuPy and computes with NumPy in CuPy's place."""
    sparse = types.ModuleType("cupyx.scipy.sparse")
    scipy = types.ModuleType("cupyx.scipy")
    scipy.sparse = sparse
    cupyx = types.ModuleType("cupyx")
    cupyx.scipy = scipy
    cupy = types.ModuleType("cupy")
    cupy.__version__, cupy.int32, cupy.arange = "0", np.int32, arange
    cupy.asarray, cupy.asnumpy = np.array, np.asarray
    for module in (cupy, cupyx, scipy, sparse):
        monkeypatch.setitem(sys.modules, module.__name__, module)


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
    with pytest.raises(DeviceError, match=r"pip install 'zeromem\[gpu\]'"):
        backend.resolve("cuda")
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


# --- the same results ----------------------------------------------------------------------------


def on_numpy():
    """Return a device's backend whose device is NumPy, and the arrays that went there."""
    moved = []

    def to_device(array):
        moved.append(array)
        return np.array(array)

    return DeviceBackend(to_device, np.asarray), moved


def calls(rng):
    """Name a method and arguments for every kernel."""
    vectors = rng.normal(size=(9, 4)).astype(np.float32)
    eye = (np.arange(10), np.arange(9, dtype=np.int32))
    ones = np.ones(9, np.float32)
    reset = np.full((9, 2), 1 / 9, np.float32)
    seeds = rng.random((9, 2), "f4")
    view = (np.array([0, 2]), np.array([3, 1], np.int32), np.array([1, 2], np.float32))
    query = (np.array([0, 2]), np.array([1, 5], np.int32), np.ones(2, np.float32))
    return {
        "dense_scores": (vectors, vectors[:2]),
        "bm25_scores": (*eye, ones, ones, ones, *query, 1.5, 0.75, 1.0),
        "propagate": (*eye, *eye, seeds, seeds, 2, 0.1, 1),
        "ppr": (*eye, ones, np.zeros(9, bool), reset, 0.6, 9),
        "topk": (vectors, None, 2),
        "fuse": (*view, *view, np.array([0.6], np.float32)),
        "combine": (vectors[:4].reshape(2, 1, 8), ones[:2], np.ones((1, 8), bool)),
        "span_max": (vectors, np.array([0, 2]), np.array([2, 4])),
        "pool": (vectors, ones, np.array([[0, 4], [3, 9]], np.int32)),
    }


def as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


def test_every_method_agrees_on_both_backends(rng):
    device, moved = on_numpy()
    methods = {
        name
        for name, member in inspect.getmembers(Backend, inspect.isfunction)
        if not name.startswith("_") and name != "put"
    }
    assert methods == set(calls(rng))
    assert len(methods) == len(backend.OPERATIONS)
    for name, arguments in calls(rng).items():
        expected = as_tuple(getattr(Backend(), name)(*arguments))
        before = len(moved)
        found = as_tuple(getattr(device, name)(*arguments))
        on_host = name in ("fuse", "combine", "span_max")
        assert (len(moved) > before) != on_host, name
        for a, b in zip(found, expected, strict=True):
            assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=name)


def test_both_backends_take_the_same_arguments():
    for name in calls(np.random.default_rng(0)):
        host, device = getattr(Backend, name), getattr(DeviceBackend, name)
        assert inspect.signature(host) == inspect.signature(device), name


def test_put_freezes_and_moves_once(rng):
    device, moved = on_numpy()
    vectors = rng.normal(size=(5, 3)).astype(np.float32)
    query = vectors[:1].copy()
    held = device.put(vectors)
    assert device.put(vectors) is held
    assert not vectors.flags.writeable
    for argument in (vectors, held):
        assert_array_equal(
            device.dense_scores(argument, query), device.dense_scores(vectors, query)
        )
    assert sum(array is vectors for array in moved) == 1
    assert Backend().put(vectors) is vectors


def test_put_lets_go_with_the_array(rng):
    device, moved = on_numpy()
    vectors = rng.normal(size=(5, 3)).astype(np.float32)
    device.put(vectors)
    moved.clear()
    assert len(device._held) == 1
    del vectors
    gc.collect()
    assert not device._held


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


def test_warmup_compiles_every_host_kernel():
    seconds = backend.warmup()
    assert set(seconds) == set(backend.OPERATIONS)
    assert all(value >= 0 for value in seconds.values())
    for operation in backend.OPERATIONS:
        module = sys.modules[f"zeromem.kernels.{operation}_cpu"]
        compiled = [
            value for value in vars(module).values() if hasattr(value, "nopython_signatures")
        ]
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
