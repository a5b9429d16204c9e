"""What the forms of ``ppr`` share: the result, the number of steps, the checks, and packing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zeromem.errors import InvalidInputError
from zeromem.kernels._check import as_array, check_csr, check_range, check_shape

# How much larger the relative L1 error may be than the power of the convergence rate: the mass of
# one node spreads over the whole graph, where errors of either sign add up. The largest factor seen
# is 110, from a single seed of degree 1 in a graph of 30,000 nodes without hubs (with Zipf's
# popularity 80 in 270,000 nodes); some 10 from a question's hundred seeds.
_MARGIN = 300.0


class PPRResult(NamedTuple):
    """Stationary scores, and how far the iteration came.

    Attributes
    ----------
    scores : (n + m, b) float32
    n_iter : int
    residual : float
        The largest L1 change of a column in the last step. The steps after it would change less.
    """

    scores: Any
    n_iter: int
    residual: float


class Packed(NamedTuple):
    """Several memories' graphs as one block-diagonal graph: all turns, then all entities.

    Attributes
    ----------
    previous, mention_indptr, mention_entity, mention_weight, inverse_degree
        The arguments of ``ppr`` by these names.
    offsets : (n_graphs + 1, 2) int64
        Where each graph's turns and entities start; ``ppr`` takes it as ``offsets``.
    """

    previous: NDArray[np.int32]
    mention_indptr: NDArray[np.int64]
    mention_entity: NDArray[np.int32]
    mention_weight: NDArray[np.float32]
    inverse_degree: NDArray[np.float32]
    offsets: NDArray[np.int64]

    def place(self, columns: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        """Put each graph's (n + m, b) side by side: the packed (N + M, max b), zero where short."""
        b = max((part.shape[1] for part in columns), default=0)
        out = np.zeros((int(self.offsets[-1].sum()), b), np.float32)
        for rows, part in zip(self._rows(), columns, strict=True):
            out[rows, : part.shape[1]] = part
        return out

    def split(self, packed: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """Return each graph's rows of an (N + M, b): the inverse of ``place``."""
        return [packed[rows] for rows in self._rows()]

    def _rows(self) -> Iterator[NDArray[np.intp]]:
        n = int(self.offsets[-1, 0])
        for (turn, entity), (turn_end, entity_end) in zip(
            self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True
        ):
            yield np.r_[turn:turn_end, n + entity : n + entity_end]


def pack(graphs: Sequence[Sequence[Any]]) -> Packed:
    """Put graphs side by side, so that one call serves many memories.

    Parameters
    ----------
    graphs : sequence of (previous, mention_indptr, mention_entity, mention_weight, inverse_degree)
        Column j of the packed reset holds each memory's j-th question.
    """
    counts = [(len(graph[0]), len(graph[4]) - len(graph[0])) for graph in graphs]
    offsets = np.zeros((len(graphs) + 1, 2), np.int64)
    np.cumsum(np.array(counts, np.int64).reshape(-1, 2), axis=0, out=offsets[1:])
    mentions = np.cumsum([0] + [len(graph[2]) for graph in graphs])
    previous, indptr, entity, weight, turns, entities = (
        [np.empty(0, kind)] for kind in (np.int32, np.int64, np.int32, *[np.float32] * 3)
    )
    indptr = [np.zeros(1, np.int64)]
    for at, (first, *mention, inverse) in enumerate(graphs):
        start, entity_start = offsets[at].tolist()
        previous.append(np.where(first >= 0, first + np.int32(start), np.int32(-1)))
        indptr.append(mention[0][1:] + mentions[at])
        entity.append(mention[1] + np.int32(entity_start))
        weight.append(mention[2])
        turns.append(inverse[: len(first)])
        entities.append(inverse[len(first) :])
    return Packed(
        np.concatenate(previous), np.concatenate(indptr), np.concatenate(entity),
        np.concatenate(weight), np.concatenate(turns + entities), offsets,
    )  # fmt: skip


def chebyshev(damping: float, tol: float, *, halved: bool) -> list[tuple[float, float, float]]:
    """Return ``(a, b, c)`` of each step ``x_next = a (H x + f) + b x + c x_before``.

    The Chebyshev semi-iteration for ``x = H x + f``, where the eigenvalues of H are real (A is
    symmetric, so ``P`` is similar to a symmetric matrix): in ``[-damping, damping]``, or, where the
    turns are solved for exactly and H leads from entities to entities (``halved``), in
    ``[0, damping ** 2]``. With ``rho = damping / (1 + sqrt(1 - damping ** 2))`` (1/3 for 0.6, where
    power iteration has 0.6), a step leaves ``rho`` of the error, or ``rho ** 2``. The number of
    steps follows from ``damping`` and ``tol`` alone.
    """
    shift = damping**2 / 2 if halved else 0.0
    radius = (shift if halved else damping) / (1 - shift)
    rate = radius / (1 + math.sqrt(1 - radius**2))
    n_iter = max(1, math.ceil(math.log(_MARGIN / tol) / -math.log(rate))) if rate else 1
    steps, omega = [], 1.0
    for step in range(n_iter):
        if step:
            omega = 1 / (1 - radius**2 * omega / (2 if step == 1 else 4))
        steps.append((omega / (1 - shift), -omega * shift / (1 - shift), 1 - omega))
    return steps


def check_options(adjacency_weight: float, damping: float, tol: float) -> None:
    """Raise InvalidInputError for a number outside its range."""
    check_range(adjacency_weight, "adjacency_weight", 0, 1e6)
    if not 0 <= damping < 1:
        raise InvalidInputError(
            f"damping must be in [0, 1), got {damping!r}; 0.6 is the paper's value"
        )
    check_range(tol, "tol", 1e-12, 1)


class Arrays(NamedTuple):
    """The array arguments of ``ppr`` in the kernel's types; ``offsets`` are filled in."""

    previous: Any
    mention_indptr: Any
    mention_entity: Any
    mention_weight: Any
    inverse_degree: Any
    offsets: NDArray[np.int64]


def as_arrays(
    xp: Any,
    previous: Any,
    mention_indptr: Any,
    mention_entity: Any,
    mention_weight: Any,
    inverse_degree: Any,
    offsets: Any = None,
) -> Arrays:
    """Return the arrays in the kernel's types with shapes that agree, or raise InvalidInputError.

    ``offsets`` stays on the host.
    """
    previous = as_array(previous, "previous", np.int32, 1, xp)
    inverse_degree = as_array(inverse_degree, "inverse_degree", np.float32, 1, xp)
    indptr = as_array(mention_indptr, "mention_indptr", np.int64, 1, xp)
    entity = as_array(mention_entity, "mention_entity", np.int32, 1, xp)
    weight = as_array(mention_weight, "mention_weight", np.float32, 1, xp)
    n, m = len(previous), len(inverse_degree) - len(previous)
    if m < 0:
        raise InvalidInputError(
            f"inverse_degree must have a row for each of the {n} turns and then one for each "
            f"entity, got {len(inverse_degree)} rows"
        )
    check_shape(indptr, "mention_indptr", (n + 1,))
    check_shape(weight, "mention_weight", (len(entity),))
    if offsets is None:
        offsets = np.array([[0, 0], [n, m]], np.int64)
    offsets = as_array(offsets, "offsets", np.int64, 2)
    whole = len(offsets) and offsets.shape[1] == 2
    if not whole or offsets[0].any() or offsets[-1].tolist() != [n, m]:
        raise InvalidInputError(
            f"offsets must have rows of (turn, entity) from (0, 0) to ({n}, {m}), "
            f"got {offsets.tolist()}"
        )
    if (np.diff(offsets, axis=0) < 0).any():
        raise InvalidInputError(f"offsets must not decrease, got {offsets.tolist()}")
    return Arrays(previous, indptr, entity, weight, inverse_degree, offsets)


def check_graph(xp: Any, arrays: Arrays) -> None:
    """Raise InvalidInputError unless the arrays are a graph of chains of turns and mentions."""
    n, m = len(arrays.previous), len(arrays.inverse_degree) - len(arrays.previous)
    shape = (n, m)
    check_csr(arrays.mention_indptr, arrays.mention_entity, name="mention", shape=shape)
    for name in ("mention_weight", "inverse_degree"):
        values = getattr(arrays, name)
        if len(values) and not bool(((values >= 0) & (values < np.inf)).all()):
            raise bad_number(name)
    wrong = (arrays.previous < -1) | (arrays.previous >= xp.arange(n))
    if bool(wrong.any()):
        raise bad_previous(int(wrong.argmax()), int(arrays.previous[wrong][0]))
    linked = arrays.previous[arrays.previous >= 0]
    if len(linked) != len(xp.unique(linked)):
        raise two_follow()


def bad_number(name: str) -> InvalidInputError:
    """Return the error of a weight or an inverse degree that cannot be one."""
    return InvalidInputError(f"{name} must be finite and not negative")


def bad_previous(turn: int, value: int) -> InvalidInputError:
    """Return the error of a turn that follows no earlier turn."""
    return InvalidInputError(f"previous must be an earlier row or -1, got {value} for turn {turn}")


def two_follow() -> InvalidInputError:
    """Return the error of a turn that two turns follow."""
    return InvalidInputError("previous must name each turn at most once: a session is one chain")


def bad_reset(column: int, total: float) -> InvalidInputError:
    """Return the error of a column that is no distribution."""
    return InvalidInputError(
        "reset must be non-negative and each column must sum to 1 (or be all zero) in each memory, "
        f"got sum {total:g} in column {column}"
    )


def check_reset(xp: Any, reset: Any, arrays: Arrays, sums_of: Any = None) -> Any:
    """Return ``reset`` as float32 (n + m, b), or raise InvalidInputError.

    ``sums_of`` adds up the rows of each memory, in place of :func:`memory_sums`.
    """
    reset = as_array(reset, "reset", np.float32, 2, xp)
    check_shape(reset, "reset", (len(arrays.inverse_degree), reset.shape[1]))
    if not reset.size:
        return reset
    if bool((reset.min(axis=0) < 0).any()):
        raise bad_reset(int((reset.min(axis=0) < 0).argmax()), float(reset.min()))
    sums = sums_of(reset) if sums_of else memory_sums(xp, reset, arrays)
    wrong = ~((abs(sums - 1) < 1e-3) | (sums == 0))
    if bool(wrong.any()):
        memory, column = divmod(int(wrong.argmax()), sums.shape[1])
        raise bad_reset(column, float(sums[memory, column]))
    return reset


def memory_sums(xp: Any, values: Any, arrays: Arrays) -> Any:
    """Sum the rows of each memory's turns and entities in float64: (n_memories, b)."""
    n = len(arrays.previous)
    sums = [
        values[turn:turn_end].sum(axis=0, dtype=np.float64)
        + values[n + entity : n + entity_end].sum(axis=0, dtype=np.float64)
        for (turn, entity), (turn_end, entity_end) in zip(
            arrays.offsets[:-1].tolist(), arrays.offsets[1:].tolist(), strict=True
        )
    ]
    return xp.stack(sums) if sums else xp.zeros((0, values.shape[1]))


def memory_of(arrays: Arrays) -> NDArray[np.int64]:
    """Return which memory each node belongs to, (n + m,)."""
    sizes = np.diff(arrays.offsets, axis=0)
    which = np.arange(len(sizes))
    return np.concatenate([np.repeat(which, sizes[:, 0]), np.repeat(which, sizes[:, 1])])
