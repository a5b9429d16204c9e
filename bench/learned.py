r"""What a linear model over the views' signals learns on one data set, and what it does on others.

Example::

    python bench/learned.py --set "locomo --data locomo_dev5.json --store locomo.zm" \
        --set "beam --data beam_100k_dev8.jsonl --store beam.zm" --json learned.json

A logistic regression tells gold turns from others by the signals of (question, turn) pairs: those
that the engine weighs by hand, each normalised over the question's admissible turns as the engine
does, and the walk of eq. 10. It ranks the union of both views' best 150 turns; gold that neither
has stays missed. Questions are ranked whole; the engine, whose own main list is the last row, also
takes some apart, lends by titles and searches from coarse to fine. On the set that it was trained
on, a model is scored on what it was not trained on: one history left out at a time, or a fifth of
the histories where there are more than ten.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.backend import resolve
from zeromem.config import SignalWeights
from zeromem.errors import ZeroMemError
from zeromem.evaluation import datasets, report
from zeromem.evaluation.methods.asked import Asked
from zeromem.evaluation.methods.base import first_distinct
from zeromem.evaluation.methods.zero_mem import OpenMemories
from zeromem.evaluation.misses import ask
from zeromem.evaluation.types import Dataset, Question
from zeromem.index import Index
from zeromem.ingest.annotate import entity_names
from zeromem.ingest.encode import Encoder, load_encoder
from zeromem.query.look import look
from zeromem.query.profile import profile

Array = NDArray[Any]
CANDIDATES = 150
PLACES = (5, 10)
FEATURES = (*(field.name for field in fields(SignalWeights)), "walk")
HAND_SET = "hand-set weights"
_FOLDS, _SPAN = 10, 6.0  # most histories left out singly; e-folds of the walk's mass told apart


@dataclass(frozen=True)
class Example:
    """A question's candidates.

    Attributes
    ----------
    history : str
    gold : frozenset of str
    ids : list of str
        Trace of each candidate, in the order of the rows of the index.
    features : (n, len(FEATURES)) float32
        In [0, 1].
    engine : tuple of str
        The engine's own main list, distinct traces.
    """

    history: str
    gold: frozenset[str]
    ids: list[str]
    features: Array
    engine: tuple[str, ...]

    @property
    def is_gold(self) -> Array:
        return np.array([id in self.gold for id in self.ids], np.bool_)

    def recall(self, ranked: Sequence[str], k: int) -> float:
        """Share of the gold traces among the first ``k``."""
        return len(self.gold.intersection(ranked[:k])) / len(self.gold)

    def ranked(self, scores: Array) -> tuple[str, ...]:
        """Rank traces by their best candidates; ties go to the earlier row."""
        order = np.lexsort((np.arange(len(scores)), -scores))
        return first_distinct((self.ids[i] for i in order), max(PLACES))


def examples(dataset: Dataset, memories: OpenMemories, encoder: Encoder) -> list[Example]:
    """Read the candidates of every question that has gold, one history at a time."""
    if dataset.shared is not None:
        memories.get(dataset.shared)
    found: list[Example] = []
    for history, asked in dataset.tasks:
        questions = [question for question in asked if question.gold]
        handle = memories.get(history)
        index, lsn = memories.index(history)
        trace = {at: t.id or "" for at, t in zip(lsn, history.traces, strict=True)}
        ids = [trace[at] for at in index.arrays.turns.lsn.tolist()]
        lists = dict(ask(handle, questions, handle.config.fusion.candidates))
        candidates = _candidates(questions, index, memories, encoder)
        for question, (rows, features) in zip(questions, candidates, strict=True):
            engine = first_distinct((e.id for e in lists[question.id].main), max(PLACES))
            own = [ids[row] for row in rows.tolist()]
            found.append(Example(history.name, question.gold, own, features, engine))
    return found


def _candidates(
    questions: Sequence[Question], index: Index, memories: OpenMemories, encoder: Encoder
) -> Iterator[tuple[Array, Array]]:
    """Yield the rows of the candidates of each question, ascending, and their features."""
    texts = [question.query.text for question in questions]
    named = entity_names(texts, memories.annotator.annotate(texts)) if texts else []
    profiles = [
        profile(
            question.query.text,
            reference_time=question.query.asked_at,
            known_names=index.arrays.names,
            query_entities=names,
        )
        for question, names in zip(questions, named, strict=True)
    ]
    uses = [SignalWeights(**{f: 1.0}) for f in FEATURES[:-1]]
    for seen in look(index, profiles, encoder.encode, uses, CANDIDATES):
        rows = np.union1d(seen.graph, seen.hierarchy)
        columns = [*seen.scores, walk(seen.pi, seen.mask)]
        yield rows, np.stack([column[rows] for column in columns], axis=1).astype("f4")


def walk(pi: Array, mask: Array) -> Array:
    """Spread the walk's mass by its logarithm: 1 at the best turn, 0 six e-folds below."""
    best = np.max(pi, where=mask, initial=0.0)
    share = pi / (best or 1.0)
    spread: Array = np.maximum(np.log(np.maximum(share, 1e-30)) / _SPAN + 1.0, 0.0)
    return spread


def fit(trained_on: Sequence[Example]) -> Array:
    """Fit a logistic regression; return its weights.

    Both classes weigh alike in all, and the solver starts from zero: equal data, equal weights.

    Raises
    ------
    ZeroMemError
        Where scikit-learn is missing, or no candidate is gold.
    """
    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError as error:
        raise ZeroMemError(
            "bench/learned.py needs scikit-learn; run `pip install 'zeromem[eval]'`"
        ) from error
    features = np.concatenate([e.features for e in trained_on]).astype(np.float64)
    is_gold = np.concatenate([e.is_gold for e in trained_on])
    if is_gold.all() or not is_gold.any():
        raise ZeroMemError("training needs candidates that are gold and others that are not")
    model = LogisticRegression(C=1.0, class_weight="balanced", max_iter=1000)
    weights: Array = model.fit(features, is_gold).coef_[0]
    return weights


def held_out(found: Sequence[Example]) -> list[tuple[str, ...]]:
    """Rank each question by weights that were fitted without its history."""
    names = list(dict.fromkeys(e.history for e in found))
    n = len(names) if len(names) <= _FOLDS else 5
    if n < 2:
        raise ZeroMemError("scores within a set need two histories or more, got 1")
    fold = {name: i % n for i, name in enumerate(names)}
    weights = [fit([e for e in found if fold[e.history] != i]) for i in range(n)]
    return [e.ranked(e.features @ weights[fold[e.history]]) for e in found]


def shares(found: Sequence[Example], ranked: Sequence[tuple[str, ...]]) -> dict[str, float]:
    """Average recall over questions."""
    return {
        f"recall@{k}": round(
            sum(e.recall(r, k) for e, r in zip(found, ranked, strict=True)) / len(found), 6
        )
        for k in PLACES
    }


def compare(sets: dict[str, list[Example]]) -> dict[str, Any]:
    """Make the cross-set table: rows by what was trained on, columns by what is ranked."""
    rows, learned = [], {}
    for name, own in sets.items():
        weights = fit(own)
        learned[name] = {f: round(float(w), 4) for f, w in zip(FEATURES, weights, strict=True)}
        scores = {
            other: shares(
                found,
                held_out(own) if other == name else [e.ranked(e.features @ weights) for e in found],
            )
            for other, found in sets.items()
        }
        rows.append({"trained_on": name, "scores": scores})
    engine = {name: shares(found, [e.engine for e in found]) for name, found in sets.items()}
    rows.append({"trained_on": HAND_SET, "scores": engine})
    about = {
        name: {
            "n_questions": len(found),
            "n_candidates": sum(len(e.ids) for e in found),
            # No order of the candidates finds more.
            "ceiling": round(sum(e.recall(e.ids, len(e.ids)) for e in found) / len(found), 6),
        }
        for name, found in sets.items()
    }
    return {"rows": rows, "weights": learned, "sets": about}


def table(result: dict[str, Any]) -> str:
    """Show the cross-set table in Markdown; a score within the set trained on is in italics."""
    names = list(result["sets"])
    lines = [
        f"| trained on | {' | '.join(f'{name} @5 / @10' for name in names)} |",
        f"|---|{'---:|' * len(names)}",
    ]
    for row in result["rows"]:
        cells = []
        for name in names:
            cell = " / ".join(f"{100 * row['scores'][name][f'recall@{k}']:.1f}" for k in PLACES)
            cells.append(f"*{cell}*" if name == row["trained_on"] else cell)
        lines.append(f"| {row['trained_on']} | {' | '.join(cells)} |")
    ceilings = " | ".join(f"{100 * result['sets'][name]['ceiling']:.1f}" for name in names)
    return "\n".join([*lines, f"| (all candidates) | {ceilings} |"])


def parser() -> argparse.ArgumentParser:
    """Build the command line."""
    top = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    top.add_argument(
        "--set", action="append", required=True, metavar="'NAME OPTIONS'", dest="sets",
        help=f"{', '.join(datasets.NAMES)} with its own options and --store FILE; once per set",
    )  # fmt: skip
    top.add_argument("--json", type=Path, help="write scores and weights here")
    top.add_argument("--encoder", help="model name or folder; default: the device's")
    top.add_argument("--device", default="cpu", choices=("auto", "cpu", "cuda"))
    return top


def _set_parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="learned.py --set")
    commands = top.add_subparsers(dest="set", required=True, metavar="NAME")
    for name in datasets.NAMES:
        command = commands.add_parser(name, help=datasets.HELP[name])
        datasets.add_arguments(command, name)
        command.add_argument("--store", type=Path, help="keep features in this store")
    return top


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Make the report."""
    options.device = resolve(options.device).device
    encoder = load_encoder(options.encoder, options.device)
    chosen = [_set_parser().parse_args(shlex.split(text)) for text in options.sets]
    found: dict[str, list[Example]] = {}
    files: dict[str, Any] = {}
    for each in chosen:
        if each.set in found:
            raise ZeroMemError(f"--set {each.set} is given twice; give each set once")
        dataset = datasets.load(each)
        files[each.set] = dataset.files
        with ExitStack() as stack:
            store, asked = each.store, None
            if store is None:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="zeromem-bench-"))
                store = Path(folder) / "bench.zm"
            else:
                asked = Asked(store.with_name(f"{store.name}.asked"))
            memories = OpenMemories(store, encoder, options.device, asked=asked)
            stack.callback(memories.close)
            found[each.set] = examples(dataset, memories, encoder)
    settings = [{k: v for k, v in vars(e).items() if not isinstance(v, Path)} for e in chosen]
    return {
        "commit": report.commit(),
        "versions": {**report.versions(), "scikit-learn": version("scikit-learn")},
        "hardware": report.hardware(options.device),
        "data": files,
        "encoder": encoder.fingerprint,
        "settings": {"candidates": CANDIDATES, "sets": settings},
        **compare(found),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    options = parser().parse_args(arguments)
    try:
        result = measure(options)
    except (ZeroMemError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(table(result))
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
