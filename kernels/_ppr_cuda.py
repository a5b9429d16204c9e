"""A step of PPR as one hand-written device kernel: sparse product, damping and Chebyshev together.

In Numba rather than Triton: a step is bound by the gathers of rows of x, which both compile to the
same coalesced loads, and Numba's simulator runs it in any test environment, without a further
package (``NUMBA_ENABLE_CUDASIM=1``).

A thread has one column of one part of a row; a warp's threads have neighbouring columns, so that it
reads whole cache lines. A row that is no hub is finished by its thread; hubs' parts are added up,
in their order, by a second small kernel. Nothing is added atomically: the same input gives the same
bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import cuda as numba_cuda
from numba import float32, float64

cuda: Any = numba_cuda
_THREADS = 256
# Cells whose loops are kept beside the newest: 12 bytes each.
_KEPT = 1 << 22


@cuda.jit
def _step(
    part_indptr, part_row, part_slot, indices, data, reset, damping, of_new, of_before,
    x, x_before, partial,
):  # fmt: skip
    """Replace ``x_before`` by the next iterate, except in the rows of hubs."""
    column = cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x
    part = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    if part >= part_row.shape[0] or column >= x.shape[1]:
        return
    total = float32(0)
    for p in range(part_indptr[part], part_indptr[part + 1]):
        total += data[p] * x[indices[p], column]
    slot = part_slot[part]
    if slot >= 0:
        partial[slot, column] = total
        return
    row = part_row[part]
    new = of_new * (damping * total + reset[row, column])
    x_before[row, column] = new + of_before * x_before[row, column]


@cuda.jit
def _hub_step(hub_row, hub_slots, reset, damping, of_new, of_before, x_before, partial):
    """The same for the rows of hubs, whose parts lie in ``partial``."""
    column = cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x
    hub = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    if hub >= hub_row.shape[0] or column >= x_before.shape[1]:
        return
    total = float64(0)
    for slot in range(hub_slots[hub], hub_slots[hub + 1]):
        total += partial[slot, column]
    row = hub_row[hub]
    new = of_new * (damping * float32(total) + reset[row, column])
    x_before[row, column] = new + of_before * x_before[row, column]


class Hubs(NamedTuple):
    """Which rows have several parts, and where those lie."""

    part_slot: Any
    hub_row: Any
    hub_slots: Any


def hubs(xp: Any, matrix: Any) -> Hubs:
    """Number the parts of the rows that have several, in order; -1 for the others."""
    counts = matrix.row_parts[1:] - matrix.row_parts[:-1]
    row = xp.flatnonzero(counts > 1)
    slots = xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(counts[row]).astype(np.int64)])
    of_hub = counts[matrix.part_row] > 1
    slot = xp.where(of_hub, xp.cumsum(of_hub) - 1, -1).astype(np.int32)
    return Hubs(slot, row.astype(np.int32), slots)


class Loops:
    """The iteration over one transition matrix, ready to run for any number of columns.

    On a device the loop over a number of columns is recorded as a CUDA graph when it is first
    asked for, and later launched as a whole: a step takes microseconds there, and starting each
    from Python would take longer. (NumPy, in Numba's simulator, runs the loop as it is written.)
    Loops that were not used for longest go first. One thread at a time.

    Parameters
    ----------
    xp : module
        CuPy, or NumPy in the simulator.
    matrix : Transition
    """

    def __init__(self, xp: Any, matrix: Any) -> None:
        self._xp, self.matrix, self._hubs = xp, matrix, hubs(xp, matrix)
        self._recorded: dict[tuple[Any, ...], _Recorded] = {}

    @property
    def n_bytes(self) -> int:
        """Bytes on the device that the recorded loops hold."""
        return 12 * self._cells

    @property
    def _cells(self) -> int:
        columns: int = sum(key[0] for key in self._recorded)
        return columns * (len(self.matrix.indptr) - 1)

    def iterate(
        self, reset: Any, damping: float, steps: list[tuple[float, float, float]]
    ) -> tuple[Any, Any]:
        """Return the last two iterates, as ``ppr_gpu.iterate`` does, valid until the next call."""
        key = reset.shape[1], damping, len(steps)
        loop = self._recorded.pop(key, None)
        if loop is None:
            while self._recorded and self._cells + reset.size > _KEPT:
                del self._recorded[next(iter(self._recorded))]
            loop = _Recorded(self._xp, self.matrix, self._hubs, reset.shape, damping, steps)
        self._recorded[key] = loop
        return loop.run(reset)


class _Recorded:
    """One loop, its buffers and, on a device, its CUDA graph."""

    def __init__(
        self, xp: Any, matrix: Any, where: Hubs, shape: tuple[int, int], damping: float, steps: Any
    ) -> None:
        self._steps, self._damping = steps, damping
        self._reset, self._x, self._before = (xp.zeros(shape, np.float32) for _ in range(3))
        partial = xp.zeros((max(1, int(where.hub_slots[-1])), shape[1]), np.float32)
        arrays = (
            matrix.part_indptr, matrix.part_row, where.part_slot, matrix.indices, matrix.data,
            self._reset, where.hub_row, where.hub_slots, partial, self._x, self._before,
        )  # fmt: skip
        self._kept, self._graph = arrays, None
        if xp is np:
            self._views = list(arrays)
            return
        # Numba's views are made before the recording: making one may wait for the stream. So are
        # the kernels, by a step that changes nothing: the new iterate with weight 0.
        self._views = [cuda.as_cuda_array(array, sync=False) for array in arrays]
        xp.cuda.get_current_stream().synchronize()
        _launch(self._views, damping, [(0.0, 0.0, 1.0)], 0)
        cuda.synchronize()
        self._stream = xp.cuda.Stream(non_blocking=True)
        with self._stream:
            self._stream.begin_capture()
            _launch(self._views, damping, steps, cuda.external_stream(self._stream.ptr))
            self._graph = self._stream.end_capture()

    def run(self, reset: Any) -> tuple[Any, Any]:
        """Iterate from ``reset``; return the last iterate and the one before it."""
        self._reset[...] = reset
        self._x[...] = reset
        self._before[...] = 0
        if self._graph is None:
            _launch(self._views, self._damping, self._steps, 0)
        else:
            # The recorded stream does not wait for the current one by itself.
            import cupy

            cupy.cuda.get_current_stream().synchronize()
            self._graph.launch(self._stream)
            self._stream.synchronize()
        even = len(self._steps) % 2 == 0
        return (self._x, self._before) if even else (self._before, self._x)


def _launch(views: list[Any], damping: float, steps: list[Any], stream: Any) -> None:
    """Launch the kernels of all steps on ``stream``."""
    part_indptr, part_row, slot, indices, data, reset, hub_row, hub_slots, partial, x, before = (
        views
    )
    across = min(32, 1 << (reset.shape[1] - 1).bit_length())
    down = _THREADS // across
    wide = -(-reset.shape[1] // across)
    gamma = np.float32(damping)
    for of_new, _, of_before in steps:
        combine = gamma, np.float32(of_new), np.float32(of_before)
        _step[(-(-len(part_row) // down), wide), (across, down), stream](
            part_indptr, part_row, slot, indices, data, reset, *combine, x, before, partial
        )
        if len(hub_row):
            _hub_step[(-(-len(hub_row) // down), wide), (across, down), stream](
                hub_row, hub_slots, reset, *combine, before, partial
            )
        x, before = before, x
