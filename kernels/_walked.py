"""What the forms of ``walked`` share: what the second hop reads."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Hops(NamedTuple):
    """What the second hop reads of the memory; the columns of ``zeromem.index.Arrays``.

    ``titled`` is ``Lists.kernel_args``: an entity's turns are those whose title it is.
    """

    mention_indptr: NDArray[np.int64]
    mention_entity: NDArray[np.int32]
    titled: tuple[NDArray[Any], ...]
    sentence_indptr: NDArray[np.int64]
    sentence_entity_indptr: NDArray[np.int64]
    sentence_entity: NDArray[np.int32]
    sentence_addresses: NDArray[np.int64]
    sentence_inverse_norm: NDArray[np.float32]
