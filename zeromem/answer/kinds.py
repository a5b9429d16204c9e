"""Lists of things of one kind: "which animals" finds a parrot that nobody calls an animal."""

from __future__ import annotations

from collections.abc import Iterator

from zeromem.answer.asked import Asked
from zeromem.answer.candidate import Candidate
from zeromem.answer.grammar import known, make
from zeromem.answer.language import Token
from zeromem.answer.passages import Passages, Sentence
from zeromem.answer.support import Support, judge
from zeromem.answer.words import key

# Cosine of a noun with "kinds of <kind>s"; and by how much a sentence's support may lie below that
# of the best one that has such a noun.
_IS_KIND, _MAY_LACK = 0.24, 0.75

# Their members have titles, which no vector of a noun finds.
_TITLED = frozenset(
    ["book", "movie", "film", "song", "game", "show", "series", "album", "play", "name", "title"]
)


def of_kind(asked: Asked, passages: Passages) -> list[tuple[Candidate, Sentence, Support]]:
    """Nouns of the asked kind in sentences about the question's subject, best sentence first.

    Parameters
    ----------
    asked : Asked
        A question for a list whose focus is the kind ("animal").
    passages : Passages
        With an encoder; there is nothing to compare nouns by without one.

    Returns
    -------
    list of (Candidate, Sentence, Support)
        One for each noun, where it is supported best.
    """
    if passages.encode is None or not asked.focus or asked.focus in _TITLED:
        return []
    kind = next((t.lower_ for t in asked.doc if t.lemma_.lower() == asked.focus), asked.focus)
    nouns = [(s, t) for s in passages.sentences if not s.asks for t in _nouns(s)]
    fits = passages.is_kind(kind, [_name(t) for _, t in nouns])
    found: dict[str, tuple[Candidate, Sentence, Support]] = {}
    for (s, t), fit in zip(nouns, fits, strict=True):
        if fit < _IS_KIND or known(asked, passages, [t]):
            continue
        support = judge(asked, passages, s)
        if asked.subjects and support.about < _ABOUT:
            continue
        c = make(passages, s, (_first(t), t.i + 1), "list", fit)
        if c is None:
            continue
        own = key(t.lemma_)
        if own not in found or support.score > found[own][2].score:
            found[own] = (c, s, support)
    ranked = sorted(found.values(), key=lambda x: (-x[2].score, x[0].item, x[0].start))
    return [x for x in ranked if x[2].score >= ranked[0][2].score - _MAY_LACK]


_ABOUT = 0.8


def _nouns(s: Sentence) -> Iterator[Token]:
    for t in s.span:
        named = t.ent_type_ in ("PERSON", "DATE", "TIME", "GPE", "ORG")
        if t.pos_ == "NOUN" and not (named and t.text[:1].isupper()):
            yield t


def _first(noun: Token) -> int:
    """Where its name begins: "apple tree" with the nouns that make one word with it."""
    inside = [c.i for c in noun.children if c.dep_ == "compound" and c.pos_ == "NOUN"]
    return int(min([*inside, noun.i]))


def _name(noun: Token) -> str:
    return " ".join(t.lemma_.lower() for t in noun.doc[_first(noun) : noun.i + 1])
