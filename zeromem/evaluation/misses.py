"""Every gold item that the engine's main list misses: who saw it where, and what it needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from itertools import pairwise
from statistics import median_low
from typing import Any, Final

from zeromem.evaluation.methods.zero_mem import OpenMemories, ZeroMem
from zeromem.evaluation.needs import Case, Reading, describe, kinds
from zeromem.evaluation.types import DEPTH, Dataset, History, Question
from zeromem.memory import Memory
from zeromem.progress import progress_bar
from zeromem.times import EventTime
from zeromem.types import Retrieval, Trace

BOUNDS: Final = (10, 20, 50, 200)
"""Fused ranks at which the classes of misses end."""
VIEWS: Final = ("both", "graph", "hierarchy", "neither")
_BEYOND: Final = 1 << 30  # stands for the rank of what is in no list


@dataclass(frozen=True)
class Miss:
    """A gold item outside the first k.

    Attributes
    ----------
    history, question, category : str
        The question's id and category.
    gold : str
        The trace's id; a digest of it where the data set names passages by their titles.
    kind : str
        Of the first rule that holds.
    holds : tuple of str
        Kinds of all rules that hold.
    fused, graph, hierarchy : int, optional
        Ranks from 1: among distinct traces of the fused list (eq. 13), and of the best piece among
        each view's candidates. None where it is not among them.
    """

    history: str
    question: str
    category: str
    gold: str
    kind: str
    holds: tuple[str, ...]
    fused: int | None
    graph: int | None
    hierarchy: int | None

    @property
    def seen(self) -> str:
        """Which views have it among their candidates: one of ``VIEWS``."""
        match self.graph, self.hierarchy:
            case None, None:
                return "neither"
            case _, None:
                return "graph"
            case None, _:
                return "hierarchy"
        return "both"


@dataclass
class Found:
    """What a run found.

    Attributes
    ----------
    k : int
        Places of the main list beyond which a gold item is missed.
    depth : int
        Candidates of each view.
    n_questions, n_gold : int
        Questions with gold items, and these.
    recall : float
        Sum over questions of the share of gold items in the first k.
    misses : list of Miss
    """

    k: int
    depth: int
    n_questions: int = 0
    n_gold: int = 0
    recall: float = 0.0
    misses: list[Miss] = field(default_factory=list)


def collect(dataset: Dataset, memories: OpenMemories, k: int = 10) -> Found:
    """Ask every question of a set and classify the gold items outside the first ``k``.

    Parameters
    ----------
    dataset : Dataset
    memories : OpenMemories
        Left open.
    k : int
    """
    if dataset.shared is not None:
        memories.get(dataset.shared)
    engine = ZeroMem("zeromem", memories)
    found: Found | None = None
    with progress_bar(dataset.tasks, dataset.name, None) as bar:
        for history, asked in bar:
            questions = [question for question in asked if question.gold]
            handle = memories.get(history)
            if found is None:
                found = Found(k, handle.config.fusion.candidates)
            reading = Reading(history, *memories.index(history))
            _history(found, history, reading, engine, handle, questions)
    return found or Found(k, 0)


def _history(
    found: Found,
    history: History,
    reading: Reading,
    engine: ZeroMem,
    handle: Memory,
    questions: Sequence[Question],
) -> None:
    """Add the misses of one history."""
    engine.index(history)
    mains = engine.rank([question.query for question in questions], max(found.k, DEPTH))
    lists = dict(ask(handle, questions, found.depth))
    short = []
    for question, main in zip(questions, mains, strict=True):
        top = main[: found.k]
        missed = question.gold.difference(top)
        found.n_questions += 1
        found.n_gold += len(question.gold)
        found.recall += 1 - len(missed) / len(question.gold)
        if missed:
            short.append((question, frozenset(top), sorted(missed)))
    # A view's candidates are not all in the fused list: each view is asked alone.
    again = [question for question, _, _ in short]
    graph = dict(ask(handle, again, found.depth, "graph"))
    hierarchy = dict(ask(handle, again, found.depth, "hierarchy"))
    for question, first, outside in short:
        whole = lists[question.id]
        fused = {id: rank for rank, id in enumerate(dict.fromkeys(e.id for e in whole.main), 1)}
        ranks = [_best(part[question.id]) for part in (graph, hierarchy)]
        for gold in outside:
            rank = fused.get(gold, _BEYOND)
            case = Case(
                reading,
                whole.profile,
                gold,
                len(question.gold),
                question.gold & first,
                first,
                left_out=rank <= found.k,
            )
            held = kinds(case)
            found.misses.append(
                Miss(
                    history.name,
                    question.id,
                    question.category,
                    _public(reading.trace[gold]),
                    held[0],
                    held,
                    fused.get(gold),
                    *(view.get(gold) for view in ranks),
                )
            )


def ask(
    handle: Memory, questions: Iterable[Question], k: int, view: str | None = None
) -> Iterator[tuple[str, Retrieval]]:
    """Yield what each question retrieves by its id, asked at its own moment.

    Parameters
    ----------
    handle : Memory
    questions : iterable of Question
    k : int
        Length of the main lists, which nothing is added to.
    view : {"graph", "hierarchy"}, optional
        One view alone.
    """
    moments: dict[EventTime | None, list[Question]] = {}
    for question in questions:
        moments.setdefault(question.query.asked_at, []).append(question)
    for moment, asked in moments.items():
        options = {} if moment is None else {"reference_time": moment}
        texts = [question.query.text for question in asked]
        retrieved = handle.retrieve_batch(
            texts, k=k, view=view, closure=False, calibration=False, **options
        )
        yield from zip((question.id for question in asked), retrieved, strict=True)


def _best(retrieval: Retrieval) -> dict[str, int]:
    """Rank of each trace's best piece."""
    ranks: dict[str, int] = {}
    for rank, item in enumerate(retrieval.main, 1):
        ranks.setdefault(item.id, rank)
    return ranks


def _public(trace: Trace) -> str:
    """Name a trace without the data's own words: HotpotQA's ids are titles."""
    id = trace.id or ""
    if trace.title is None or id != trace.title:
        return id
    return f"sha256:{sha256(id.encode()).hexdigest()[:12]}"


def summary(found: Found) -> dict[str, Any]:
    """Count the misses by kind.

    Parameters
    ----------
    found : Found

    Returns
    -------
    dict
        ``k``, ``depth``, ``n_questions``, ``n_gold``, ``n_missed``, ``recall`` (mean over
        questions), ``all`` and ``kinds`` (each with counts, median fused rank, classes of rank and
        views), ``by_category`` (kinds by the questions' category) and ``misses``.
    """
    groups: dict[str, list[Miss]] = {}
    by_category: dict[str, Counter[str]] = {}
    for miss in found.misses:
        groups.setdefault(miss.kind, []).append(miss)
        by_category.setdefault(miss.category, Counter())[miss.kind] += 1
    means = dict(describe(groups))
    holds = Counter(kind for miss in found.misses for kind in miss.holds)
    order = sorted(means, key=lambda kind: -len(groups[kind]))  # stable: ties in the rules' order
    return {
        "k": found.k,
        "depth": found.depth,
        "n_questions": found.n_questions,
        "n_gold": found.n_gold,
        "n_missed": len(found.misses),
        "recall": round(found.recall / max(found.n_questions, 1), 6),
        "all": _figures(found.misses, found),
        "kinds": [
            {
                "kind": kind,
                "means": means[kind],
                "holds": holds[kind],
                **_figures(groups[kind], found),
            }
            for kind in order
        ],
        "by_category": {c: dict(n.most_common()) for c, n in sorted(by_category.items())},
        "misses": [
            {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(miss).items()}
            for miss in found.misses
        ],
    }


def _figures(misses: Sequence[Miss], found: Found) -> dict[str, Any]:
    ranks = [_BEYOND if miss.fused is None else miss.fused for miss in misses]
    middle = median_low(ranks) if ranks else _BEYOND
    views = Counter(miss.seen for miss in misses)
    classes = Counter(_class(rank, found.k) for rank in ranks)
    return {
        "count": len(misses),
        "share": round(len(misses) / max(len(found.misses), 1), 6),
        # None: at least half are in no list.
        "median_rank": None if middle == _BEYOND else middle,
        "ranks": {name: classes[name] for name in _classes(found.k)},
        "seen": {view: views[view] for view in VIEWS},
    }


def _classes(k: int) -> list[str]:
    """Name the classes of rank: 1-10 (left out by calibration), 11-20, 21-50, 51-200, beyond."""
    bounds = [0, k, *(bound for bound in BOUNDS if bound > k)]
    return [f"{a + 1}-{z}" for a, z in pairwise(bounds)] + ["beyond"]


def _class(rank: int, k: int) -> str:
    names = _classes(k)
    ends = [k, *(bound for bound in BOUNDS if bound > k)]
    return next((name for name, end in zip(names, ends, strict=False) if rank <= end), "beyond")


def table(result: dict[str, Any]) -> str:
    """Show a summary as a Markdown table, the largest kind first.

    Parameters
    ----------
    result : dict
        Of :func:`summary`, or read back from JSON.
    """
    # Whatever calibration leaves out would be in a class of its own; mostly nothing is.
    classes = [name for name, n in result["all"]["ranks"].items() if n or not name.startswith("1-")]
    head = ["kind", "missed", "share", "holds for", "median rank", *classes, *VIEWS]
    lines = [
        f"| {' | '.join(head)} |",
        f"|---|{'---:|' * (len(head) - 1)}",
        *(_line(part["kind"], part, str(part["holds"]), classes) for part in result["kinds"]),
        _line("**all**", result["all"], "", classes),
    ]
    return "\n".join(lines)


def _line(name: str, part: dict[str, Any], holds: str, classes: Sequence[str]) -> str:
    middle = part["median_rank"]
    cells = [
        name,
        part["count"],
        f"{100 * part['share']:.1f}%",
        holds,
        "beyond" if middle is None else middle,
        *(part["ranks"][name] for name in classes),
        *part["seen"].values(),
    ]
    return f"| {' | '.join(str(cell) for cell in cells)} |"
