"""Personalised PageRank by python-igraph over zeromem's own graph: the oracle of eq. 10."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from zeromem.errors import ZeroMemError
from zeromem.evaluation.methods.engine import EngineList
from zeromem.evaluation.methods.turns import Scores
from zeromem.evaluation.types import Query
from zeromem.index import Arrays
from zeromem.query.look import restarts
from zeromem.query.profile import profile


class IgraphPageRank(EngineList):
    """Contexts by PRPACK's stationary distribution.

    The graph (eq. 3-4), the reset vector (eq. 8-9 and the dense priors) and the damping are those
    of zeromem's graph view; the walk is solved by another library's other algorithm, to its own
    convergence. What the graph view adds to the walk afterwards is left out.
    """

    name = "igraph-ppr"

    def prepare(self) -> None:
        """Hand the graph to igraph."""
        weight = self.data.config.graph.adjacency_weight
        self._graph = as_igraph(adjacency(self.data.arrays, weight))

    def scores(self, queries: Sequence[Query]) -> Scores:
        """Return pi(d) of each context."""
        damping = self.data.config.graph.damping
        n = len(self.data)
        out = np.zeros((len(queries), n))
        for j, reset in enumerate(self.resets(queries)):
            if reset.any():
                out[j] = stationary(self._graph, reset, damping)[:n]
        return out

    def resets(self, queries: Sequence[Query]) -> NDArray[np.float32]:
        """Return r_q of eq. 10 as the graph view makes it: (n_queries, n_nodes)."""
        arrays = self.data.arrays
        profiles = [
            profile(
                query.text,
                reference_time=query.asked_at,
                known_names=arrays.names,
                query_entities=named,
            )
            for query, named in zip(queries, self.names_in(queries), strict=True)
        ]
        return restarts(self.data, profiles, self.bank.encode)


def adjacency(arrays: Arrays, adjacency_weight: float) -> sp.csr_array:
    """Return A of eq. 3, (n + m) square and symmetric: contexts, then entities."""
    n, graph = len(arrays), arrays.graph
    m = len(arrays.turns.entities)
    weight, entity = graph.mention_weight.astype(np.float64), graph.mention_entity
    B = sp.csr_array((weight, entity, graph.mention_indptr), shape=(n, m))
    after = np.flatnonzero(arrays.previous >= 0)
    joined = np.full(len(after), adjacency_weight)
    beside = sp.coo_array((joined, (arrays.previous[after], after)), shape=(n, n))
    return sp.csr_array(sp.block_array([[beside + beside.T, B], [B.T, None]], format="csr"))


def as_igraph(A: sp.csr_array) -> Any:
    """Return a graph as igraph's, directed both ways and weighted.

    Raises
    ------
    ZeroMemError
        igraph is not installed.
    """
    try:
        igraph: Any = importlib.import_module("igraph")
    except ImportError as error:
        raise ZeroMemError(
            "the method igraph-ppr needs python-igraph; run `pip install 'zeromem[eval]'`"
        ) from error
    edges = A.tocoo()
    return igraph.Graph(
        n=A.shape[0],
        edges=np.stack(edges.coords, axis=1),
        edge_attrs={"weight": edges.data},
        directed=True,
    )


def stationary(graph: Any, reset: NDArray[np.floating], damping: float) -> Scores:
    """Solve pi = (1 - damping) r + damping P' pi; a dangling node's mass returns to r."""
    pi = graph.personalized_pagerank(
        damping=damping,
        reset=reset.astype(np.float64).tolist(),
        weights="weight",
        implementation="prpack",
    )
    return np.array(pi)
