"""Modules that look like a driver, CuPy and torch, and compute with NumPy."""

from __future__ import annotations

import ctypes
import sys
import types
from typing import Any

import numpy as np


class FakeDriver:
    """Stands for libcuda with a given answer of cuInit and a number of devices."""

    def __init__(self, init=0, devices=1):
        self.init, self.devices = init, devices

    def cuInit(self, flags):
        return self.init

    def cuDeviceGetCount(self, count):
        count._obj.value = self.devices
        return 0


def with_driver(monkeypatch: Any, **options: Any) -> None:
    """Let the process find a driver."""
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeDriver(**options))


def without_driver(monkeypatch: Any) -> None:
    """Let the process find none."""

    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)


def with_cupy(monkeypatch: Any, arange: Any = np.arange, free: int = 1 << 30) -> None:
    """Put NumPy in CuPy's place, with ``free`` bytes of memory, half of them in the pool."""
    sparse = types.ModuleType("cupyx.scipy.sparse")
    scipy = types.ModuleType("cupyx.scipy")
    scipy.sparse = sparse
    cupyx = types.ModuleType("cupyx")
    cupyx.scipy = scipy
    cupy = types.ModuleType("cupy")
    cupy.__version__, cupy.int32, cupy.arange = "0", np.int32, arange
    cupy.asarray, cupy.asnumpy = np.array, np.asarray
    device = types.SimpleNamespace(mem_info=(free // 2, 1 << 40))
    cupy.cuda = types.SimpleNamespace(Device=lambda: device)
    pool = types.SimpleNamespace(free_bytes=lambda: free // 2)
    cupy.get_default_memory_pool = lambda: pool
    for module in (cupy, cupyx, scipy, sparse):
        monkeypatch.setitem(sys.modules, module.__name__, module)


def with_torch(monkeypatch: Any, problem: str | None = None) -> None:
    """Put a torch in torch's place that computes on a device, or says why it does not."""

    def arange(n, device):
        assert device == "cuda"
        if problem:
            raise RuntimeError(problem)
        return np.arange(n)

    torch = types.ModuleType("torch")
    torch.arange = arange
    torch.cuda = types.SimpleNamespace(mem_get_info=lambda: (1 << 30, 1 << 34))
    monkeypatch.setitem(sys.modules, "torch", torch)
