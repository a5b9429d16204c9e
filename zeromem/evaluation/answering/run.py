"""Answer an evaluation set: index, find, read, calibrate."""

from __future__ import annotations

import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from zeromem.answer.grounded import calibrated
from zeromem.answer.reader import Draft
from zeromem.errors import ReaderError
from zeromem.evaluation.answering.cache import ReplyCache, key_of
from zeromem.evaluation.answering.failures import Watch, metered, tell, tell_unmetered
from zeromem.evaluation.answering.readers import Reading, RunReader, code_digest
from zeromem.evaluation.answering.scoring import score as score
from zeromem.evaluation.checks import check_found
from zeromem.evaluation.types import Answered, Budget, Dataset, Found, History, Method, Query
from zeromem.types import Evidence, TokenUsage

_WAVE = 64  # questions between two times that retrieval waits for the reader


@dataclass
class Answers:
    """One method's answers to a set.

    Attributes
    ----------
    method : str
    reader : str
        The reader's fingerprint.
    calibrates, budgeted : bool
        The method's.
    budget : Budget
    rows : list of Answered
        In the data set's order.
    seconds : dict
        ``index`` and ``find``, of the method; ``read``, the sum of all calls, each counted as long
        as it took when it was made; ``calibrate``.
    n_fresh : int
        Calls of the reader that this run made; the others were known.
    """

    method: str
    reader: str
    calibrates: bool
    budgeted: bool
    budget: Budget
    rows: list[Answered] = field(default_factory=list)
    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("index", "find", "read", "calibrate"), 0.0)
    )
    n_fresh: int = 0

    @property
    def failures(self) -> dict[str, int]:
        """How many samples failed, by reason."""
        return dict(Counter(row.error for row in self.rows if row.error is not None))


@dataclass(frozen=True)
class _Asked:
    """One question on its way to the reader; ``found`` is a failure's reason where there is one."""

    answers: Answers
    question_id: str
    query: Query
    found: Found | str


@dataclass(frozen=True)
class _Read:
    """What a reader made of a question's blocks; ``block`` is the one whose answer holds.

    ``usage`` is None where the tokens of a block are not known; ``n_calls`` is known always.
    """

    draft: Draft
    block: tuple[Evidence, ...] = ()
    usage: TokenUsage | None = field(default_factory=TokenUsage)
    n_calls: int = 0
    seconds: float = 0.0
    n_fresh: int = 0
    error: str | None = None


def answer(
    dataset: Dataset,
    methods: Sequence[Method],
    reader: RunReader,
    budget: Budget,
    *,
    jobs: int = 1,
) -> dict[str, Answers]:
    """Answer every question with every method's evidence.

    Retrieval and calibration run alone, so that their times mean something; the reader is then
    asked for some dozens of questions at once. An interrupt lets the calls under way arrive and be
    kept, and makes no more. How many samples failed, and why the first did, is said on stderr.

    Parameters
    ----------
    dataset : Dataset
    methods : sequence of Method
        Closed at the end.
    reader : ChatReader or LocalReader
        See :mod:`zeromem.evaluation.answering.readers`. It sees queries and evidence alone.
    budget : Budget
    jobs : int
        Calls of the reader at once, where it allows several.

    Returns
    -------
    dict
        By method name. A sample that fails has an empty answer and the reason.

    Raises
    ------
    ReaderError
        Where every question would fail: the endpoint refuses the key or does not know the model,
        or does not answer at all.
    """
    watch = Watch("reader")
    answers = {
        m.name: Answers(m.name, reader.fingerprint, m.calibrates, m.budgeted, budget)
        for m in methods
    }
    wave: list[_Asked] = []
    most = max(_WAVE, 16 * jobs)
    try:
        for method in methods if dataset.shared is not None else ():
            with _clock(answers[method.name], "index"):
                method.share(dataset.shared)  # type: ignore[arg-type]  # not None here
        with _pool(jobs if reader.concurrent else 1) as pool, _bar(dataset, len(methods)) as bar:
            for history, questions in dataset.tasks:
                queries = [q.query for q in questions]
                for method in methods:
                    mine = answers[method.name]
                    found = _find(method, history, queries, budget, mine)
                    wave += [
                        _Asked(mine, q.id, q.query, f)
                        for q, f in zip(questions, found, strict=True)
                    ]
                    if len(wave) >= most:
                        _finish(wave, reader, watch, pool, bar)
                        wave = []
            _finish(wave, reader, watch, pool, bar)
    finally:
        for method in methods:
            method.close()
    rows = [row for mine in answers.values() for row in mine.rows]
    tell("answers", (row.error for row in rows))
    tell_unmetered("answers", sum(is_unmetered(row) for row in rows), len(rows))
    return answers


def is_unmetered(row: Answered) -> bool:
    """Whether an endpoint was asked and did not say how many tokens that took."""
    return row.tokens.get("calls", 0) > 0 and "prompt" not in row.tokens


def _find(
    method: Method, history: History, queries: list[Query], budget: Budget, answers: Answers
) -> Sequence[Found | str]:
    """Retrieve; where that fails, the reason for each of the history's questions."""
    try:
        with _clock(answers, "index"):
            method.index(history)
        with _clock(answers, "find"):
            found = method.find(queries, budget)
        if len(found) != len(queries):
            raise ValueError(f"find returned {len(found)} results for {len(queries)} queries")
        for one in found:
            check_found(method, history, one, budget)
        return found
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        print(f"{method.name} failed on {history.name}", file=sys.stderr)
        return [f"{method.name}: {_reason(error)}"] * len(queries)


def _finish(
    wave: Sequence[_Asked],
    reader: RunReader,
    watch: Watch,
    pool: ThreadPoolExecutor | None,
    bar: Callable[[], object],
) -> None:
    """Read and calibrate; the rows come in the order of the wave."""

    def read(asked: _Asked) -> _Read:
        if isinstance(asked.found, str):
            return _Read(Draft(""), error=asked.found)
        watch.check()
        try:
            made = read_blocks(reader, asked.query.text, asked.found)
        except Exception as error:
            watch.failed(error)
            spent = getattr(error, "usage", TokenUsage())
            return _Read(Draft(""), (), *_known([spent]), error=_reason(error))
        finally:
            bar()
        if made.n_fresh:
            watch.replied()
        return made

    for asked, outcome in zip(
        wave, pool.map(read, wave) if pool is not None else map(read, wave), strict=True
    ):
        asked.answers.rows.append(_row(asked, outcome, reader.replies))


def read_blocks(reader: RunReader, question: str, found: Found) -> _Read:
    """Read each block alone; the most confident answer that is not empty holds.

    Raises
    ------
    ReaderError
        Where several blocks have an answer and the reader does not say how sure it is.
    """
    blocks = [block for block in found.blocks if block]
    if not blocks:  # nothing to read, and nothing to spend on it
        return _Read(Draft(""))
    readings = [reader.ask(question, block, profile=found.profile) for block in blocks]
    said = [i for i, r in enumerate(readings) if r.draft.text]
    if len(said) > 1 and any(readings[i].draft.confidence is None for i in said):
        raise ReaderError(
            f"{len(said)} of {len(blocks)} blocks have an answer, and the reader gives no "
            "confidence to choose by; run it with --logprobs, or with a context that holds the "
            "whole history"
        )
    best = max(said, key=lambda i: _confidence(readings[i]), default=0)
    return _Read(
        readings[best].draft,
        blocks[best],
        *_known([r.draft.usage for r in readings]),
        sum(r.seconds for r in readings),
        sum(r.fresh for r in readings),
    )


def _known(spent: Sequence[TokenUsage]) -> tuple[TokenUsage | None, int]:
    """All tokens, or None where some are not known; and all calls."""
    total = sum(spent, TokenUsage())
    return total if all(map(metered, spent)) else None, total.calls


def _confidence(reading: Reading) -> float:
    return reading.draft.confidence or 0.0  # None only where there is nothing to choose from


def _row(asked: _Asked, read: _Read, replies: ReplyCache) -> Answered:
    """Calibrate where the method does, and account for the sample."""
    shown = asked.found.evidence if isinstance(asked.found, Found) else ()
    ids = tuple(item.id for item in shown)
    tokens = {"evidence": sum(item.n_tokens for item in shown), "calls": read.n_calls}
    if (u := read.usage) is not None:
        tokens |= {"prompt": u.prompt, "cached": u.cached, "completion": u.completion}
    mine = asked.answers
    mine.seconds["read"] += read.seconds
    mine.n_fresh += read.n_fresh
    text, error = read.draft.text, read.error
    actions: tuple[str, ...] = ("keep",)
    if mine.calibrates and read.block and isinstance(asked.found, Found):
        try:
            with _clock(mine, "calibrate"):
                text, actions = _calibrate(asked.found, read, replies)
        except Exception as torn:
            traceback.print_exc(file=sys.stderr)
            error = f"calibration: {_reason(torn)}"
    if error is not None:
        return Answered(asked.question_id, "", "", (), ids, tokens, error=error)
    return Answered(asked.question_id, read.draft.text, text, actions, ids, tokens, read.seconds)


def _calibrate(found: Found, read: _Read, replies: ReplyCache) -> tuple[str, tuple[str, ...]]:
    """Answer calibration as ``Memory.answer`` does it, known by all that it depends on."""
    draft = read.draft

    def make() -> tuple[Any, TokenUsage]:
        text, steps, _ = calibrated(found.profile, read.block, draft)
        return [text, *(step.action for step in steps)], TokenUsage()

    said = repr((draft.text, draft.cited, draft.spans))
    key = key_of("calibrate", code_digest(), repr(found.profile), said, *map(repr, read.block))
    text, *actions = replies.ask("calibrate", key, make).value
    return text, tuple(actions)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, ReaderError) else f"{type(error).__name__}: {error}"


@contextmanager
def _clock(answers: Answers, stage: str) -> Iterator[None]:
    start = time.perf_counter()
    try:
        yield
    finally:
        answers.seconds[stage] += time.perf_counter() - start


@contextmanager
def _pool(jobs: int) -> Iterator[ThreadPoolExecutor | None]:
    """Threads for the reader; none where one call at a time is made."""
    if jobs == 1:
        yield None
        return
    with ThreadPoolExecutor(jobs, thread_name_prefix="reader") as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


@contextmanager
def _bar(dataset: Dataset, n_methods: int) -> Iterator[Callable[[], object]]:
    """A bar over answers on stderr, silent where nobody watches."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from tqdm import tqdm

    # Counting would make every context of a set that makes them when asked.
    known = isinstance(dataset.tasks, list | tuple)
    total = n_methods * sum(len(q) for _, q in dataset.tasks) if known else None
    with tqdm(total=total, desc=dataset.name, unit=" answers", file=sys.stderr) as bar:
        yield bar.update
