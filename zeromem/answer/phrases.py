"""Candidates that are phrases: persons, places, things, clauses and the items of a list."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zeromem.answer.candidate import Candidate, closeness
from zeromem.answer.language import Token
from zeromem.answer.passages import Asked, Passages, Sentence
from zeromem.answer.relations import COLORS, ENDS, LIGHT_VERBS, OCCUPATION
from zeromem.text import canonical
from zeromem.types import AnswerType

_OBJECTS = {"dobj": 0.5, "attr": 0.45, "oprd": 0.5, "acomp": 0.4, "dative": 0.2, "appos": 0.3}
_CLAUSES = {"xcomp": 0.4, "ccomp": 0.35}
_OUTSIDE = frozenset(
    ["relcl", "advcl", "conj", "cc", "punct", "appos", "acl", "ccomp", "parataxis", "preconj"]
)
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
    ends = [prep.i]
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


def _make(
    passages: Passages, s: Sentence, span: tuple[int, int], kind: AnswerType, bonus: float
) -> Candidate | None:
    """A candidate of tokens ``[a, b)``; determiners go, "my" becomes its owner's name."""
    doc, (a, b) = s.span.doc, span
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
    """ "my" belongs to who speaks; "your" to the other, where there are two."""
    if word == "my" and passages.evidence[s.item].speaker:
        return f"{passages.evidence[s.item].speaker}'s"
    if word == "your" and len(passages.speakers) == 2 and s.speaker:
        for e in passages.evidence:
            if e.speaker and canonical(e.speaker) != s.speaker:
                return f"{e.speaker}'s"
    return ""


def _known(asked: Asked, passages: Passages, tokens: object) -> bool:
    """Whether a phrase only repeats the question: its content words and subjects are all there."""
    names = {w for subject in asked.subjects for w in subject.split()}
    words = [t for t in tokens if t.pos_ in ("NOUN", "PROPN", "VERB", "ADJ", "NUM")]  # type: ignore[attr-defined]
    question = set(passages.keys.of(t.lemma_ for t in asked.doc)) | set(asked.names)
    return all(
        passages.keys.of([t.lemma_])[0] in question or canonical(t.text) in names for t in words
    )


def _complement(child: Token) -> tuple[int, int]:
    """ "to be a ranger" answers with the ranger, "to open a shop" with the whole."""
    if child.lemma_ == "be":
        for c in child.children:
            if c.dep_ in ("attr", "acomp"):
                return noun_phrase(c)
    return child.left_edge.i, verb_phrase(child)[1]


def _asks_subject(asked: Asked) -> bool:
    """The question word is the subject: "What helps Ana relax", "Which dog won"."""
    for t in asked.doc:
        if t.lower_ in ("who", "what", "which"):
            node = t.head if t.dep_ == "det" else t
            return node.dep_ in ("nsubj", "nsubjpass") and node.head.lemma_ != "be"
    return False


def _is_passive(asked: Asked) -> bool:
    return any(t.dep_ in ("nsubjpass", "auxpass") for t in asked.doc)


def _verbs(asked: Asked, passages: Passages, s: Sentence) -> list[Token]:
    if not asked.verb or asked.verb in LIGHT_VERBS - {"get", "make", "take", "go", "give", "use"}:
        return []
    wanted = passages.keys.of([asked.verb])[0]
    found = [
        t
        for t in s.span
        if passages.keys.of([t.lemma_])[0] == wanted and t.pos_ in ("VERB", "AUX", "NOUN")
    ]
    if asked.particle:
        found = [t for t in found if any(c.lower_ == asked.particle for c in t.children)]
    return found


def _arguments(
    asked: Asked, passages: Passages, s: Sentence
) -> Iterator[tuple[tuple[int, int], float, Token]]:
    """Arguments of the question's verb where the sentence has it, on the side that is asked for."""
    for verb in _verbs(asked, passages, s):
        if _asks_subject(asked):
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
                if (named := _antecedent(s, child)) is not None:
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
    """ "beans, peas and three trees": all of it, where one text answers."""
    span = noun_phrase(head)
    if asked.profile.answer_type != "text":
        return span
    for other in head.conjuncts:
        if other.i > head.i and other.pos_ in ("NOUN", "PROPN"):
            span = (span[0], max(span[1], noun_phrase(other)[1]))
    return span if span[1] - span[0] <= 14 else noun_phrase(head)


def _antecedent(s: Sentence, pronoun: Token) -> Token | None:
    """The nearest noun before a pronoun, a name before other nouns; else the last sentence's."""
    before = [c.root for c in s.span.noun_chunks if c.end <= pronoun.i]
    if not any(t.pos_ in ("NOUN", "PROPN") for t in before) and s.span.start > 0:
        last = s.span.doc[s.span.start - 1].sent
        objects = [c.root for c in last.noun_chunks if c.root.dep_ in ("dobj", "attr")]
        return objects[-1] if objects else None
    nouns = [t for t in before if t.pos_ in ("NOUN", "PROPN") and t.head.lower_ != "of"]
    named = [t for t in nouns if t.pos_ == "PROPN"]
    return (named or nouns or [None])[-1]


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
        yield Candidate(
            text, kind, canonical(text), s.item, s.start + m.start(1), s.start + m.start(1) + len(text),
            0.3 + 0.2 * near + 0.2 * wanted,
        )  # fmt: skip


def _kind_of_named(
    asked: Asked, passages: Passages, s: Sentence
) -> Iterator[tuple[tuple[int, int], float, Token]]:
    """ "What breed is Turbo?": the noun that the name belongs to, "my terrier Turbo"."""
    names = {w for n in asked.subjects if n not in passages.speakers for w in n.split()}
    if asked.verb or not names or not _ASKS_KIND.search(asked.text):
        return
    for t in s.span:
        if t.lower_ not in names:
            continue
        head = t.head
        if head.pos_ == "NOUN" and t.dep_ in ("appos", "compound", "oprd") or t.dep_ == "appos":
            yield noun_phrase(head, tail=False), 0.6, head
        for child in t.children:
            if child.dep_ in ("appos", "compound") and child.pos_ == "NOUN":
                yield noun_phrase(child, tail=False), 0.6, child
        if head.lemma_ in ("be", "call", "name"):
            for child in head.children:
                if child.dep_ in ("attr", "nsubj") and child.i != t.i:
                    named = child if child.lemma_ not in ("name", "he", "she", "it") else None
                    named = named or _antecedent(s, s.span[0])
                    if named is not None and named.pos_ == "NOUN":
                        yield noun_phrase(named, tail=False), 0.6, named


_ASKS_KIND = re.compile(r"(?i)^\W*(?:what|which)\b.*\b(?:is|was|are|were)\b")


def _around_focus(
    asked: Asked, passages: Passages, s: Sentence
) -> Iterator[tuple[tuple[int, int], float, Token]]:
    """What the sentence says of the noun asked for: "my favourite colour is teal", "a teal coat"."""
    if not asked.focus:
        return
    if asked.focus in ("color", "colour"):
        yield from (((t.i, t.i + 1), 0.6, t) for t in s.span if t.lower_ in COLORS)
        return
    wanted = passages.keys.of([asked.focus])[0]
    for t in s.span:
        if passages.keys.of([t.lemma_])[0] != wanted:
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
        if modifiers and not _known(asked, passages, modifiers):
            yield span, 0.4, t


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
    r"(?i)\b(?:because(?: of)?|since|so that|in order to|due to|thanks to|as (?=i|he|she|they|we|it)|the reason (?:is|was)(?: that)?)\s+(.+)"
)
_PURPOSE = re.compile(r"(?i)\b((?:to|for)\s+\w+.*)")
_BY = re.compile(r"(?i)\b(?:by\s+(\w+ing\b[^,.;!?]*))")


def _manner(s: Sentence) -> Iterator[Candidate]:
    """ "falling off a ladder": how something happened, as a clause beside the main one."""
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
        yield from _occupation(passages, s, kind)
    ranges = [
        *_arguments(asked, passages, s),
        *_around_focus(asked, passages, s),
        *_kind_of_named(asked, passages, s),
        *_chunks(asked, passages, s),
    ]
    offset = s.start - s.span.start_char
    doc = s.span.doc
    for span, bonus, head in ranges:
        if _known(asked, passages, doc[span[0] : span[1]]):
            continue
        if any(t.start <= offset + head.idx < t.end and t.kind != "duration" for t in s.times):
            continue
        a, b = offset + doc[span[0]].idx, offset + doc[span[1] - 1].idx + len(doc[span[1] - 1])
        near = closeness(asked, passages, s, a, b)
        if (c := _make(passages, s, span, kind, bonus + 0.2 * near)) is not None:
            yield c
        if kind == "list" and head.pos_ in ("NOUN", "PROPN", "VERB"):
            for other in head.conjuncts:
                whole = noun_phrase(other) if other.pos_ != "VERB" else verb_phrase(other)
                if other.i > head.i and (c := _make(passages, s, whole, kind, bonus + 0.2 * near)):
                    yield c
    yield from _clause(asked, passages, s, kind)


def _occupation(passages: Passages, s: Sentence, kind: AnswerType) -> Iterator[Candidate]:
    """ "I work as a nurse", "I'm a nurse", "I train as a nurse": what somebody does for a living."""
    for t in s.span:
        if t.dep_ == "pobj" and t.head.lower_ == "as" and t.pos_ == "NOUN":
            bonus = 0.8
        elif t.dep_ == "attr" and t.head.lemma_ in ("be", "become") and t.pos_ == "NOUN":
            mine = any(
                c.dep_ == "nsubj" and c.lower_ in ("i", "he", "she") for c in t.head.children
            )
            bonus = 0.7 if mine and any(c.lower_ in ("a", "an") for c in t.children) else 0.0
        elif t.dep_ == "pobj" and t.head.lower_ in ("at", "for") and t.pos_ == "PROPN":
            bonus = 0.3
        else:
            continue
        if bonus and (c := _make(passages, s, noun_phrase(t, tail=False), kind, bonus)) is not None:
            yield c


def _clause(asked: Asked, passages: Passages, s: Sentence, kind: AnswerType) -> Iterator[Candidate]:
    """The sentence's main verb phrase: what was done, or the best there is."""
    if kind == "list" and asked.focus:  # "which vegetables" wants things, not deeds
        return
    root = next((t for t in s.span if t.dep_ == "ROOT"), None)
    wants = _ACTION.search(asked.text) is not None or re.match(r"(?i)\W*(?:how|why)\b", asked.text)
    if root is None or root.pos_ not in ("VERB", "AUX"):
        return
    if (c := _make(passages, s, verb_phrase(root), kind, 0.35 if wants else 0.02)) is not None:
        yield c


def people(asked: Asked, passages: Passages, s: Sentence) -> Iterator[Candidate]:
    """Persons: names, relations ("my mother" becomes "Ana's mother"), and who is speaking."""
    subject_asked = _asks_subject(asked)
    told = [*_arguments(asked, passages, s), *_around_focus(asked, passages, s)]
    roles = {head.i: bonus for _, bonus, head in told}
    for verb in _verbs(asked, passages, s):
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
        if not fit or _known(asked, passages, s.span.doc[span[0] : span[1]]):
            continue
        c = _make(passages, s, span, "person", fit)
        if c is not None and c.value not in asked.subjects:
            near = closeness(asked, passages, s, c.start, c.end)
            yield Candidate(c.text, c.kind, c.value, c.item, c.start, c.end, fit + 0.2 * near)


def _name_after(noun: Token) -> Token:
    """ "my cousin Pia": the name, where one stands beside the relation."""
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
_FORMERLY = re.compile(
    r"(?i)\b(?:before|previous(?:ly)?|former(?:ly)?|used to|earlier|leave|left|quit)\b"
)


def _governor(token: Token) -> Token | None:
    """The verb that a word depends on."""
    while token.head.i != token.i:
        token = token.head
        if token.pos_ in ("VERB", "AUX"):
            return token
    return None


def places(asked: Asked, passages: Passages, s: Sentence) -> Iterator[Candidate]:
    """Places: named ones, and what a preposition of place governs; the asked preposition first."""
    roles = {head.i: bonus for _, bonus, head in _arguments(asked, passages, s)}
    for chunk in s.span.noun_chunks:
        if chunk.start < s.span.start or chunk.end > s.span.end or chunk.root.pos_ == "PRON":
            continue
        head = chunk.root
        offset = s.start - s.span.start_char
        if any(t.start <= offset + head.idx < t.end for t in s.times):
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
        if asked.verb in _EMPLOYED:
            bonus += 0.35 * (prep in ("at", "for", "with") and head.pos_ == "PROPN") - 0.4 * named
        if asked.focus in ("city", "town", "country", "state"):
            into = prep in ("in", "to", "from", "through") and head.pos_ == "PROPN"
            bonus += 0.15 if (named or into) and prep != "at" else -0.3
        if prep not in ("in", "to", "from"):  # "in Orta" is a place, whoever the annotator sees
            bonus -= 0.4 * person
        over = _governor(head)
        if over is not None and over.lemma_ in ENDS:
            bonus += 0.5 if _FORMERLY.search(asked.text) else -0.4
        if bonus > 0 and head.i in roles:
            bonus += 0.2
        if bonus <= 0 or _known(asked, passages, s.span.doc[span[0] : span[1]]):
            continue
        if (c := _make(passages, s, span, "place", bonus)) is not None:
            near = closeness(asked, passages, s, c.start, c.end)
            yield Candidate(c.text, c.kind, c.value, c.item, c.start, c.end, bonus + 0.2 * near)
