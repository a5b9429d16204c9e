"""What all tests share: deterministic Hypothesis, the kernels' forms, and the skip of GPU tests."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "repeatable",
    deadline=None,  # a busy machine is not a bug
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("search", parent=settings.get_profile("repeatable"), derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked ``gpu`` where no device computes, with the reason."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    from zeromem.backend import cupy_problem, driver_problem

    problem = driver_problem() or cupy_problem()
    if problem:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=problem))


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator that starts alike in every test."""
    return np.random.default_rng(20260612)


def _numpy_form(suffix: str) -> Callable[..., Any]:
    def run(operation: str, *arguments: Any, **options: Any) -> Any:
        module = importlib.import_module(f"zeromem.kernels.{operation}_{suffix}")
        return getattr(module, _FUNCTIONS.get(operation, operation))(*arguments, **options)

    return run


def _cupy_form(operation: str, *arguments: Any) -> Any:
    import cupy

    from zeromem.index.chunks import Chunks
    from zeromem.kernels import dense_gpu

    def moved(value: Any) -> Any:
        if isinstance(value, Chunks):
            return dense_gpu.put(value, cupy)
        if isinstance(value, tuple):
            parts = map(moved, value)
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        return cupy.asarray(value) if isinstance(value, np.ndarray) else value

    def back(value: Any) -> Any:
        return cupy.asnumpy(value) if isinstance(value, cupy.ndarray) else value

    result = _numpy_form("gpu")(operation, *map(moved, arguments))
    if not isinstance(result, tuple):
        return back(result)
    values = [back(value) for value in result]
    return type(result)(*values) if hasattr(result, "_fields") else tuple(values)


# The function of an operation's module, where it is not called as the operation is.
_FUNCTIONS = {"dense": "scores", "bm25": "scores"}


@pytest.fixture(
    params=["cpu", "device on NumPy", pytest.param("device", marks=pytest.mark.gpu)], scope="module"
)
def kernel(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """``kernel(operation, *arguments)`` in each form but the oracle's; NumPy in, NumPy out."""
    if request.param == "device":
        return _cupy_form
    return _numpy_form("cpu" if request.param == "cpu" else "gpu")


@pytest.fixture(scope="module")
def oracle() -> Callable[..., Any]:
    """``oracle(operation, *arguments)``: the float64 form."""
    return _numpy_form("ref")


@pytest.fixture(scope="module")
def compiled() -> Callable[..., Any]:
    """``compiled(operation, *arguments)``: the Numba form alone."""
    return _numpy_form("cpu")
