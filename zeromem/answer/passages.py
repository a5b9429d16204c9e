"""Evidence as sentences, and a question as what its answer must contain."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from zeromem.answer.language import NLP, Doc, Span, Token
from zeromem.answer.relations import CONTROL_VERBS, LIGHT_VERBS, OCCUPATION, RELATED, SAME
from zeromem.text import canonical, is_stop, sanitize, terms
from zeromem.timex import TimeMention, find_times
from zeromem.timex_calendar import WEEKDAYS
from zeromem.types import Evidence, QueryProfile

# Texts to unit rows, float32 (n, dim): an encoder's ``encode``.
Encode = Callable[[Sequence[str]], NDArray[np.float32]]

# One text is parsed whole; past this many characters it is cut at a line or sentence border, as
# spaCy's memory grows with the text.
_MAX_PARSED = 20_000
_SPLIT_WORD = re.compile(r"[A-Za-z]+|\d+(?:[.,]\d+)*|[^\W\d_]+")

_CONTENT = frozenset({"NOUN", "PROPN", "VERB", "ADJ", "ADV", "NUM", "X", "INTJ", "SYM"})


def key(word: str) -> str:
    """The form under which two words are the same: short names of one thing, then the stem."""
    low = word.lower()
    low = SAME.get(low, low)
    stemmed = terms([low])[0]
    return stemmed[0] if stemmed else low


class Keys:
    """A cache of :func:`key`: tokenizing word by word is what would cost time."""

    def __init__(self) -> None:
        self._of: dict[str, str] = {}

    def of(self, words: Iterable[str]) -> list[str]:
        words = [SAME.get(w.lower(), w.lower()) for w in words]
        new = [w for w in dict.fromkeys(words) if w not in self._of]
        for word, found in zip(new, terms(new) if new else [], strict=True):
            self._of[word] = found[0] if found else word
        return [self._of[w] for w in words]


@dataclass(frozen=True, slots=True, eq=False)
class Sentence:
    """One sentence of one evidence item.

    Attributes
    ----------
    item : int
        Position of the evidence item in R(q).
    index : int
        Position of the sentence in its item.
    start, end : int
        Character range in the item's text.
    text : str
    keys : frozenset of str
        Keys of its words.
    span : spaCy Span
    times : tuple of TimeMention
        Ranges are relative to the item's text.
    speaker : str
        Canonical name of who speaks; empty where unknown.
    asks : bool
    """

    item: int
    index: int
    start: int
    end: int
    text: str
    keys: frozenset[str]
    span: Span
    times: tuple[TimeMention, ...]
    speaker: str
    asks: bool


@dataclass(frozen=True, slots=True, eq=False)
class Passages:
    """All sentences of R(q) in rank order, with the statistics that weigh a match.

    ``similarity`` maps (item, index) of a sentence to its cosine with the question, where an
    encoder was given.
    """

    evidence: tuple[Evidence, ...]
    sentences: tuple[Sentence, ...]
    keys_of: tuple[frozenset[str], ...]
    frequency: Counter[str]
    speakers: frozenset[str]
    by_item: dict[int, list[Sentence]] = field(default_factory=dict)
    keys: Keys = field(default_factory=Keys)
    related: dict[str, frozenset[str]] = field(default_factory=dict)
    cached: list[str] = field(default_factory=list)
    matches: dict[tuple[str, int, int], list[tuple[int, int, float]]] = field(default_factory=dict)
    similarity: Mapping[tuple[int, int], float] = field(default_factory=dict)

    def related_to(self, word_key: str) -> frozenset[str]:
        """Keys of the words that speak of the same thing in everyday English."""
        if not self.related:
            for word, group in RELATED.items():
                self.related[self.keys.of([word])[0]] = frozenset(self.keys.of(group))
        return self.related.get(word_key, frozenset())

    def folded(self) -> str:
        """All evidence in canonical form, to look names up in."""
        if not self.cached:
            self.cached.append(
                " ".join(canonical(f"{e.trace.title or ''} {e.text}") for e in self.evidence)
            )
        return self.cached[0]

    def idf(self, word_key: str) -> float:
        """Rarity among the evidence's sentences; a word in none of them counts as rare."""
        n = len(self.sentences)
        return math.log(1 + (n + 1) / (self.frequency[word_key] + 0.5))


def _pieces(text: str) -> list[tuple[int, str]]:
    """The text in parts that can be parsed, with their offsets; lines end sentences."""
    parts: list[tuple[int, str]] = []
    for m in re.finditer(r"[^\n]+", text):
        for at in range(m.start(), m.end(), _MAX_PARSED):
            parts.append((at, text[at : min(at + _MAX_PARSED, m.end())]))
    return parts


_CAPTION = re.compile(r"\[(?:picture|photo|image)[^\]]*\]", re.IGNORECASE)


def _spans(doc: Doc) -> list[Span]:
    """Sentences; a bracketed caption is one of its own, whatever the parser made of it."""
    found: list[Span] = []
    captions = [m.span() for m in _CAPTION.finditer(doc.text)]
    for sent in doc.sents:
        begin = sent.start_char
        for a, b in [*captions, (sent.end_char, sent.end_char)]:
            if a < begin and b > begin:
                begin = min(b, sent.end_char)
            if begin <= a < sent.end_char and a > begin and a != sent.end_char:
                found.append(doc.char_span(begin, a, alignment_mode="contract"))
            if begin <= a < sent.end_char and b > a:
                found.append(doc.char_span(a, min(b, len(doc.text)), alignment_mode="expand"))
                begin = min(b, sent.end_char)
        if begin < sent.end_char:
            found.append(doc.char_span(begin, sent.end_char, alignment_mode="contract"))
    return [s for s in found if s is not None and s.text.strip()]


def read_passages(evidence: Sequence[Evidence], nlp: NLP) -> Passages:
    """Parse R(q) into sentences.

    Parameters
    ----------
    evidence : sequence of Evidence
        Best first.
    nlp : callable
        spaCy's pipeline.
    """
    cache = Keys()
    sentences: list[Sentence] = []
    by_item: dict[int, list[Sentence]] = {}
    keys_of: list[frozenset[str]] = []
    for i, item in enumerate(evidence):
        times = find_times(item.text)
        own = by_item.setdefault(i, [])
        for offset, part in _pieces(item.text):
            for span in _spans(nlp(sanitize(part))):
                start, end = offset + span.start_char, offset + span.end_char
                inside = tuple(t for t in times if t.start < end and start < t.end)
                words = [w for t in span for w in (t.lemma_, *_SPLIT_WORD.findall(t.text))]
                asks = span.text.rstrip().endswith("?")
                own.append(
                    Sentence(
                        i,
                        len(own),
                        start,
                        end,
                        span.text,
                        frozenset(cache.of(words)),
                        span,
                        inside,
                        canonical(item.speaker or ""),
                        asks,
                    )  # fmt: skip
                )
        sentences.extend(own)
        title = cache.of(_SPLIT_WORD.findall(item.trace.title or ""))
        keys_of.append(frozenset(k for s in own for k in s.keys) | frozenset(title))
    frequency = Counter(k for s in sentences for k in s.keys)
    speakers = frozenset(s.speaker for s in sentences if s.speaker)
    return Passages(
        tuple(evidence), tuple(sentences), tuple(keys_of), frequency, speakers, by_item, cache
    )


def compare(passages: Passages, question: str, encode: Encode | None) -> Passages:
    """Add each sentence's similarity with the question, said by its speaker as "Ana: …"."""
    if encode is None or not passages.sentences:
        return passages
    texts = []
    for s in passages.sentences:
        item = passages.evidence[s.item]
        who = item.speaker or item.trace.title
        texts.append(sanitize(f"{who}: {s.text}" if who else s.text))
    rows = encode([sanitize(question), *texts])
    scores = rows[1:] @ rows[0]
    found = {(s.item, s.index): float(x) for s, x in zip(passages.sentences, scores, strict=True)}
    return replace(passages, similarity=found)


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
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return self.profile.text


_WH = frozenset(["who", "whom", "whose", "what", "which", "where", "when", "why", "how"])


def read_question(profile: QueryProfile, nlp: NLP, keys: Keys) -> Asked:
    """Parse the question.

    Its subjects' names weigh nothing here: who a sentence is about is judged apart.
    """
    doc = nlp(sanitize(" ".join(profile.text.split())[:_MAX_PARSED]))
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
        word_key = keys.of([low])[0]
        weights[word_key] = max(weights.get(word_key, 0.0), weight)
    if OCCUPATION.search(doc.text):  # none of its words is the one to look for
        weights |= {keys.of(["work"])[0]: 1.0}
    if not weights:  # "What does she want to be?": better a common word than none
        for token in doc:
            if token.pos_ in ("VERB", "NOUN", "ADJ") and token.lemma_.lower() not in _WH:
                weights[keys.of([token.lemma_])[0]] = 0.5
    return Asked(
        profile, doc, weights, focus.lemma_.lower() if focus is not None else "",
        verb.lemma_.lower() if verb is not None else "", _preposition(doc), profile.subjects,
        next((c.lower_ for c in verb.children if c.dep_ == "prt"), "") if verb is not None else "",
        _is_present(doc, profile),
        _possessed(doc, focus, profile, keys),
    )  # fmt: skip


def _question_word(doc: Doc) -> Token | None:
    return next((t for t in doc if t.lower_ in _WH), None)


def _focus(doc: Doc) -> Token | None:
    """The noun that the question word stands for: "which [city]", "what is Ana's [job]"."""
    wh = _question_word(doc)
    if wh is None:
        return None
    if wh.lower_ in ("what", "which", "whose", "how") and wh.i + 1 < len(doc):
        head = wh.head
        if head.pos_ in ("NOUN", "PROPN") and head.i > wh.i and head.i - wh.i <= 5:
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
    """ "kind of music" asks for music, "name of the dog" for a name."""
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


def _possessed(doc: Doc, focus: Token | None, profile: QueryProfile, keys: Keys) -> str:
    """The noun that a subject owns, unless it is itself what is asked for."""
    for t in doc:
        if t.dep_ == "poss" and t.head.pos_ == "NOUN" and t.head != focus:
            if canonical(t.text) in profile.subjects:
                return keys.of([t.head.lemma_])[0]
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
