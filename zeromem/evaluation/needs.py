"""What a question needed of a gold item that retrieval missed, by rules in a fixed order.

The rules read labels: this is analysis after the fact, and nothing of it reaches retrieval.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from zeromem.evaluation.types import History
from zeromem.index import Index
from zeromem.index.segment import TITLE
from zeromem.ingest.standing import instructs_reader, states_preference
from zeromem.query.questions import without_names
from zeromem.text import canonical, is_stop, terms
from zeromem.timex import find_times
from zeromem.types import QueryProfile, Trace

HALF = 0.5
"""Share of a question's content terms at which a turn counts as holding its words."""
NEAR = 2
"""Turns on either side in which a pronoun's subject is looked for."""

# As LoCoMo's importer writes it.
_PICTURE = re.compile(r"\[picture: (.*)\]\s*\Z", re.DOTALL)
_CAPTIONS = ("caption", "blip_caption")
_PRONOUN = re.compile(
    r"\b(?:he|she|it|they|him|her|them|his|hers|its|their|theirs|this|that|these|those|one)\b",
    re.IGNORECASE,
)
_OF_TIME = ("when", "at", "before", "after", "between", "duration")


class Reading:
    """A history as the rules read it.

    Parameters
    ----------
    history : History
    index : Index
        The engine's, of exactly this history.
    lsn : sequence of int
        Where the log holds each trace, ascending.

    Attributes
    ----------
    trace : dict of str to Trace
        By id.
    speakers : frozenset of str
        Canonical names.
    assisted : bool
        Whether an assistant speaks.
    """

    def __init__(self, history: History, index: Index, lsn: Sequence[int]) -> None:
        self.trace = {trace.id or "": trace for trace in history.traces}
        self.speakers = frozenset(canonical(t.speaker) for t in history.traces if t.speaker)
        self.assisted = any(t.role == "assistant" for t in history.traces)
        self._arrays = index.arrays
        self._lsn = dict(zip(self.trace, lsn, strict=True))
        self._words: dict[str, frozenset[str]] = {}
        sessions: dict[str, list[str]] = {}
        for id in self.trace:
            sessions.setdefault(history.session_of[id], []).append(id)
        self._session = {id: ids for ids in sessions.values() for id in ids}
        self._place = {id: i for ids in sessions.values() for i, id in enumerate(ids)}

    def words(self, text: str) -> frozenset[str]:
        """Content terms of a text."""
        if text not in self._words:
            self._words[text] = frozenset(t for t in terms([text])[0] if not is_stop(t))
        return self._words[text]

    def names(self, id: str) -> frozenset[int]:
        """Entities and titles that a trace mentions, its own title included, as the graph has it.

        Speakers are left out there: friends name each other all the time.
        """
        graph = self._arrays.graph
        first, last = self._rows(id)
        return frozenset(
            graph.mention_entity[graph.mention_indptr[first] : graph.mention_indptr[last]].tolist()
        )

    def title(self, id: str) -> dict[int, str]:
        """Entities that are a trace's own title, with their canonical names."""
        first, last = self._rows(id)
        turn, place, entity = self._arrays.turns.mentions.T
        own = entity[(place == TITLE) & (turn >= first) & (turn < last)]
        return {e: self._arrays.turns.entities.name(e) for e in own.tolist()}

    def before(self, id: str) -> Trace | None:
        """Return the trace before in the session."""
        at = self._place[id]
        return self.trace[self._session[id][at - 1]] if at else None

    def near(self, id: str) -> list[Trace]:
        """Return the traces within ``NEAR`` places in the session."""
        at, session = self._place[id], self._session[id]
        beside = session[max(at - NEAR, 0) : at] + session[at + 1 : at + 1 + NEAR]
        return [self.trace[other] for other in beside]

    def _rows(self, id: str) -> tuple[int, int]:
        first, last = np.searchsorted(self._arrays.turns.lsn, [self._lsn[id], self._lsn[id] + 1])
        return int(first), int(last)


@dataclass(frozen=True)
class Case:
    """A missed gold item beside its question and what was retrieved instead.

    Attributes
    ----------
    reading : Reading
    asked : QueryProfile
        With the names that the index knows.
    gold : str
        Id of the missed trace.
    n_gold : int
        Gold items of the question.
    found : frozenset of str
        Gold items in the first k.
    top : frozenset of str
        The first k.
    left_out : bool
        Whether it was in the first k until calibration (eq. 15) left it out.
    """

    reading: Reading
    asked: QueryProfile
    gold: str
    n_gold: int
    found: frozenset[str]
    top: frozenset[str]
    left_out: bool = False

    @property
    def trace(self) -> Trace:
        return self.reading.trace[self.gold]

    @cached_property
    def named(self) -> frozenset[str]:
        """Speakers that the question names."""
        return self.reading.speakers.intersection(self.asked.subjects)

    @cached_property
    def wanted(self) -> frozenset[str]:
        """Content terms of the question, without the names of speakers."""
        return self.reading.words(without_names(self.asked.text, self.named))

    def share(self, *texts: str | None) -> float:
        """Part of the wanted terms that texts hold together; 0 where nothing is wanted."""
        held = frozenset[str]().union(*(self.reading.words(text) for text in texts if text))
        return len(self.wanted & held) / len(self.wanted) if self.wanted else 0.0

    @cached_property
    def own(self) -> float:
        """Part of the wanted terms that the missed trace holds, its title included."""
        return self.share(self.trace.text, self.trace.title)

    @cached_property
    def around(self) -> frozenset[int]:
        """Entities and titles that the first k mention, found gold among them."""
        return frozenset[int]().union(*(self.reading.names(id) for id in self.top))


def _caption(case: Case) -> bool:
    picture = _PICTURE.search(case.trace.text)
    given = [str(case.trace.metadata[k]) for k in _CAPTIONS if case.trace.metadata.get(k)]
    said = case.trace.text[: picture.start()] if picture else case.trace.text
    captions = [*([picture.group(1)] if picture else []), *given]
    return case.share(*captions) > 0 and case.share(said) == 0


def _instruction(case: Case) -> bool:
    trace = case.trace
    if not case.reading.assisted or trace.role != "user":
        return False
    return instructs_reader(trace.text) or (case.asked.asks_help and states_preference(trace.text))


def _bridge(case: Case) -> bool:
    title = case.reading.title(case.gold)
    if title and not set(title.values()).intersection(case.asked.subjects):
        return not case.around.isdisjoint(title)
    if not case.wanted or case.own > 0:
        return False
    return not case.around.isdisjoint(case.reading.names(case.gold))


def _other_speaker(case: Case) -> bool:
    speaker = case.trace.speaker
    return len(case.named) == 1 and speaker is not None and canonical(speaker) not in case.named


def _reply(case: Case) -> bool:
    before, trace = case.reading.before(case.gold), case.trace
    if before is None or (before.speaker, before.role) == (trace.speaker, trace.role):
        return False
    # An assistant's prompt may be an order; among people only a question is answered.
    if trace.role != "assistant" and "?" not in before.text:
        return False
    return case.own < HALF <= case.share(before.text)


def _coreference(case: Case) -> bool:
    if case.own >= HALF or _PRONOUN.search(case.trace.text) is None:
        return False
    return any(case.share(other.text) >= HALF for other in case.reading.near(case.gold))


def _date(case: Case) -> bool:
    asks = case.asked.temporal.kind in _OF_TIME or case.asked.answer_type in ("date", "duration")
    return asks and all(time.kind != "date" for time in find_times(case.trace.text))


def _list(case: Case) -> bool:
    return case.n_gold > 1 and bool(case.found)


@dataclass(frozen=True)
class Rule:
    """A kind of miss.

    Attributes
    ----------
    kind : str
    means : str
        When it holds, in words.
    holds : callable
    """

    kind: str
    means: str
    holds: Callable[[Case], bool]


RULES: tuple[Rule, ...] = (
    Rule(
        "calibrated away",
        "it was in the first k until calibration took it for superseded",
        lambda case: case.left_out,
    ),
    Rule(
        "picture caption",
        "the picture's caption has words of the question, what was said has none",
        _caption,
    ),
    Rule(
        "standing instruction",
        "the user told an assistant how to act from now on, or, where the question asks for help, "
        "what they prefer",
        _instruction,
    ),
    Rule(
        "bridge entity",
        "an item of the first k mentions its title, which the question does not name; or it has no "
        "word of the question and shares an entity with an item of the first k",
        _bridge,
    ),
    Rule(
        "other speaker",
        "the question names one speaker and somebody else says it",
        _other_speaker,
    ),
    Rule(
        "reply",
        "an assistant's reply, or anybody's to a question: what it answers has half of the "
        "question's words, it has fewer",
        _reply,
    ),
    Rule(
        "coreference",
        "it has a pronoun and fewer than half of the question's words; a turn within two has half",
        _coreference,
    ),
    Rule(
        "date arithmetic",
        "the question asks for or names a time or a duration, and no date stands in it",
        _date,
    ),
    Rule(
        "list completeness",
        "one of several gold items, of which at least one is in the first k",
        _list,
    ),
    Rule(
        "paraphrase",
        "it has no word of the question",
        lambda case: bool(case.wanted) and case.own == 0,
    ),
    Rule(
        "partial paraphrase",
        "it has some of the question's words, fewer than half",
        lambda case: 0 < case.own < HALF,
    ),
    Rule(
        "crowded out",
        "it has half of the question's words or more, and others rank higher",
        lambda case: case.own >= HALF,
    ),
    Rule("other", "the question has no content word", lambda case: True),
)
"""In order: a miss is of the first kind whose rule holds. Words are content terms in the lexical
index's form, without stop words and names of speakers."""


def kinds(case: Case) -> tuple[str, ...]:
    """Return every kind whose rule holds, in order; the first is the miss's own."""
    held = tuple(rule.kind for rule in RULES[:-1] if rule.holds(case))
    return held or (RULES[-1].kind,)


def describe(present: Iterable[str]) -> list[tuple[str, str]]:
    """Return the kinds among ``present`` with their meaning, in the order of the rules."""
    wanted = set(present)
    return [(rule.kind, rule.means) for rule in RULES if rule.kind in wanted]
