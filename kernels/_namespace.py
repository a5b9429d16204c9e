"""The array modules behind the device form: CuPy where an array is CuPy's, else NumPy.

CuPy with cupyx.scipy.sparse and NumPy with scipy.sparse share an interface, so the code that runs
on a device is the code that runs in tests on a machine without one.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any


def namespace(*arrays: Any) -> tuple[ModuleType, ModuleType]:
    """Return ``(xp, sparse)`` for ``arrays``: CuPy's as soon as one of them lives on a device."""
    if any(type(array).__module__.partition(".")[0] == "cupy" for array in arrays):
        import cupy
        import cupyx.scipy.sparse

        return cupy, cupyx.scipy.sparse
    import numpy
    import scipy.sparse

    return numpy, scipy.sparse
