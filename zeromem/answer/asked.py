"""A question as what its answer must contain."""

# ruff: noqa: SIM905 - lists of words read as words
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zeromem.answer.language import NLP, Doc, Token
from zeromem.answer.parsed import MAX_PARSED
from zeromem.answer.relations import CONTROL_VERBS, LIGHT_VERBS, OCCUPATION
from zeromem.answer.words import key
from zeromem.text import canonical, is_stop, sanitize
from zeromem.timex import find_times
from zeromem.timex_calendar import WEEKDAYS
from zeromem.types import QueryProfile

_CONTENT = frozenset({"NOUN", "PROPN", "VERB", "ADJ", "ADV", "NUM", "X", "INTJ", "SYM"})


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What a question asks, read off its parse.

    Attributes
    ----------
    profile : QueryProfile
    doc : spaCy Doc
    weights : dict
        Key of each content word with its share of importance (1 is full).
    focus : str
        Lemma of the noun asked for ("city" in "which city"); empty without one.
    verb : str
        Lemma of the main verb; empty for a copula.
    preposition : str
        Stranded or fronted preposition of the question word ("from" in "where … from").
    subjects : tuple of str
    particle : str
        Of the main verb ("down" in "turn down").
    present : bool
        Asks for the present state: the newest evidence counts most.
    possessed : str
        Key of the noun that the question is really about ("cat" in "what is Ana's cat called").
    qualities, said : frozenset of str
        Keys of its adjectives, and of all its words.
    names : mapping
        Key of a name to the key of the question's noun that it names (see ``support.aliases``).
    """

    profile: QueryProfile
    doc: Doc
    weights: dict[str, float]
    focus: str
    verb: str
    preposition: str
    subjects: tuple[str, ...]
    particle: str = ""
    present: bool = False
    possessed: str = ""
    qualities: frozenset[str] = frozenset()
    said: frozenset[str] = frozenset()
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return self.profile.text


_WH = frozenset(["who", "whom", "whose", "what", "which", "where", "when", "why", "how"])


def read_question(profile: QueryProfile, nlp: NLP) -> Asked:
    """Parse the question.

    Its subjects' names weigh nothing here: who a sentence is about is judged apart.
    """
    doc = nlp(sanitize(" ".join(profile.text.split())[:MAX_PARSED]))
    focus = _focus(doc)
    verb = _main_verb(doc)
    names = {w for s in profile.subjects for w in s.split()}
    timed = [(t.start, t.end) for t in find_times(doc.text)]
    weights: dict[str, float] = {}
    for token in doc:
        low = token.lemma_.lower()
        named = canonical(token.text) in names and not token.text.islower()
        if token.pos_ not in _CONTENT or low in _WH or named:
            continue
        inside = any(a <= token.idx < b for a, b in timed)
        if inside and token.text not in WEEKDAYS:  # a weekday is said as it is asked
            continue
        if token.i and doc[token.i - 1].lower_ == "how":  # "how long", "how old": not words to find
            continue
        if is_stop(token.text) or (low in LIGHT_VERBS and token.pos_ in ("VERB", "AUX")):
            continue
        if not any(c.isalnum() for c in low):
            continue
        weight = 0.5 if inside or (focus is not None and token.i == focus.i) else 1.0
        if low in ("name", "title", "call"):  # what has the name is what must be found
            weight = 0.2
        weight *= 0.6 if token.pos_ == "ADV" else 1.0
        weight *= 1.3 if verb is not None and token.i == verb.i else 1.0
        word_key = key(low)
        weights[word_key] = max(weights.get(word_key, 0.0), weight)
    if OCCUPATION.search(doc.text):  # none of its words is the one to look for
        weights |= {key("work"): 1.0}
    if not weights:  # "What does she want to be?": better a common word than none
        for token in doc:
            if token.pos_ in ("VERB", "NOUN", "ADJ") and token.lemma_.lower() not in _WH:
                weights[key(token.lemma_)] = 0.5
    return Asked(
        profile, doc, weights, focus.lemma_.lower() if focus is not None else "",
        verb.lemma_.lower() if verb is not None else "", _preposition(doc), profile.subjects,
        next((c.lower_ for c in verb.children if c.dep_ == "prt"), "") if verb is not None else "",
        _is_present(doc, profile),
        _possessed(doc, focus, profile),
        frozenset(key(t.lemma_) for t in doc if t.pos_ == "ADJ"),
        frozenset(key(t.lemma_) for t in doc),
    )  # fmt: skip


def _question_word(doc: Doc) -> Token | None:
    return next((t for t in doc if t.lower_ in _WH), None)


def _focus(doc: Doc) -> Token | None:
    """The noun that the question word stands for: "which [city]", "what is Ana's [job]"."""
    wh = _question_word(doc)
    if wh is None:
        return None
    if wh.lower_ == "how" and wh.i + 1 < len(doc) and doc[wh.i + 1].lower_ == "many":
        head = doc[wh.i + 1].head
        return head if head.pos_ in ("NOUN", "PROPN") and head.i > wh.i else None
    if wh.lower_ in ("what", "which", "whose", "how") and wh.i + 1 < len(doc):
        head = wh.head
        if head.pos_ in ("NOUN", "PROPN") and head.i > wh.i and head.i - wh.i <= 5:
            after = doc[head.i + 1] if head.i + 2 < len(doc) else head
            if after.pos_ in ("NOUN", "ADJ") and doc[after.i + 1].pos_ == "AUX":
                head = after  # "what birthday present did": parsers may stop too early
            return _past_kind(head)
    if wh.lower_ in ("what", "which", "who"):
        root = wh.head if wh.head.lemma_ == "be" else next((t for t in doc if t.dep_ == "ROOT"), wh)
        if root.lemma_ == "be":
            for child in root.children:
                if child.dep_ in ("nsubj", "attr") and child.pos_ == "NOUN" and child.i > wh.i:
                    return _past_kind(child)
    return None


_KINDS = frozenset("kind type sort piece style genre form flavor flavour variety".split())


def _past_kind(noun: Token) -> Token:
    """Return the noun behind "kind of": "kind of music" asks for music."""
    if noun.lemma_.lower() in _KINDS:
        for prep in noun.children:
            if prep.lower_ == "of":
                for obj in prep.children:
                    if obj.dep_ == "pobj":
                        return obj
    return noun


def _main_verb(doc: Doc) -> Token | None:
    roots = [t for t in doc if t.dep_ == "ROOT"]
    for root in roots:
        if root.pos_ in ("VERB", "AUX") and root.lemma_ != "be":
            for child in root.children:  # "start learning", "want to buy": the content verb
                if child.dep_ == "xcomp" and child.pos_ == "VERB" and root.lemma_ in CONTROL_VERBS:
                    return child
            return root
    return next((t for t in doc if t.pos_ == "VERB"), None)


def _possessed(doc: Doc, focus: Token | None, profile: QueryProfile) -> str:
    """The noun that a subject owns, unless it is itself what is asked for."""
    for t in doc:
        owned = t.dep_ == "poss" and t.head.pos_ == "NOUN" and t.head != focus
        if owned and canonical(t.text) in profile.subjects:
            return key(t.head.lemma_)
    return ""


def _is_present(doc: Doc, profile: QueryProfile) -> bool:
    if profile.temporal.kind in ("current", "last"):
        return True
    first = next((t for t in doc if t.pos_ in ("AUX", "VERB")), None)
    return (
        profile.temporal.kind == "none"
        and first is not None
        and first.tag_ in ("VBZ", "VBP")
        and first.lemma_ != "have"
    )


def _preposition(doc: Doc) -> str:
    wh = _question_word(doc)
    if wh is None:
        return ""
    if wh.i > 0 and doc[wh.i - 1].pos_ == "ADP":
        return str(doc[wh.i - 1].lower_)
    words = [t for t in doc if not t.is_punct and not t.is_space]
    last = words[-1] if words else wh
    if last.pos_ in ("ADP", "PART") and last.dep_ != "prt" and last.i > wh.i:
        return str(words[-1].lower_)
    return ""
