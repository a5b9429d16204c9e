"""Candidates that are phrases: things, names, clauses and the items of a list."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zeromem.answer.asked import Asked
from zeromem.answer.candidate import Candidate, closeness
from zeromem.answer.grammar import (
    antecedent,
    arguments,
    around_focus,
    governor,
    known,
    make,
    noun_phrase,
    verb_phrase,
)
from zeromem.answer.language import Token
from zeromem.answer.passages import Passages, Sentence
from zeromem.answer.relations import ANYBODY, OCCUPATION
from zeromem.answer.words import keys, related_to
from zeromem.text import canonical
from zeromem.types import AnswerType

_NAMED = re.compile(
    r"(?:\b(?:named|called|nicknamed)|\bname(?:['’]s|\s+is|\s+was|\s+will\s+be)|\bname\s+(?:him|her|it|them))\s+"
    r"(?:is\s+)?[\"“'‘]?(?P<n>[A-Z][\w'’\-]*(?:\s+(?:of\s+|the\s+)?[A-Z][\w'’\-]*)*)"
)

_WANTS_NAME = re.compile(r"(?i)\b(?:called|named|names?|title)\b")

_QUOTE = re.compile(r"[\"“]([^\"“”]{2,80})[\"”]")


def _named(asked: Asked, passages: Passages, s: Sentence, kind: AnswerType) -> Iterator[Candidate]:
    wanted = _WANTS_NAME.search(asked.text) is not None
    for m in _NAMED.finditer(s.text):
        name = m.group("n").rstrip("'’")
        if canonical(name) in asked.subjects:
            continue
        start = s.start + m.start("n")
        near = closeness(asked, passages, s, start, start + len(name))
        bonus = (0.6 if wanted else 0.15) + 0.2 * near
        yield Candidate(name, kind, canonical(name), s.item, start, start + len(name), bonus)
    for m in _QUOTE.finditer(s.text):
        near = closeness(asked, passages, s, s.start + m.start(1), s.start + m.end(1))
        text = m.group(1).rstrip(".,!?")
        start = s.start + m.start(1)
        bonus = 0.3 + 0.2 * near + 0.2 * wanted
        yield Candidate(text, kind, canonical(text), s.item, start, start + len(text), bonus)


def _kind_of_named(
    asked: Asked, passages: Passages, s: Sentence
) -> Iterator[tuple[tuple[int, int], float, Token]]:
    """For "What breed is Turbo?" the noun that has the name: "my terrier Turbo"."""
    names = {w for n in asked.subjects if n not in passages.speakers for w in n.split()}
    if asked.verb or not names or not _ASKS_KIND.search(asked.text):
        return
    for t in s.span:
        if t.lower_ not in names:
            continue
        head = t.head
        if t.dep_ == "appos" or (head.pos_ == "NOUN" and t.dep_ in ("compound", "oprd")):
            yield noun_phrase(head, tail=False), 0.6, head
        for child in t.children:
            if child.dep_ in ("appos", "compound") and child.pos_ == "NOUN":
                yield noun_phrase(child, tail=False), 0.6, child
        if head.lemma_ in ("be", "call", "name"):
            for child in head.children:
                if child.dep_ in ("attr", "nsubj") and child.i != t.i:
                    named = child if child.lemma_ not in ("name", "he", "she", "it") else None
                    named = named or antecedent(s, s.span[0])
                    if named is not None and named.pos_ == "NOUN":
                        yield noun_phrase(named, tail=False), 0.6, named


_ASKS_KIND = re.compile(r"(?i)^\W*(?:what|which)\b.*\b(?:is|was|are|were)\b")


def _chunks(
    asked: Asked, passages: Passages, s: Sentence
) -> Iterator[tuple[tuple[int, int], float, Token]]:
    wants_name = bool(asked.focus) or _WANTS_NAME.search(asked.text) is not None
    for chunk in s.span.noun_chunks:
        if chunk.start < s.span.start or chunk.end > s.span.end or chunk.root.pos_ == "PRON":
            continue
        bonus = 0.0
        if chunk.root.dep_ in ("dobj", "attr", "pobj", "conj"):
            bonus += 0.08
        if wants_name and any(t.pos_ == "PROPN" for t in chunk):
            bonus += 0.12
        if chunk.root.dep_ == "pobj" and chunk.root.head.lower_ == "of":
            bonus -= 0.12  # part of the phrase before it
        yield noun_phrase(chunk.root), bonus, chunk.root


_BECAUSE = re.compile(
    r"(?i)\b(?:because(?: of)?|since|so that|in order to|due to|thanks to|"
    r"as (?=i|he|she|they|we|it)|the reason (?:is|was)(?: that)?)\s+(.+)"
)

_PURPOSE = re.compile(r"(?i)\b((?:to|for)\s+\w+.*)")

_BY = re.compile(r"(?i)\b(?:by\s+(\w+ing\b[^,.;!?]*))")


def _manner(s: Sentence) -> Iterator[Candidate]:
    """Clauses beside the main one that say how it happened: "falling off a ladder"."""
    offset = s.start - s.span.start_char
    for t in s.span:
        if t.dep_ == "advcl" and t.tag_ == "VBG" and t.i > s.span.start:
            a, b = verb_phrase(t)
            last = s.span.doc[b - 1]
            start, end = offset + t.idx, offset + last.idx + len(last)
            text = s.span.doc[a:b].text.rstrip(" .,!?")
            yield Candidate(text, "text", canonical(text), s.item, start, end, 0.5)


def _reasons(asked: Asked, passages: Passages, s: Sentence) -> Iterator[Candidate]:
    """Clauses for why and how, and the whole sentence where there is none."""
    lowered = asked.text.lower()
    if re.match(r"\W*(?:.*\b)?why\b", lowered):
        tries = [(_BECAUSE, 0.6), (_PURPOSE, 0.25)]
    elif re.match(r"\W*(?:.*\b)?how\b", lowered):
        tries = [(_BY, 0.5)]
        yield from _manner(s)
    else:
        return
    for pattern, bonus in tries:
        if m := pattern.search(s.text):
            text = m.group(1).rstrip(" .!?,")
            start = s.start + m.start(1)
            yield Candidate(text, "text", canonical(text), s.item, start, start + len(text), bonus)
    if tries[0][0] is _BECAUSE and s.index + 1 < len(passages.by_item[s.item]):
        after = passages.by_item[s.item][s.index + 1]  # the reason often follows
        text = after.text.rstrip(" .!?")
        if not after.asks and text:
            yield Candidate(
                text, "text", canonical(text), s.item, after.start, after.start + len(text), 0.4
            )


_ACTION = re.compile(
    r"(?i)\bwhat\s+(?:else\s+)?(?:do|does|did|is|was|are|were|has|have|will|would)\b.*\b(?:do|doing|done|happen(?:ed)?|think|feel|say|said|plan\w*)\b"
)


def texts(
    asked: Asked, passages: Passages, s: Sentence, kind: AnswerType = "text"
) -> Iterator[Candidate]:
    """Phrases that a question for a thing, a name, a reason or an action may want."""
    yield from _named(asked, passages, s, kind)
    yield from _reasons(asked, passages, s)
    if re.match(r"(?i)\W*(?:\w+\s+)?(?:why|how)\b", asked.text):
        yield from _clause(asked, passages, s, kind)
        return
    if OCCUPATION.search(asked.text):
        yield from _occupation(asked, passages, s, kind)
    ranges = [*arguments(asked, passages, s), *around_focus(asked, passages, s)]
    if not OCCUPATION.search(asked.text):  # any noun of a sentence would do there
        ranges += [*_kind_of_named(asked, passages, s), *_chunks(asked, passages, s)]
    offset = s.start - s.span.start_char
    doc = s.span.doc
    for span, bonus, head in ranges:
        if known(asked, passages, doc[span[0] : span[1]]):
            continue
        if any(t.start <= offset + head.idx < t.end and t.kind != "duration" for t in s.times):
            continue
        a, b = offset + doc[span[0]].idx, offset + doc[span[1] - 1].idx + len(doc[span[1] - 1])
        near = closeness(asked, passages, s, a, b)
        bonus += 0.6 * from_source(asked, passages, head)
        if (c := make(passages, s, span, kind, bonus + 0.2 * near)) is not None:
            yield c
        if kind == "list" and head.pos_ in ("NOUN", "PROPN", "VERB"):
            for other in head.conjuncts:
                whole = noun_phrase(other) if other.pos_ != "VERB" else verb_phrase(other)
                if other.i > head.i and (c := make(passages, s, whole, kind, bonus + 0.2 * near)):
                    yield c
    yield from _clause(asked, passages, s, kind)


def _occupation(
    asked: Asked, passages: Passages, s: Sentence, kind: AnswerType
) -> Iterator[Candidate]:
    """What somebody does for a living: "I work as a nurse", "I'm a nurse", "two weeks a nurse"."""
    for t in s.span:
        one = t.pos_ == "NOUN" and any(c.lower_ in ("a", "an") for c in t.children)
        if t.lemma_.lower() in ANYBODY:
            continue
        if t.dep_ == "pobj" and t.head.lower_ == "as" and t.pos_ == "NOUN":
            bonus = 0.9
        elif t.dep_ == "attr" and t.head.lemma_ in ("be", "become") and one:
            mine = any(
                c.dep_ == "nsubj" and c.lower_ in ("i", "he", "she") for c in t.head.children
            )
            over = asked.present and t.head.tag_ == "VBD" and t.head.lemma_ == "be"
            bonus = (0.7 + 0.2 * (_AGENT.search(t.lemma_) is not None)) * mine - 0.6 * over
        elif one and _AGENT.search(t.lemma_) and t.dep_ not in ("nsubj", "dobj", "pobj", "conj"):
            bonus = 0.6
        elif t.dep_ == "pobj" and t.head.lower_ in ("at", "for") and t.pos_ == "PROPN":
            bonus = 0.3
        else:
            continue
        span = noun_phrase(t, tail=False)
        first = next((c.i for c in t.children if c.lower_ in ("a", "an")), span[0])
        if bonus and (c := make(passages, s, (first, span[1]), kind, bonus)) is not None:
            yield c


_AGENT = re.compile(r"(?i)\w{2,}(?:er|or|ist|ian|eer|smith|wright|ant|ent|wife|nurse|chef|guide)$")


def from_source(asked: Asked, passages: Passages, head: Token) -> bool:
    """Whether a noun comes from the giver that "get … from <giver>" names.

    The giver is the subject of the verb over the noun ("my colleagues chipped in for a lamp") or
    follows "from" there.
    """
    if asked.verb not in ("get", "receive", "have", "inherit", "borrow", "buy"):
        return False
    givers = [t for t in asked.doc if t.dep_ == "prep" and t.lower_ == "from"]
    said = {k for g in givers for t in g.subtree if t.pos_ in _MEANT for k in
            keys([t.lemma_])}  # fmt: skip
    wanted = set(said).union(*(related_to(k) for k in said)) if said else set()
    verb = governor(head)
    while wanted and verb is not None:
        for child in verb.children:
            named = child.dep_ == "nsubj" or child.lower_ == "from"
            inside = {t.i for t in child.subtree}
            if named and head.i not in inside:
                return bool(wanted & set(keys(t.lemma_ for t in child.subtree)))
        verb = governor(verb) if verb.dep_ in ("xcomp", "advcl") else None
    return False


_MEANT = ("NOUN", "PROPN", "VERB")


def _clause(asked: Asked, passages: Passages, s: Sentence, kind: AnswerType) -> Iterator[Candidate]:
    """The sentence's main verb phrase: what was done, or the best there is."""
    if OCCUPATION.search(asked.text):
        return
    if kind == "list" and asked.focus:  # "which vegetables" wants things, not deeds
        return
    root = next((t for t in s.span if t.dep_ == "ROOT"), None)
    wants = _ACTION.search(asked.text) is not None or re.match(r"(?i)\W*(?:how|why)\b", asked.text)
    if root is None or root.pos_ not in ("VERB", "AUX"):
        return
    if (c := make(passages, s, verb_phrase(root), kind, 0.35 if wants else 0.02)) is not None:
        yield c
