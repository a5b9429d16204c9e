"""A reader without a language model: it quotes the evidence. Deterministic, zero LLM tokens."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from zeromem.answer.asked import Asked, read_question
from zeromem.answer.candidate import Candidate, governed
from zeromem.answer.extract import of_sentence
from zeromem.answer.kinds import of_kind
from zeromem.answer.language import NLP, Token, load_nlp
from zeromem.answer.passages import Passages, Sentence, read_passages
from zeromem.answer.reader import Draft
from zeromem.answer.relations import COMPLETION, OCCUPATION, PEOPLE, PLACES
from zeromem.answer.similarity import Encode, Sense, as_sense, compare
from zeromem.answer.support import Support, aliases, judge
from zeromem.answer.words import key, keys
from zeromem.ingest.encoders.base import Encoder
from zeromem.text import canonical
from zeromem.types import AnswerType, Evidence, QueryProfile, TemporalCue

# Below these shares of the question's words the evidence does not speak of the matter.
_MIN_OVERLAP: dict[AnswerType, float] = {"yes_no": 0.3, "text": 0.12, "list": 0.12}
_MIN_DENSE, _MIN_TOLD = 0.45, 0.2
_COVERED = 0.9  # one sentence says it all: nothing to bridge
_W_VERB = 0.25
_MAX_ITEMS = 6
_LOOKED_INTO = 30  # sentences


@dataclass(frozen=True, slots=True)
class _Scored:
    candidate: Candidate
    sentence: Sentence
    support: Support

    @property
    def score(self) -> float:
        return self.support.score + self.candidate.bonus


class ExtractiveReader:
    """Chooses the sentence that supports an answer best, and the span of the asked type in it.

    Parameters
    ----------
    nlp : callable, optional
        spaCy's English pipeline; loaded at the first question without it.
    encode : callable, Encoder or Sense, optional
        A sentence encoder's ``encode`` (texts to unit rows), the encoder itself, or the vectors of
        a memory: sentences then also count by their similarity with the question, which finds
        answers in other words.
    """

    def __init__(
        self, nlp: NLP | None = None, *, encode: Encode | Encoder | Sense | None = None
    ) -> None:
        self._nlp = nlp
        self._sense = as_sense(encode) if encode is not None else None

    def read(self, question: str, evidence: Sequence[Evidence], *, profile: QueryProfile) -> Draft:
        """Answer by quotation; an empty text where nothing in the evidence supports one."""
        if not evidence:
            return Draft("")
        nlp = self._nlp or load_nlp()
        passages = read_passages(evidence, nlp)
        if self._sense is not None and passages.sentences:
            alike = compare(passages, question, self._sense)
            passages = replace(passages, similarity=alike, encode=self._sense.encode)
        asked = read_question(profile, nlp)
        asked = replace(asked, names=aliases(asked, passages))
        asked = bridge(asked, passages, nlp)
        ranked = reported(asked, passages, newest(asked, passages, rank(asked, passages)))
        if profile.answer_type == "list" and asked.focus not in PEOPLE | PLACES:
            of = [_Scored(*x) for x in of_kind(asked, passages)]
            if of and (not ranked or ranked[0].candidate.text[:1].islower()):
                return _draft(of, ", ".join(x.candidate.text for x in of[:_MAX_ITEMS]))
        if not ranked:
            return Draft("")
        if profile.answer_type == "list":
            return _list(ranked, named=asked.focus in PEOPLE | PLACES)
        return _draft([ranked[0]], ranked[0].candidate.text)


def rank(asked: Asked, passages: Passages) -> list[_Scored]:
    """Supported candidates of the best sentences, best first; ties by place in the evidence."""
    scored = []
    judged = [(s, judge(asked, passages, s)) for s in passages.sentences]
    # Any noun of a sentence is a phrase: what lies far behind the best sentences is not looked at.
    many = _LOOKED_INTO if asked.profile.answer_type in ("text", "list") else len(judged)
    enough = heapq.nlargest(many, (j.score for _, j in judged))[-1:]
    for s, support in judged:
        if support.score < enough[0]:
            continue
        least = _MIN_OVERLAP.get(asked.profile.answer_type, 0.2)
        speaks = support.overlap >= least or support.dense >= _MIN_DENSE or _names(asked, s)
        if asked.weights and not (speaks or _typed(asked, passages, s)):
            continue
        if asked.subjects and not support.about:  # it is about somebody else
            continue
        for c in of_sentence(asked, passages, s):
            fits = _W_VERB * governed(asked, passages, s, c.start)
            scored.append(_Scored(replace(c, bonus=c.bonus + fits), s, support))
    return sorted(scored, key=lambda x: (-x.score, x.candidate.item, x.candidate.start))


def _typed(asked: Asked, passages: Passages, s: Sentence) -> bool:
    """Whether the form of the answer itself shows that the sentence speaks of the matter.

    An occupation is stated in no word of the question; that something was carried through or
    given up is told after it was first spoken of.
    """
    if OCCUPATION.search(asked.text):
        return True
    if asked.profile.answer_type != "yes_no" or not COMPLETION.search(asked.text):
        return False
    if passages.similarity.get((s.item, s.index), 0.0) < _MIN_TOLD:
        return False
    told = passages.evidence[s.item].lsn
    nouns = {key(t.lemma_) for t in asked.doc if t.pos_ == "NOUN"}
    return any(
        len(nouns & own) >= min(2, len(nouns)) and e.lsn <= told
        for e, own in zip(passages.evidence, passages.keys_of, strict=True)
    )


def _names(asked: Asked, s: Sentence) -> bool:
    """Whether the sentence names a subject that is no speaker: rare enough to be about it."""
    own = canonical(s.text).split()
    return any(n != s.speaker and set(n.split()) <= set(own) for n in asked.subjects)


def newest(asked: Asked, passages: Passages, ranked: list[_Scored]) -> list[_Scored]:
    """Asked for the present value of a thing: the newest sentence that states one of that thing.

    Only values of the best candidate's own form compete, from sentences with the same nouns of
    the question.
    """
    if not ranked or not asked.present:
        return ranked
    if OCCUPATION.search(asked.text):
        stated = [x for x in ranked if x.candidate.bonus >= _STATED]
        last = max(stated or ranked, key=lambda x: _said_at(passages, x))
        return [last, *(x for x in ranked if x is not last)]
    if asked.profile.answer_type not in ("number", "duration"):
        return ranked
    nouns = {key(t.lemma_) for t in asked.doc if t.pos_ == "NOUN"}
    best = ranked[0]
    things = nouns & best.support.matched
    unit = best.candidate.text.rsplit(" ", 1)[-1]
    when = [
        (e.time.start, x)
        for x in ranked
        if (e := passages.evidence[x.candidate.item]).time is not None
        and x.support.matched >= things
        and not x.sentence.asks
        and x.score >= best.score - _MAY_LACK
        and (unit[:1].isdigit() or x.candidate.text.endswith(unit))
    ]
    if not things or len(when) < 2:
        return ranked
    latest = max(t for t, _ in when)
    first = next(x for t, x in when if t == latest)
    return [first, *(x for x in ranked if x is not first)]


def reported(asked: Asked, passages: Passages, ranked: list[_Scored]) -> list[_Scored]:
    """Date an event without a date of its own by its first report, and not by a later mention."""
    if not ranked or asked.profile.answer_type != "date" or asked.present:
        return ranked
    best = ranked[0]
    if best.candidate.stated:
        return ranked
    alike = [
        x
        for x in ranked
        if not x.candidate.stated
        and not x.sentence.asks
        and x.support.matched >= best.support.matched
        and x.score >= best.score - _RETOLD
    ]
    first = min(alike, key=lambda x: _said_at(passages, x)[0], default=best)
    return [first, *(x for x in ranked if x is not first)]


_RETOLD = 0.4


def _said_at(passages: Passages, x: _Scored) -> tuple[float, float]:
    """When a candidate was said, then how good it is."""
    time = passages.evidence[x.candidate.item].time
    return (time.start.timestamp() if time is not None else -math.inf, x.score)


_MAY_LACK = 1.5
_STATED = 0.5  # bonus of a statement of occupation
_TITLES = frozenset(["mr", "mrs", "ms", "miss", "dr", "prof", "sir", "frau", "herr", "mister"])


def bridge(asked: Asked, passages: Passages, nlp: NLP) -> Asked:
    """Resolve "the woman who gave him the starter" first: a two-hop question in two steps.

    The clause is asked as a question of its own; its answer becomes a name of the noun, and the
    clause's words no longer count for the rest.
    """
    noun = next((t.head for t in asked.doc if t.dep_ == "relcl" and t.head.pos_ == "NOUN"), None)
    if (
        noun is None
        or noun.tag_ == "NNS"
        or any(
            judge(asked, passages, s).overlap > _COVERED for s in passages.sentences if not s.asks
        )
    ):
        return asked
    # All that follows the noun inside its phrase, as parsers hang parts of the clause on the noun.
    words = [t for t in noun.subtree if t.i > noun.i and not t.is_punct]
    if noun.lemma_.lower() not in PEOPLE and not any(t.lower_ == "who" for t in words):
        return asked
    words = [t for t in words if t.lower_ not in ("who", "that", "which", "whom")]
    words = words[: len(words) - _outer_tail(asked, words, nlp)]
    inside = {key(t.lemma_) for t in words}
    own = key(noun.lemma_)
    rest = {k: w for k, w in asked.weights.items() if k not in inside and k != own}
    if not rest or not words:
        return asked
    question = f"Who {' '.join(t.text for t in words)}?"
    inner = replace(asked.profile, text=question, answer_type="person", temporal=TemporalCue())
    found = rank(read_question(inner, nlp), passages)
    if not found:
        return asked
    named = [w for w in found[0].candidate.text.split() if w.rstrip(".").lower() not in _TITLES]
    names = {k: own for k in keys(named)}
    outer = read_question(replace(asked.profile, text=_without(asked, noun, words)), nlp)
    return replace(
        asked, weights={**rest, own: 1.0}, names={**asked.names, **names}, possessed=own,
        verb=outer.verb, preposition=outer.preposition,
    )  # fmt: skip


def _without(asked: Asked, noun: Token, words: Sequence[Token]) -> str:
    """The question with the noun alone in place of its description."""
    gone = {t.i for t in words} | {t.i for t in noun.subtree if t.lower_ in ("who", "that")}
    return " ".join(t.text for t in asked.doc if t.i not in gone)


def _outer_tail(asked: Asked, words: Sequence[Token], nlp: NLP) -> int:
    """How many of the clause's last words belong to the outer question ("… a banjo [live]").

    Parsers take the verb that ends "where does the woman who gave him a banjo live" for a part of
    the clause; the main verb is then missing, and a shorter question shows where it is.
    """
    root = next((t for t in asked.doc if t.dep_ == "ROOT"), None)
    if root is None or root.lower_ not in ("do", "does", "did"):
        return 0
    for n in range(1, min(len(words), 6)):
        tail = " ".join(t.text for t in words[-n:])
        verb = next(t for t in nlp(f"Where {root.text} she {tail}?") if t.i == 3)
        if verb.dep_ == "ROOT" and verb.pos_ == "VERB":
            return n
    return 0


def _draft(chosen: Sequence[_Scored], text: str) -> Draft:
    spans = tuple((x.candidate.item, x.candidate.start, x.candidate.end) for x in chosen)
    cited = tuple(dict.fromkeys(s[0] for s in spans))
    # The same score that chose it: comparable between questions, without a unit.
    return Draft(text, cited=cited, spans=spans, confidence=chosen[0].score)


def _list(ranked: Sequence[_Scored], *, named: bool) -> Draft:
    """The best items of every sentence whose support comes near the best one's."""
    best = ranked[0]
    top: dict[tuple[int, int], float] = {}
    for x in ranked:
        at = (x.sentence.item, x.sentence.index)
        top[at] = max(top.get(at, -1.0), x.candidate.bonus)
    kept: list[_Scored] = []
    for x in ranked:
        alike = x.candidate.text[:1].isupper() == best.candidate.text[:1].isupper()
        same = x.candidate.item == best.candidate.item and alike
        near = x.support.score >= best.support.score - (0.6 if same else 0.3)
        near = near and x.score >= best.score - (0.9 if alike and not named else 0.4)
        fits = x.candidate.bonus >= top[x.sentence.item, x.sentence.index] - 0.1
        if near and fits and all(not _same(x.candidate, k.candidate) for k in kept):
            kept.append(x)
    kept = kept[:_MAX_ITEMS]
    return _draft(kept, ", ".join(x.candidate.text for x in kept))


def _same(a: Candidate, b: Candidate) -> bool:
    if a.item == b.item and a.start < b.end and b.start < a.end:
        return True
    return a.value in b.value or b.value in a.value
