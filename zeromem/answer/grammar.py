"""Phrases of a parsed sentence, and those that stand where the question points."""

from __future__ import annotations

from collections.abc import Iterator

from zeromem.answer.asked import Asked
from zeromem.answer.candidate import Candidate
from zeromem.answer.language import Token
from zeromem.answer.passages import Passages, Sentence
from zeromem.answer.relations import COLORS, LIGHT_VERBS
from zeromem.answer.words import folded, key
from zeromem.text import canonical
from zeromem.types import AnswerType

_OBJECTS = {"dobj": 0.5, "attr": 0.45, "oprd": 0.5, "acomp": 0.4, "dative": 0.2, "appos": 0.3}

_CLAUSES = {"xcomp": 0.4, "ccomp": 0.35}

_OUTSIDE = frozenset(
    ["relcl", "advcl", "conj", "cc", "punct", "appos", "acl", "ccomp", "parataxis", "preconj"]
)


def noun_phrase(head: Token, *, tail: bool = True) -> tuple[int, int]:
    """Token range of a noun with its modifiers and "of …", without clauses and conjuncts."""
    left, right = head.i, head.i
    for child in head.children:
        if child.dep_ in _OUTSIDE or child.is_space:
            continue
        if child.i < head.i:
            left = min(left, child.left_edge.i)
        elif (
            tail
            and child.dep_ == "prep"
            and child.lower_ in ("of", "for", "about", "with", "by", "from", "in")
        ):
            end = _within(child)
            right = max(right, end)
        elif child.dep_ in ("prt", "nummod", "case", "compound", "flat", "nmod"):
            right = max(right, child.i)
    return left, right + 1


def _within(prep: Token) -> int:
    ends: list[int] = [prep.i]
    for obj in prep.children:
        if obj.dep_ in ("pobj", "pcomp"):
            ends.append(noun_phrase(obj, tail=obj.pos_ != "PRON")[1] - 1)
    return max(ends)


def verb_phrase(verb: Token, limit: int = 14) -> tuple[int, int]:
    """Token range of a verb with what follows it, up to the next clause."""
    right = verb.i
    for child in verb.children:
        if child.i < verb.i or child.dep_ in ("punct", "cc", "parataxis", "advcl", "npadvmod"):
            continue
        if child.dep_ == "conj" and child.i - verb.i > 6:
            continue
        right = max(right, child.right_edge.i)
    return verb.i, min(right + 1, verb.i + limit)


def make(
    passages: Passages, s: Sentence, span: tuple[int, int], kind: AnswerType, bonus: float
) -> Candidate | None:
    """A candidate of tokens ``[a, b)``; determiners go, "my" becomes its owner's name."""
    doc, (a, b) = s.span.doc, span
    while a + 1 < b and doc[a].pos_ == "AUX" and doc[a].lemma_ == "be":
        a += 1  # "was thrilled" answers by "thrilled"
    while a < b and (doc[a].pos_ in ("PUNCT", "SPACE", "CCONJ") or doc[a].lower_ in _LEADING):
        if (
            doc[a].text in ("The", "A")
            and a > s.span.start
            and b - a > 1
            and doc[a + 1].text.istitle()
        ):
            break  # "The Salt Path": part of the name
        a += 1
    while a < b and doc[b - 1].pos_ in ("PUNCT", "SPACE", "CCONJ") and doc[b - 1].text not in ')"”':
        b -= 1
    if a >= b:
        return None
    offset = s.start - s.span.start_char
    start, end = offset + doc[a].idx, offset + doc[b - 1].idx + len(doc[b - 1])
    text = passages.evidence[s.item].text[start:end].strip()
    owner = _owner(passages, s, doc[a].lower_)
    if owner and b - a > 1:
        text = f"{owner}{text[len(doc[a].text) :]}"
    value = canonical(text)
    if not value or all(t.pos_ in ("PRON", "DET", "PUNCT", "AUX") for t in doc[a:b]):
        return None
    return Candidate(text, kind, value, s.item, start, end, bonus)


_LEADING = frozenset(["the", "a", "an", "this", "that", "these", "those", "some", "such"])


def _owner(passages: Passages, s: Sentence, word: str) -> str:
    """Name whom "my" (who speaks) or "your" (the other, where there are two) belongs to."""
    if word == "my" and passages.evidence[s.item].speaker:
        return f"{passages.evidence[s.item].speaker}'s"
    if word == "your" and len(passages.speakers) == 2 and s.speaker:
        for e in passages.evidence:
            if e.speaker and canonical(e.speaker) != s.speaker:
                return f"{e.speaker}'s"
    return ""


def known(asked: Asked, passages: Passages, tokens: object) -> bool:
    """Whether a phrase only repeats the question: its content words and subjects are all there."""
    names = {w for subject in asked.subjects for w in subject.split()}
    words = [t for t in tokens if t.pos_ in ("NOUN", "PROPN", "VERB", "ADJ", "NUM")]  # type: ignore[attr-defined]
    return all(
        (own := key(t.lemma_)) in asked.said or own in asked.names or folded(t.text) in names
        for t in words
    )


def _complement(child: Token) -> tuple[int, int]:
    """Take the ranger of "to be a ranger", and all of "to open a shop"."""
    if child.lemma_ == "be":
        for c in child.children:
            if c.dep_ in ("attr", "acomp"):
                return noun_phrase(c)
    return child.left_edge.i, verb_phrase(child)[1]


def asks_subject(asked: Asked) -> bool:
    """The question word is the subject: "What helps Ana relax", "Which dog won"."""
    for t in asked.doc:
        if t.lower_ in ("who", "what", "which"):
            node = t.head if t.dep_ == "det" else t
            return node.dep_ in ("nsubj", "nsubjpass") and node.head.lemma_ != "be"
    return False


def _is_passive(asked: Asked) -> bool:
    return any(t.dep_ in ("nsubjpass", "auxpass") for t in asked.doc)


def verbs(asked: Asked, passages: Passages, s: Sentence) -> list[Token]:
    """Where the sentence has the question's verb, with its particle."""
    if not asked.verb or asked.verb in LIGHT_VERBS - {"get", "make", "take", "go", "give", "use"}:
        return []
    wanted = key(asked.verb)
    found = [
        t
        for t, own in zip(s.span, s.lemmas, strict=True)
        if own == wanted and t.pos_ in ("VERB", "AUX", "NOUN")
    ]
    if asked.particle:
        found = [t for t in found if any(c.lower_ == asked.particle for c in t.children)]
    return found


def arguments(
    asked: Asked, passages: Passages, s: Sentence
) -> Iterator[tuple[tuple[int, int], float, Token]]:
    """Arguments of the question's verb where the sentence has it, on the side that is asked for."""
    for verb in verbs(asked, passages, s):
        if asks_subject(asked):
            owner = verb
            while owner.dep_ in ("xcomp", "conj") and not any(
                c.dep_ == "nsubj" for c in owner.children
            ):
                owner = owner.head
            for child in owner.children:
                if child.dep_ in ("nsubj", "nsubjpass"):
                    yield noun_phrase(child), 0.5, child
                if child.dep_ == "agent":
                    yield from (
                        (noun_phrase(g), 0.55, g) for g in child.children if g.dep_ == "pobj"
                    )
            continue
        for child in verb.children:
            if child.dep_ == "dobj" and child.lower_ in ("it", "them", "one", "him", "her"):
                if (named := antecedent(s, child)) is not None:
                    yield noun_phrase(named), 0.45, named
            elif child.dep_ in _OBJECTS:
                yield _coordinated(asked, child), _OBJECTS[child.dep_], child
            elif child.dep_ in _CLAUSES:
                yield _complement(child), _CLAUSES[child.dep_], child
            elif child.dep_ in ("prep", "agent"):
                for obj in child.children:
                    if obj.dep_ == "pobj":
                        fits = bool(asked.preposition) and child.lower_ == asked.preposition
                        yield noun_phrase(obj), 0.6 if fits else 0.2, obj
            elif child.dep_ == "nsubjpass" and not _is_passive(asked):
                yield noun_phrase(child), 0.4, child


def _coordinated(asked: Asked, head: Token) -> tuple[int, int]:
    """Take all of "beans, peas and three trees", where one text answers."""
    span = noun_phrase(head)
    if asked.profile.answer_type != "text":
        return span
    for other in head.conjuncts:
        if other.i > head.i and other.pos_ in ("NOUN", "PROPN"):
            span = (span[0], max(span[1], noun_phrase(other)[1]))
    return span if span[1] - span[0] <= 14 else noun_phrase(head)


def antecedent(s: Sentence, pronoun: Token) -> Token | None:
    """The nearest noun before a pronoun, a name before other nouns; else the last sentence's."""
    before = [c.root for c in s.span.noun_chunks if c.end <= pronoun.i]
    if not any(t.pos_ in ("NOUN", "PROPN") for t in before) and s.span.start > 0:
        last = s.span.doc[s.span.start - 1].sent
        objects = [c.root for c in last.noun_chunks if c.root.dep_ in ("dobj", "attr")]
        return objects[-1] if objects else None
    nouns = [t for t in before if t.pos_ in ("NOUN", "PROPN") and t.head.lower_ != "of"]
    named = [t for t in nouns if t.pos_ == "PROPN"]
    return (named or nouns or [None])[-1]


def around_focus(
    asked: Asked, passages: Passages, s: Sentence
) -> Iterator[tuple[tuple[int, int], float, Token]]:
    """What the sentence says of the noun asked for: "my colour is teal", "a teal coat"."""
    if not asked.focus:
        return
    if asked.focus in ("color", "colour"):
        yield from (((t.i, t.i + 1), 0.6, t) for t in s.span if t.lower_ in COLORS)
        return
    wanted = key(asked.focus)
    for t, own in zip(s.span, s.lemmas, strict=True):
        if own != wanted:
            continue
        be = t.head
        if t.dep_ in ("nsubj", "nsubjpass") and be.lemma_ in ("be", "become"):
            for child in be.children:
                if child.dep_ in ("attr", "acomp", "oprd") and child.i > t.i:
                    yield noun_phrase(child), 0.65, child
                elif child.dep_ in ("xcomp", "ccomp", "advcl") and child.i > t.i:
                    yield (child.left_edge.i, verb_phrase(child)[1]), 0.5, child
        if t.dep_ in ("attr", "oprd") and be.lemma_ in ("be", "become"):
            for child in be.children:
                if child.dep_ == "nsubj" and child.pos_ not in ("PRON", "DET"):
                    yield noun_phrase(child), 0.5, child
        for child in t.children:
            if child.dep_ == "appos":
                yield noun_phrase(child), 0.55, child
            elif child.dep_ == "prep" and child.lower_ in ("like", "as", "including"):
                yield from ((noun_phrase(o), 0.55, o) for o in child.children if o.dep_ == "pobj")
        span = noun_phrase(t, tail=False)
        modifiers = [c for c in t.children if c.dep_ in ("amod", "compound", "nmod") and c.i < t.i]
        if modifiers and not known(asked, passages, modifiers):
            yield span, 0.4, t


def governor(token: Token) -> Token | None:
    """The verb that a word depends on."""
    while token.head.i != token.i:
        token = token.head
        if token.pos_ in ("VERB", "AUX"):
            return token
    return None
