"""Candidates that take a side: yes or no, or one of the choices that the question names."""

# ruff: noqa: SIM905 - lists of words read as words
from __future__ import annotations

import re
from collections.abc import Iterator

from zeromem.answer.asked import Asked
from zeromem.answer.candidate import Candidate
from zeromem.answer.language import Token
from zeromem.answer.passages import Passages, Sentence
from zeromem.answer.relations import AGAINST, COMPLETION, ENDS, FAILURE, LIGHT_VERBS, SUCCESS
from zeromem.answer.words import key, keys, related_to

_NEGATION = frozenset("not n't never no nobody nothing neither nor without".split())


def yes_no(asked: Asked, passages: Passages, sentence: Sentence) -> Iterator[Candidate]:
    """Yes or no by the polarity of a sentence that says what the question asks."""
    said = list(zip(sentence.span, sentence.lemmas, strict=True))
    matched = [t for t, k in said if k in asked.weights]
    end = sentence.start + len(sentence.text)
    if _over(asked, passages, sentence):
        yield Candidate("No", "yes_no", "no", sentence.item, sentence.start, end, 0.6)
        return
    name = _predicate(asked)
    said_so = _reply(asked, passages, sentence, key(name)) if name else None
    if said_so:
        yield Candidate(
            said_so.capitalize(), "yes_no", said_so, sentence.item, sentence.start, end, 0.6
        )
        return
    if _object_absent(asked, passages, sentence):
        return
    told = COMPLETION.search(asked.text) is not None
    least = 0.2 if told else 0.4
    if not matched and passages.similarity.get((sentence.item, sentence.index), 0.0) < least:
        return
    predicate = key(name) if name else ""
    core = [t for t in matched if key(t.lemma_) == predicate]
    says = bool(core or (predicate and related_to(predicate) & sentence.keys))
    if says:
        here = any(_negated(t) for t in core or matched)
    elif told:  # what was planned or begun is not carried through yet
        ended = _carried_through(sentence)
        if ended is None:
            return
        answer = "yes" if ended != _asks_negated(asked) else "no"
        yield Candidate(
            answer.capitalize(), "yes_no", answer, sentence.item, sentence.start, end, 0.5
        )
        return
    else:  # "make it to the end": the words differ, so the whole sentence counts
        here = bool(FAILURE.search(sentence.text)) or any(t.dep_ == "neg" for t in sentence.span)
    answer = "no" if (here != _asks_negated(asked)) != _opposed(asked, sentence) else "yes"
    # Speaking of the same things without the predicate says less than any sentence that has it.
    bonus = 0.3 * bool(core) if says or not predicate else -0.6
    yield Candidate(
        answer.capitalize(), "yes_no", answer, sentence.item, sentence.start, end, bonus
    )


def _carried_through(sentence: Sentence) -> bool | None:
    """Whether the sentence reports an end reached (True) or not reached (False); else None."""
    if sentence.asks or _INTENDED.search(sentence.text):
        return None
    failure = FAILURE.search(sentence.text)
    if failure and failure.group().lower() not in ("never", "unfortunately"):
        return False
    if SUCCESS.search(sentence.text):
        return not any(t.dep_ == "neg" for t in sentence.span)
    return None


_INTENDED = re.compile(
    r"(?i)\b(?:will|going to|gonna|plan(?:s|ning)?|hop(?:e|ing) to|want to|sign(?:ed|ing) up|"
    r"if i|would|might)\b|\w['’]ll\b"
)


def _object_absent(asked: Asked, passages: Passages, sentence: Sentence) -> bool:
    """Whether what the question asks about is spoken of nowhere: no car in "has she a car?".

    For having, the sentence itself must speak of it, by its name or by a kind of it.
    """
    root = next((t for t in asked.doc if t.dep_ == "ROOT"), None)
    if root is None or root.pos_ not in ("VERB", "AUX"):
        return False
    things = [t for t in root.children if t.dep_ == "dobj" and t.pos_ == "NOUN"]
    for thing in things:
        own = key(thing.lemma_)
        wanted = related_to(own) | {own} | {k for k, n in asked.names.items() if n == own}
        owns = root.lemma_ in ("have", "own")
        inside = [sentence] if owns else passages.sentences
        if any(wanted & s.keys for s in inside):
            continue
        nouns = [t.lemma_.lower() for s in inside for t in s.span if t.pos_ == "NOUN"]
        if max(passages.is_kind(f"{thing.lemma_}s", nouns), default=0.0) < _IS_KIND:
            return True
    return False


_IS_KIND = 0.3


def _asks_negated(asked: Asked) -> bool:
    """Whether yes means that it is not so: "Didn't she", "has she stopped eating meat"."""
    for t in asked.doc:
        if t.dep_ == "neg" or t.lower_ == "never":
            return True
        if t.lemma_ in ENDS and any(c.dep_ == "xcomp" for c in t.children):
            return True
    return False


def _over(asked: Asked, passages: Passages, sentence: Sentence) -> bool:
    """Asked whether something still holds, the sentence says that it ended: "I left Halden"."""
    if not re.search(r"(?i)\b(?:still|any ?more)\b", asked.text):
        return False
    things = {w for n in asked.subjects if n not in passages.speakers for w in n.split()}
    things |= {t.lower_ for t in asked.doc if t.pos_ in ("NOUN", "PROPN")}
    return any(
        (t.lemma_ in ENDS or any((t.lemma_, c.lower_) in _GIVES_UP for c in t.children))
        and any(c.lower_ in things for c in t.subtree if c.i > t.i)
        for t in sentence.span
    )


_GIVES_UP = frozenset({("give", "up"), ("drop", "out"), ("split", "up"), ("break", "up")})

_REPLY = re.compile(
    r"(?i)^\W*(?:oh,?\s+|well,?\s+|haha,?\s+)?(?:"
    r"(?P<yes>yes|yep|yeah|yup|sure|of course|definitely|absolutely|i did|i do|i am|we did|indeed|"
    r"it does|it is)|(?P<no>no|nope|nah|not at all|not really|not yet|never|i didn['’]t|"
    r"i don['’]t|unfortunately not))\b"
)


def _reply(asked: Asked, passages: Passages, sentence: Sentence, predicate: str) -> str | None:
    """Yes or no where the sentence opens the reply to the same question asked in the talk."""
    m = _REPLY.match(sentence.text)
    if m is None or sentence.index > 0:
        return None
    for i in passages.replied_to(sentence.item):
        if any(s.asks and predicate in s.keys for s in passages.by_item[i]):
            return "yes" if m.group("yes") else "no"
    return None


def _predicate(asked: Asked) -> str:
    """What is asserted: the main verb, or what follows "is"; in "stopped eating", eating."""
    for t in asked.doc:
        if t.lemma_ in ENDS and t.dep_ == "ROOT":
            for child in t.children:
                if child.dep_ == "xcomp":
                    return str(child.lemma_)
        if t.dep_ == "ROOT" and t.lemma_ == "be":
            for child in t.children:
                if child.dep_ in ("acomp", "attr") and child.pos_ in ("ADJ", "NOUN", "VERB"):
                    return str(child.lemma_)
        if t.dep_ == "ROOT" and t.pos_ in ("ADJ", "NOUN"):
            return str(t.lemma_)
        if t.pos_ == "ADJ" and t.dep_ in ("acomp", "amod", "acl") and t.i and t.head.i < t.i:
            return str(t.lemma_)  # "Was Ines [scared]": parsed as if it described the name
    return "" if asked.verb in LIGHT_VERBS else asked.verb


def _negated(token: Token) -> bool:
    """Whether a word stands under a negation: its own, or that of the verb it belongs to."""
    own = [*token.children]
    if token.pos_ not in ("VERB", "AUX", "ADJ"):
        if any(c.lower_ in ("no", "never", "without") for c in own):
            return True
        if token.dep_ not in ("dobj", "attr", "acomp", "xcomp", "pobj"):
            return False
        token = token.head if token.dep_ != "pobj" else token.head.head
        own = [*token.children]
    if any(c.dep_ == "neg" or c.lower_ in _NEGATION for c in own):
        return True
    return token.dep_ in ("xcomp", "ccomp", "acomp", "aux") and any(
        c.dep_ == "neg" for c in token.head.children
    )


def _opposed(asked: Asked, sentence: Sentence) -> bool:
    """The sentence speaks against what is asked: "I hate fish" for "Does she like fish?"."""
    asked_lemmas = {t.lemma_.lower() for t in asked.doc}
    own = {t.lemma_.lower() for t in sentence.span}
    against = AGAINST | ENDS if asked_lemmas & {"still", "anymore"} else AGAINST
    return bool((own & against) - asked_lemmas) and not asked_lemmas & against


def choices(asked: Asked, passages: Passages, sentence: Sentence) -> Iterator[Candidate]:
    """The named alternatives that the sentence speaks of."""
    for choice in asked.profile.choices:
        words = keys(re.findall(r"[^\W_]+", choice))
        hits = [w for w in words if w in sentence.keys]
        if not hits:
            continue
        m = re.search(rf"(?i)\b{re.escape(choice)}", sentence.text)
        start = sentence.start + (m.start() if m else 0)
        end = sentence.start + (m.end() if m else len(sentence.text))
        bonus = 0.4 * len(hits) / len(words)
        if asked.verb in ("have", "own") and re.search(
            rf"(?i)\b(?:my|our)\s+(?:\w+\s+)?{re.escape(choice)}", sentence.text
        ):
            bonus += 0.4
        if m and _spoken_against(sentence, m.start()):
            bonus -= 0.5
        yield Candidate(choice, "choice", choice.lower(), sentence.item, start, end, bonus)


def _spoken_against(sentence: Sentence, at: int) -> bool:
    before = sentence.text[max(0, at - 40) : at].lower()
    return (
        re.search(
            r"\b(?:not|n['’]t|never|rather than|instead of|over|than|hate|dislike)\b[^,;.]*$",
            before,
        )
        is not None
    )
