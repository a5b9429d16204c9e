"""What the forms of ``fuse`` share: the result."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Fused(NamedTuple):
    """The candidates of both views, segmented by question, best first.

    Attributes
    ----------
    indptr : (b + 1,) int64
    rows : (m,) int32
    fused : (m,) float32
        eq. 13.
    graph_normalized, hier_normalized : (m,) float32
        eq. 12; 0 where the view did not return the row.
    """

    indptr: NDArray[np.int64]
    rows: NDArray[np.int32]
    fused: NDArray[np.float32]
    graph_normalized: NDArray[np.float32]
    hier_normalized: NDArray[np.float32]
