"""How well a sentence of the evidence supports an answer to a question."""

# ruff: noqa: SIM905 - lists of words read as words
from __future__ import annotations

import re
from dataclasses import dataclass

from zeromem.answer.asked import Asked
from zeromem.answer.passages import Passages, Sentence
from zeromem.answer.relations import FEMALE, MALE, PARAPHRASES
from zeromem.answer.words import folded, key, keys, related_to
from zeromem.text import canonical, is_stop
from zeromem.timex import resolve

_FIRST = frozenset(["i", "me", "my", "mine", "myself", "we", "us", "our", "ours"])
_THIRD = frozenset("he him his she her hers it its they them their".split())
_SECOND = frozenset(["you", "your", "yours", "yourself"])

# Weights by reasoning: what is asked about outweighs who is asked about; the rank counts as much as
# the latter, as retrieval knows more of an item than its words.
_W_DENSE = 1.5
_W_OVERLAP, _W_ABOUT, _W_RANK, _W_TIME, _W_NEW = 1.0, 0.3, 0.4, 0.3, 0.25
_NEAR, _RELATED, _REPLY, _ADJACENT, _OTHER_SENSE = 0.5, 0.7, 0.5, 0.3, 0.5
_NEAR_QUALITY = 0.2
_P_QUESTION = 0.25


@dataclass(frozen=True, slots=True)
class Support:
    """A sentence's score and the parts it is made of.

    Attributes
    ----------
    score : float
    overlap : float
        Share of the question's weighted content words found in or around the sentence, in [0, 1].
    about : float
        1 where the sentence is about the question's subject, 0 where about somebody else.
    matched : frozenset of str
        Keys found in the sentence itself.
    dense : float
        Cosine with the question; 0 without an encoder.
    """

    score: float
    overlap: float
    about: float
    matched: frozenset[str]
    dense: float = 0.0


def aliases(asked: Asked, passages: Passages) -> dict[str, str]:
    """Names that the evidence gives to the question's nouns: "my brother Luis", "named Biscuit".

    Returns
    -------
    dict
        Key of the name's word to the key of the noun.
    """
    nouns = {key(t.lemma_) for t in asked.doc if t.pos_ == "NOUN"}
    nouns &= set(asked.weights)
    found: dict[str, str] = {}
    for s in passages.sentences:
        if s.asks or not nouns & passages.keys_of[s.item]:
            continue
        for m in _NAMED.finditer(s.text):
            noun = key(m.group("n1") or m.group("n2") or m.group("n3"))
            name = m.group("a1") or m.group("a2") or m.group("a3")
            if noun in nouns and canonical(name) not in passages.speakers:
                words = [w for w in name.split() if not is_stop(w.lower())]
                found.update((k, noun) for k in keys(words))
    return found


_NAME = r"[A-ZÀ-Þ][\w'’\-]+(?:\s+[A-ZÀ-Þ][\w\-]+)?"
_OWN = r"(?:my|our|his|her|their|your|the|a|an|[A-Z]\w+['’]s)"
_NAMED = re.compile(
    rf"\b(?i:{_OWN})\s+(?:[a-z\-]+\s+){{0,2}}?(?P<n1>[a-z]+),?\s+"
    rf"(?i:(?:who\s+is\s+|is\s+|that\s+is\s+|is\s+)?(?:named|called)\s+|(?:['’]s)?\s*name\s+is\s+)?(?P<a1>{_NAME})"
    rf"|\b(?P<a2>{_NAME}),?\s+(?:is\s+)?(?i:{_OWN})\s+(?:[a-z\-]+\s+){{0,2}}?(?P<n2>[a-z]+)\b"
    rf"|\b(?P<n3>[a-z]+)['’]s\s+name(?:['’]s|\s+is|\s+was)\s+(?P<a3>{_NAME})"
)


def judge(asked: Asked, passages: Passages, sentence: Sentence) -> Support:
    """Score one sentence.

    Parameters
    ----------
    asked : Asked
        With its ``names`` filled in, where the evidence gives any.
    passages : Passages
    sentence : Sentence
    """
    around = passages.keys_of[sentence.item]
    also = {n for k, n in asked.names.items() if k in sentence.keys}
    near = around | {n for k, n in asked.names.items() if k in around}
    beside = _adjacent(passages, sentence.item)
    replied = _replied_to(passages, sentence)
    verb = key(asked.verb) if asked.verb else ""
    # "The direct train": said of another row of the same timetable, it does not describe this one.
    total = hit = 0.0
    matched = set()
    for word_key, weight in asked.weights.items():
        w = weight * passages.idf(word_key)
        total += w
        if word_key in sentence.keys or word_key in also:
            hit += w * (_OTHER_SENSE if _other_sense(asked, passages, sentence, word_key) else 1.0)
            matched.add(word_key)
        elif word_key in near:
            hit += w * (_NEAR_QUALITY if word_key in asked.qualities else _NEAR)
        elif related_to(word_key) & sentence.keys or (
            word_key == verb and said_otherwise(asked.verb, sentence)
        ):
            hit += w * _RELATED
        elif word_key in replied:
            hit += w * _REPLY
        elif word_key in beside:
            hit += w * _ADJACENT
    overlap = hit / total if total else 0.0
    about = 1.0 if also else subject_match(asked, passages, sentence)
    # Words of the question in somebody else's mouth say little about its subject.
    score = _W_OVERLAP * overlap * (0.25 + 0.75 * about) + _W_ABOUT * about
    dense = passages.similarity.get((sentence.item, sentence.index), 0.0)
    score += _W_DENSE * max(dense, 0.0)
    score += _W_RANK / (1 + 0.3 * sentence.item) + _W_TIME * _in_time(asked, passages, sentence)
    if asked.present:
        score += _W_NEW * passages.newness(sentence.item)
    if sentence.asks:
        score -= _P_QUESTION
    return Support(score, overlap, about, frozenset(matched), dense)


def said_otherwise(verb: str, sentence: Sentence) -> bool:
    """Whether the sentence speaks of the verb's event in other words: "had a girl" for born."""
    pattern = PARAPHRASES.get(verb)
    return pattern is not None and re.search(rf"(?i)\b(?:{pattern})", sentence.text) is not None


def _other_sense(asked: Asked, passages: Passages, sentence: Sentence, word_key: str) -> bool:
    """The question's verb, but as a noun ("for work") or without its particle ("turned 35")."""
    if not asked.verb or word_key != key(asked.verb):
        return False
    same = [t for t, k in zip(sentence.span, sentence.lemmas, strict=True) if k == word_key]
    if asked.particle and not any(c.lower_ == asked.particle for t in same for c in t.children):
        return True
    return bool(same) and not any(t.pos_ in ("VERB", "AUX", "ADJ") for t in same)


def _replied_to(passages: Passages, sentence: Sentence) -> frozenset[str]:
    """Words of the question that the turn before asked, where this sentence opens the reply."""
    if sentence.index > 1 or sentence.asks:
        return frozenset()
    for i in passages.replied_to(sentence.item):
        asking = [s.keys for s in passages.by_item[i] if s.asks]
        return asking[-1] if asking else frozenset()
    return frozenset()


def _adjacent(passages: Passages, item: int) -> frozenset[str]:
    """Words of the turns before and after, where they are among the evidence."""
    return frozenset().union(*(passages.keys_of[i] for i in passages.nearby(item, 1)))


def subject_match(asked: Asked, passages: Passages, sentence: Sentence) -> float:
    """Whether a sentence is about a subject of the question: "I" is its speaker, "you" the other.

    Returns
    -------
    float
        1 about it, 0 about another; 0.5 where the question names nobody or nobody speaks.
    """
    if not asked.subjects:
        return 0.5
    known = [n for n in asked.subjects if _is_known(n, passages)]
    scores = [_one_subject(n, passages, sentence, asked.possessed) for n in known or asked.subjects]
    mean = sum(scores) / len(scores)
    if asked.possessed:
        return max(mean, 0.2) * _of_possessed(asked, passages, sentence)
    return mean


def _of_possessed(asked: Asked, passages: Passages, sentence: Sentence) -> float:
    """Look for the cat of "Ana's cat", not for Ana: itself, its name, or "she" after it."""
    if asked.possessed in sentence.keys:
        return 1.0
    fitting = _pronouns(asked, passages)
    third = bool(fitting & sentence.words)
    spoken_of = [s for s in passages.by_item[sentence.item] if s.index < sentence.index]
    before = {k for s in spoken_of for k in s.keys}
    if third and (asked.possessed in before or any(n in before for n in asked.names)):
        return 1.0
    return 0.5 if asked.possessed in passages.keys_of[sentence.item] else 0.3


def _pronouns(asked: Asked, passages: Passages) -> frozenset[str]:
    """Pronouns that can stand for what the question is about: no "he" for a woman."""
    for nouns, other in ((FEMALE, ("he", "him", "his")), (MALE, ("she", "her", "hers"))):
        if asked.possessed in keys(sorted(nouns)):
            return _THIRD.difference(other, ("it", "its"))
    return _THIRD


def _one_subject(subject: str, passages: Passages, sentence: Sentence, possessed: str) -> float:
    words = sentence.words
    item = passages.evidence[sentence.item]
    if _mentions(subject, sentence.folded) or _mentions(subject, folded(item.trace.title or "")):
        return 1.0
    if sentence.speaker == subject:
        if possessed and words & _THIRD:
            return 1.0
        if words & _FIRST:
            return 1.0
        if _about_another(sentence):
            return 0.0
        return 0.4 if words & _SECOND else 0.8
    if subject in passages.speakers:
        return 0.7 if sentence.speaker and words & _SECOND else 0.4 * (not sentence.speaker)
    # Another name: "she" in an item that names her, or the turn before does.
    if _mentions(subject, passages.said[sentence.item]):
        return 0.8 if words & _THIRD else 0.6
    near = passages.nearby(sentence.item, 3 if words & _THIRD else 1)
    if any(_mentions(subject, passages.said[i]) for i in near):
        return 0.5 if words & _THIRD else 0.2
    return 0.0


def _mentions(name: str, text: str) -> bool:
    """Whether a text in canonical form has a name as whole words."""
    return name in text and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def _is_known(name: str, passages: Passages) -> bool:
    if name not in passages.known:
        passages.known[name] = name in passages.speakers or name in passages.everything
    return passages.known[name]


def _about_another(sentence: Sentence) -> bool:
    """Its subject is a name or "he", "she": what the speaker says of somebody else."""
    return any(
        t.dep_ in ("nsubj", "nsubjpass")
        and (t.lower_ in ("he", "she", "they") or (t.pos_ == "PROPN" and t.ent_type_ == "PERSON"))
        for t in sentence.span
    )


def _in_time(asked: Asked, passages: Passages, sentence: Sentence) -> float:
    """1 where the sentence speaks of (or in) the period that the question names, else 0."""
    cue = asked.profile.temporal
    if cue.start is None and cue.end is None:
        return 0.0
    time = passages.evidence[sentence.item].time
    periods = [(p.start, p.end) for t in sentence.times if (p := resolve(t, time)) is not None]
    if not periods and time is not None:
        periods = [(time.start, time.end)]
    for start, end in periods:
        if (cue.end is None or start < cue.end) and (cue.start is None or cue.start < end):
            return 1.0
    return 0.0
