"""Candidates that are persons or places."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zeromem.answer.asked import Asked
from zeromem.answer.candidate import Candidate, closeness
from zeromem.answer.grammar import (
    arguments,
    around_focus,
    asks_subject,
    governor,
    known,
    make,
    noun_phrase,
    verbs,
)
from zeromem.answer.language import Token
from zeromem.answer.passages import Passages, Sentence
from zeromem.answer.relations import ENDS, PARTS
from zeromem.answer.words import key
from zeromem.text import canonical

_PLACE_PREPOSITIONS = frozenset(
    [
        "in",
        "at",
        "to",
        "from",
        "near",
        "into",
        "onto",
        "through",
        "around",
        "across",
        "on",
        "inside",
        "outside",
        "by",
        "along",
        "toward",
        "towards",
        "beside",
        "behind",
        "under",
        "over",
    ]
)

_PLACES = frozenset({"GPE", "LOC", "FAC"})

_KIN = re.compile(
    r"(?i)\b(?:mother|father|mom|mum|dad|parent|sister|brother|sibling|son|daughter|child|kid|wife|husband|"
    r"partner|girlfriend|boyfriend|fianc[ée]e?|aunt|uncle|cousin|niece|nephew|grand\w+|friend|neighbou?r|"
    r"colleague|co-?worker|teammate|boss|manager|teacher|mentor|coach|instructor|professor|doctor|therapist|"
    r"roommate|flatmate|landlord|landlady|classmate|family|team|group|organi[sz]ation)s?\b"
)  # fmt: skip


def people(asked: Asked, passages: Passages, s: Sentence) -> Iterator[Candidate]:
    """Persons: names, relations ("my mother" becomes "Ana's mother"), and who is speaking."""
    subject_asked = asks_subject(asked)
    told = [*arguments(asked, passages, s), *around_focus(asked, passages, s)]
    roles = {head.i: bonus for _, bonus, head in told}
    for verb in verbs(asked, passages, s):
        for child in verb.children:
            if child.dep_ == "nsubj" and subject_asked and child.lower_ in ("i", "we", "you"):
                yield from _speaking(asked, passages, s, child, 0.6)
    seen: set[int] = set()
    heads = [c.root for c in s.span.noun_chunks if s.span.start <= c.start and c.end <= s.span.end]
    heads += [h for _, _, h in told]
    for head in [*heads, *(x for h in heads for x in h.conjuncts)]:
        if head.i in seen or head.pos_ not in ("NOUN", "PROPN"):
            continue
        seen.add(head.i)
        head = _name_after(head)
        span = noun_phrase(head, tail=False)
        person = any(t.ent_type_ == "PERSON" for t in s.span.doc[span[0] : span[1]])
        related = _KIN.search(s.span.doc[span[0] : span[1]].text) is not None
        unknown_name = head.pos_ == "PROPN" and head.ent_type_ not in _PLACES | {"DATE", "TIME"}
        fit = 0.25 * person + 0.3 * related + 0.15 * unknown_name + roles.get(head.i, 0.0)
        meant = False
        if asked.focus and head.pos_ == "PROPN":  # "Who is Ana's sister?": "my sister Ida"
            own = key(asked.focus)
            meant = asked.names.get(key(head.text)) == own
            fit += 0.6 * meant
        if subject_asked and not any(t.is_alpha for t in s.span.doc[span[0] : span[1]]):
            continue
        repeats = not meant and known(asked, passages, s.span.doc[span[0] : span[1]])
        if not fit or repeats:
            continue
        c = make(passages, s, span, "person", fit)
        if c is not None and c.value not in asked.subjects:
            near = closeness(asked, passages, s, c.start, c.end)
            yield Candidate(c.text, c.kind, c.value, c.item, c.start, c.end, fit + 0.2 * near)


def _name_after(noun: Token) -> Token:
    """Prefer the name where one stands beside the relation: "my cousin Pia"."""
    for child in noun.children:
        if child.dep_ == "appos" and child.pos_ == "PROPN":
            return child
    after = noun.nbor() if noun.i + 1 < len(noun.doc) else noun
    return after if noun.pos_ == "NOUN" and after.text.istitle() and after.is_alpha else noun


def _speaking(
    asked: Asked, passages: Passages, s: Sentence, word: Token, bonus: float
) -> Iterator[Candidate]:
    offset = s.start - s.span.start_char
    names = [e.speaker for e in passages.evidence if e.speaker]
    mine = passages.evidence[s.item].speaker
    name = mine
    if word.lower_ == "you":
        others = list(dict.fromkeys(n for n in names if n != mine))
        name = others[0] if len(others) == 1 else None
    if name and canonical(name) not in asked.subjects:
        start = offset + word.idx
        yield Candidate(name, "person", canonical(name), s.item, start, start + len(word), bonus)


_EMPLOYED = frozenset({"work", "study", "employ", "intern", "volunteer"})

_RESIDE = frozenset({"live", "move", "reside", "settle", "grow", "bear", "stay"})

_FORMERLY = re.compile(
    r"(?i)\b(?:before|previous(?:ly)?|former(?:ly)?|used to|earlier|leave|left|quit)\b"
)


def places(asked: Asked, passages: Passages, s: Sentence) -> Iterator[Candidate]:
    """Places: named ones, and what a preposition of place governs; the asked preposition first."""
    roles = {head.i: bonus for _, bonus, head in arguments(asked, passages, s)}
    for chunk in s.span.noun_chunks:
        if chunk.start < s.span.start or chunk.end > s.span.end or chunk.root.pos_ == "PRON":
            continue
        head = chunk.root
        offset = s.start - s.span.start_char
        if any(t.start <= offset + head.idx < t.end for t in s.times):
            continue
        if head.pos_ == "NOUN" and (head.lemma_.lower() in PARTS or _KIN.fullmatch(head.text)):
            continue
        span = noun_phrase(head, tail=False)
        person = any(t.ent_type_ == "PERSON" for t in s.span.doc[span[0] : span[1]])
        named = any(t.ent_type_ in _PLACES for t in s.span.doc[span[0] : span[1]])
        prep = head.head.lower_ if head.dep_ == "pobj" else ""
        bonus = 0.4 * named + 0.15 * (prep in _PLACE_PREPOSITIONS) + 0.1 * (head.pos_ == "PROPN")
        if prep and prep == asked.preposition:
            bonus += 0.35
        elif asked.preposition == "from" and prep in ("to", "in"):
            bonus -= 0.3
        elif not asked.preposition and prep == "from":
            bonus -= 0.15
        if asked.verb in _RESIDE and head.pos_ == "NOUN" and not named:
            bonus -= 0.1
        if asked.verb in _EMPLOYED:
            bonus += 0.35 * (prep in ("at", "for", "with") and head.pos_ == "PROPN") - 0.4 * named
        if asked.focus in ("city", "town", "country", "state"):
            into = prep in ("in", "to", "from", "through") and head.pos_ == "PROPN"
            bonus += 0.15 if (named or into) and prep != "at" else -0.3
        if prep not in ("in", "to", "from"):  # "in Orta" is a place, whoever the annotator sees
            bonus -= 0.4 * person
        over = governor(head)
        if over is not None and over.lemma_ in ENDS:
            bonus += 0.5 if _FORMERLY.search(asked.text) else -0.4
        if bonus > 0 and head.i in roles:
            bonus += 0.2
        if bonus <= 0 or known(asked, passages, s.span.doc[span[0] : span[1]]):
            continue
        if (c := make(passages, s, span, "place", bonus)) is not None:
            near = closeness(asked, passages, s, c.start, c.end)
            yield Candidate(c.text, c.kind, c.value, c.item, c.start, c.end, bonus + 0.2 * near)
