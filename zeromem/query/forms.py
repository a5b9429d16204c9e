"""The form of an English question: which kind of answer it expects."""

from __future__ import annotations

import re

from zeromem.types import AnswerType

AUXILIARIES = frozenset(
    [
        "do",
        "does",
        "did",
        "is",
        "are",
        "was",
        "were",
        "am",
        "has",
        "have",
        "had",
        "can",
        "could",
        "will",
        "would",
        "should",
        "shall",
        "may",
        "might",
        "must",
        "isn't",
        "aren't",
        "wasn't",
        "weren't",
        "don't",
        "doesn't",
        "didn't",
        "hasn't",
        "haven't",
        "hadn't",
        "won't",
        "wouldn't",
        "can't",
        "couldn't",
        "shouldn't",
    ]
)

_POLITE = re.compile(
    r"^\W*(?:(?:hi|hey|hello|please|so|and|well|ok|okay|now|also|btw)\b[\s,!]*)*"
    r"(?:(?:can|could|would|will|do)\s+you\s+(?:please\s+|also\s+|quickly\s+)?(?:tell|remind|show|give|help|"
    r"list|let|explain|recall|remember|know|say|name|summari[sz]e|describe)\b\s*"
    r"(?:me\b\s*)?(?:us\b\s*)?(?:know\s+|again\s+|about\s+)?"
    r"|(?:tell|remind|show)\s+(?:me|us)\s+(?:again\s+|about\s+)?"
    r"|i(?:'m| am)\s+(?:trying to (?:recall|remember)|wondering|curious(?: about)?)\s*"
    r"|i(?:'d| would)\s+(?:like|love)\s+to\s+know\s+"
    r"|(?:do you (?:know|remember)|any idea)\s+)",
    re.IGNORECASE,
)
_POLITE_LIST = re.compile(
    r"^\W*(?:can|could|would|will)\s+you\s+(?:please\s+)?(?:list|name)\b", re.I
)
_IMPERATIVE_LIST = re.compile(r"^\W*(?:please\s+)?(?:list|name|enumerate)\b(?!\s+of\b)", re.I)
_WH = re.compile(
    r"\b(who|whom|whose|who's|what|what's|which|where|where's|when|when's|why|how|how's)\b", re.I
)
_PREPOSITION = (
    r"(?:in|on|at|to|for|from|with|by|of|about|during|until|since|after|before|under|through|into)"
)
_AUX = rf"(?:{'|'.join(sorted(map(re.escape, AUXILIARIES), key=len, reverse=True))}|'s|’s|'re)"

_DURATION_UNIT = r"(?:seconds|minutes|hours|days|nights|weeks|weekends|months|years|decades)"
_DATE_NOUN = (
    r"(?:date|day|month|year|time|week|weekend|season|decade|century|time of (?:day|year)|"
    r"day of the week|weekday|hour)"
)
_PLACE_NOUN = (
    r"(?:place|city|town|country|state|village|location|street|address|region|continent|island|"
    r"neighbou?rhood|area|province|venue|building|room|spot|destination|county|district|lake|river|"
    r"mountain|beach|park|museum|restaurant|cafe|café|hotel|airport|station)"
)
_PERSON_NOUN = (
    r"(?:person|man|woman|friend|actor|actress|author|artist|singer|writer|director|musician|"
    r"president|colleague|co-?worker|neighbou?r|relative|family member|teacher|player|politician|"
    r"scientist|sibling|brother|sister|cousin|doctor|boss|manager|speaker)"
)
_IRREGULAR_PLURALS = frozenset(
    [
        "people",
        "children",
        "men",
        "women",
        "feet",
        "teeth",
        "mice",
        "geese",
        "pieces",
        "media",
        "criteria",
        "data",
        "kinds",
        "types",
        "sorts",
        "hobbies",
    ]
)
_SINGULAR_S = frozenset(
    [
        "news",
        "always",
        "series",
        "species",
        "this",
        "his",
        "is",
        "was",
        "does",
        "has",
        "plus",
        "bus",
        "gas",
        "yes",
        "us",
        "lens",
        "canvas",
        "christmas",
        "atlas",
        "bias",
        "tennis",
        "thus",
        "perhaps",
        "as",
        "towards",
        "besides",
        "sometimes",
        "physics",
        "mathematics",
        "politics",
        "economics",
        "gymnastics",
        "athletics",
    ]
)
_NOT_NOUN = frozenset(
    [
        "does",
        "has",
        "is",
        "was",
        "did",
        "had",
        "have",
        "do",
        "are",
        "were",
        "can",
        "could",
        "will",
        "would",
        "should",
        "may",
        "might",
        "must",
        "shall",
        "it",
        "its",
        "this",
        "these",
        "those",
        "that",
        "he",
        "she",
        "they",
        "we",
        "you",
        "i",
    ]
)


def is_plural(noun: str) -> bool:
    """Whether an English noun looks plural by its form."""
    w = noun.lower().strip("'’\".,;:!?()")
    if w in _IRREGULAR_PLURALS:
        return True
    return (
        len(w) > 3
        and w.endswith("s")
        and not w.endswith(("ss", "us", "is", "'s", "’s"))
        and w not in _SINGULAR_S
    )


def answer_form(question: str) -> AnswerType:
    """The type of answer that a question expects, from its form alone.

    Parameters
    ----------
    question : str

    Returns
    -------
    AnswerType
        ``text`` where no rule holds.
    """
    q = " ".join(question.split())
    if _POLITE_LIST.match(q) or _IMPERATIVE_LIST.match(q):
        return "list"
    rest = _POLITE.sub("", q, count=1)
    tail = _main_clause(rest)
    if tail is None:
        return _polar(rest)
    m = _WH.match(tail)
    if m is None:
        return "text"
    word = m.group(1).lower().split("'")[0]
    after = tail[m.end(1) :].strip() if "'" not in m.group(1) else "is " + tail[m.end(1) :].strip()
    match word:
        case "when":
            return "date"
        case "where":
            return "place"
        case "who" | "whom" | "whose":
            return "choice" if _offers(tail) else "person"
        case "why":
            return "text"
        case "how":
            return _how(after)
    return "choice" if _offers(tail) else _what(after)


def _main_clause(q: str) -> str | None:
    """From the question word that governs the sentence on; None for a question without one."""
    first = q.split(" ", 1)[0].lower().strip(",") if q else ""
    if first.replace("’", "'") in AUXILIARIES:
        return None
    opening = re.match(rf"\W*(?:{_PREPOSITION}\s+)?", q, re.I)
    start = opening.end() if opening else 0
    if _WH.match(q, start):
        return q[start:]
    # "After moving to Porto, where did he work?", "And the dog: what is it called?"
    hit = None
    for m in re.finditer(rf"[,:;.?!]\s+(?:and\s+|so\s+)?(?:{_PREPOSITION}\s+)?", q, re.I):
        if _WH.match(q, m.end()):
            hit = q[m.end() :]
            break
        word = q[m.end() :].split(" ", 1)[0].lower()
        if word in AUXILIARIES:
            return None
    if hit is not None:
        return hit
    # "The river Ana swam in flows through which city?"
    if m2 := _WH.search(q):
        return q[m2.start() :]
    return None


def _polar(q: str) -> AnswerType:
    head = re.split(r"[,:;.?!]\s+", q)
    opens = any(
        part.split(" ", 1)[0].lower().replace("’", "'") in AUXILIARIES for part in head if part
    )
    if not opens:
        return "text"
    return "choice" if _offers(q) else "yes_no"


def _offers(q: str) -> bool:
    """Whether alternatives are named: "tea or coffee", not "or not" nor "two or three"."""
    return re.search(
        r"\w\W+or\s+(?!not\b|no\b|so\b|more\b|less\b|any\b|else\b|anything\b|something\b|other\b)\w",
        q,
        re.I,
    ) is not None and not re.search(r"\bany\w*\b[^?]*\bor\b", q, re.I)


def _how(after: str) -> AnswerType:
    a = after.lower()
    if re.match(
        rf"(?:long\b|many\s+(?:\w+\s+)?{_DURATION_UNIT}\b(?!\s+(?:a|per|each|every)\b))", a
    ):
        return "duration"
    if re.match(r"much\s+(?:more\s+|longer\s+)?time\b", a):
        return "duration"
    if re.match(
        r"(?:many|much|old|far|tall|high|big|large|fast|heavy|deep|wide|young|expensive|few|hot|cold|warm|thick|strong|close)\b",
        a,
    ):
        return "number"
    return "text"


def _what(after: str) -> AnswerType:
    """What / which: the noun that follows decides."""
    a = after.lower()
    if re.match(rf"(?:(?:is|was|are|were|the|exact|specific|'s)\s+)*{_DATE_NOUN}\b(?!s)", a):
        return "date"
    if re.match(
        r"(?:(?:is|was|are|were|the)\s+)*(?:[a-z'’\-]+\s+){0,2}?"
        r"(?:number|amount|percentage|price|cost|age|score|size|distance|weight|height|temperature|"
        r"budget|salary|rate|ratio|sum|count|version|total)\b(?!s)",
        a,
    ):
        return "number"
    head = _head_noun(after)
    if head is None:
        return "text"
    if is_plural(head) and not re.match(r"(?:one\s+)?of\b", a):
        return "list"
    if re.fullmatch(_PLACE_NOUN, head.lower()):
        return "place"
    if re.fullmatch(_PERSON_NOUN, head.lower()):
        return "person"
    return "text"


def _head_noun(after: str) -> str | None:
    """The head of the noun phrase asked for: "What [books] does", "What are her [plans]"."""
    words = re.findall(r"[\w'’\-]+|[,.;?!]", after)
    if not words:
        return None
    if words[0].lower() in _NOT_NOUN:
        if words[0].lower() not in {"are", "were", "is", "was"}:
            return None
        head = _predicate_head(words[1:])
        # "What is the city …" asks for one thing even where a later noun is plural.
        return head
    phrase: list[str] = []
    for w in words:
        low = w.lower()
        if low in AUXILIARIES or low in {",", ".", "?", "!", ";"}:
            break
        if low in {"of"} and phrase and phrase[-1].lower() in {"kind", "type", "sort", "piece"}:
            return phrase[-1]
        if re.fullmatch(_PREPOSITION, low) and phrase:
            break
        if phrase and (low in _NOT_NOUN or (low.endswith("ed") and is_plural(phrase[-1]))):
            break
        phrase.append(w)
    return _last_noun(phrase)


def _last_noun(phrase: list[str]) -> str | None:
    """Where no auxiliary closes the phrase, its verb is inside: "Which city hosted the fair"."""
    for w in phrase[:3]:
        if is_plural(w) or re.fullmatch(f"{_PLACE_NOUN}|{_PERSON_NOUN}", w.lower()):
            return w
    return phrase[-1] if phrase and len(phrase) <= 3 else None


def _predicate_head(words: list[str]) -> str | None:
    """Find the last noun before a preposition or verb: "are [Ana's [books]] about"."""
    phrase: list[str] = []
    for w in words:
        low = w.lower()
        if low in {",", ".", "?", "!", ";"} or low in AUXILIARIES:
            break
        if re.fullmatch(_PREPOSITION, low) and phrase:
            break
        if low in {"that", "which", "who", "where", "when"} and phrase:
            break
        if low.endswith("ing") and phrase and is_plural(phrase[-1]):
            break
        phrase.append(w)
    nouns = [w for w in phrase if not w.endswith(("'s", "’s"))]
    return nouns[-1] if nouns else None


_CUT = re.compile(
    rf"\s+(?:{_PREPOSITION}|when|while|because|as|if|than|that|who|which)\s+.*$", re.IGNORECASE
)
_DETERMINER = re.compile(r"^(?:the|a|an|her|his|their|its|my|your|our)\s+", re.IGNORECASE)


def choices_of(question: str) -> tuple[str, ...]:
    """The alternatives of a choice question: "tea or coffee" gives ``("tea", "coffee")``."""
    q = " ".join(question.split()).rstrip("?!. ")
    *lefts, right = re.split(r",?\s+or\s+", q)
    if not lefts:
        return ()
    first_word = right.split(" ", 1)[0]
    lead = re.fullmatch(_PREPOSITION, first_word, re.I) is not None
    right = right if lead else _CUT.sub("", right)
    parts = [p.strip() for left in lefts for p in re.split(r"[,:]\s+", left)]
    last, series = parts[-1], parts[1:-1] if len(parts) > 2 else []
    if len(parts) == 1 or not _short(last, right):
        last = _same_shape(last, right, first_word)
    found = [*(p for p in series if _short(p, right)), last, right]
    return tuple(dict.fromkeys(_DETERMINER.sub("", p).strip() for p in found if p.strip()))


def _short(part: str, like: str) -> bool:
    return len(part.split()) <= max(len(like.split()) + 1, 3)


def _same_shape(left: str, right: str, first_word: str) -> str:
    """The tail of ``left`` that is parallel to ``right``: by its first word, else by length."""
    words = left.split()
    low = [w.lower() for w in words]
    if first_word.lower() in low[1:]:
        return " ".join(words[len(low) - 1 - low[::-1].index(first_word.lower()) :])
    size = len(right.split())
    if _DETERMINER.match(right) and size > 1:
        for i in range(len(words) - 1, 0, -1):
            if _DETERMINER.match(words[i] + " x"):
                return " ".join(words[i:])
    return " ".join(words[-size:])
