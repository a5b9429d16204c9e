"""What is asked for, and R(q) as rows of the index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from zeromem.config import Config
from zeromem.types import EvidenceKind, QueryProfile, Route

Array = NDArray[Any]
View = Literal["graph", "hierarchy"]

DEFAULT_K = 5  # the paper's


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What one call asks for.

    Attributes
    ----------
    k : int, optional
        Most main items, |M(q)|. Without it 5, or with a token budget as many as may fit it.
    token_budget : int, optional
        Most encoder tokens of R(q); items that no longer fit are left out, the best come first.
    view : {"graph", "hierarchy"}, optional
        One view alone (the paper's ablation).
    closure, calibration : bool
    echoes : bool
        Whether turns that only repeat the question, term for term, may be evidence.
    """

    k: int | None = None
    token_budget: int | None = None
    view: View | None = None
    closure: bool = True
    calibration: bool = True
    echoes: bool = True

    def main(self, config: Config) -> int:
        """Bound on |M(q)|."""
        if self.k is not None:
            return self.k
        return DEFAULT_K if self.token_budget is None else config.fusion.candidates


@dataclass(frozen=True, slots=True)
class Item:
    """One member of C(q).

    Attributes
    ----------
    row : int
    kind : EvidenceKind
    fused : float
        Eq. 13; 0 where neither view returned it.
    support : float
        What main evidence beside it in its session lends it; 0 where there is none.
    score : float
        What R(q) is ranked by.
    reason : str
        Why it is not in R(q); empty where it is.
    """

    row: int
    kind: EvidenceKind
    fused: float
    support: float
    score: float
    reason: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Ranked:
    """R(q) of one question as rows of the index, and what explains it.

    Attributes
    ----------
    profile : QueryProfile
    route : Route
    reason : str
    items, left_out : list of Item
        R(q), best first, and the rest of C(q).
    main : (k,) int32
        M(q), best first.
    graph, hierarchy : (k,) int32
        The views' candidates, best first; empty for a view that was left out.
    candidates : (m,) int32
        Of both views, by eq. 13.
    graph_normalized, hierarchy_normalized : (m,) float32
        Their scores, eq. 12.
    vector : (dim,) float32
        The question's.
    seeds, seed_values : (s,) int32, (s,) float32
        eta_0, eq. 8.
    activation : (n_entities,) float32
        Sum of eta_t, eq. 9.
    n_outside : int
        Turns outside the boundary.
    """

    profile: QueryProfile
    route: Route
    reason: str
    items: list[Item]
    left_out: list[Item]
    main: Array
    graph: Array
    hierarchy: Array
    candidates: Array
    graph_normalized: Array
    hierarchy_normalized: Array
    vector: Array
    seeds: Array
    seed_values: Array
    activation: Array
    n_outside: int = 0

    @classmethod
    def nothing(cls, profile: QueryProfile) -> Ranked:
        """Answer a question to an empty memory."""
        rows, values = np.zeros(0, np.int32), np.zeros(0, np.float32)
        return cls(
            profile, Route.LOCAL, "the memory is empty", [], [], rows, rows, rows, rows, values,
            values, values, rows, values, values,
        )  # fmt: skip
