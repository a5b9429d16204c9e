"""A batch of questions against one index: profiles, content vectors, terms, admissible turns."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.index import Arrays
from zeromem.index.features import ASKS
from zeromem.index.segment import NO_TIME, named_session
from zeromem.text import canonical, terms, word_spans
from zeromem.times import to_micros
from zeromem.types import ROLES, Boundary, QueryProfile, Role

Array = NDArray[Any]
Encode = Callable[[Sequence[str]], Array]
_LONGEST_NAME = 6  # words
_ASSISTANT = ROLES.index("assistant")
# "What did you suggest", but not the polite "can you tell me".
_SECOND_PERSON = re.compile(r"\b(?:did|have|had|were)\s+you\b", re.IGNORECASE)
_FIRST_PERSON = re.compile(r"\b(?:i|my|me|mine|myself|we|our|us)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """One question in the memory's terms, before anything is encoded.

    Attributes
    ----------
    profile : QueryProfile
    speakers : frozenset of str
        Names in it of those who speak here.
    content : str
        What is encoded: the question without those names, which are matched as subjects.
    terms : tuple of int
        Distinct known terms of the content, ascending.
    entities : tuple of (name, entity id)
        Other names in it; -1 where the graph does not know one.
    """

    profile: QueryProfile
    speakers: frozenset[str]
    content: str
    terms: tuple[int, ...]
    entities: tuple[tuple[str, int], ...]

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names that the graph aligns by their vectors."""
        return tuple(name for name, entity in self.entities if entity < 0)


@dataclass(frozen=True, slots=True, eq=False)
class Questions:
    """What the kernels read of a batch of b questions; see ``kernels/_views.Asked``.

    Attributes
    ----------
    read : tuple of Read
    vectors : (b, dim) float32
        Unit rows.
    term_indptr, term : CSR of distinct term ids
    speaker_indptr, speaker : CSR of speaker ids
    row_indptr, row : CSR of turns whose title the question names
    by_role : (b,) int32
    period : (b, 2) int64
    standing : (b,) int8
    masks : (n_masks, n) bool
    mask_of : (b,) int32
    phrase : (b, n) or (0, 0) float32
    """

    read: tuple[Read, ...]
    vectors: Array
    term_indptr: Array
    term: Array
    speaker_indptr: Array
    speaker: Array
    row_indptr: Array
    row: Array
    by_role: Array
    period: Array
    standing: Array
    masks: Array
    mask_of: Array
    phrase: Array

    def __len__(self) -> int:
        return len(self.read)


def read(profiles: Sequence[QueryProfile], arrays: Arrays) -> list[Read]:
    """Find speakers, terms and entities of the memory in questions."""
    speaker_id, entity_id = arrays.turns.speakers, arrays.turns.entities
    speakers = [frozenset(s for s in p.subjects if s in speaker_id) for p in profiles]
    contents = [without_names(p.text, s) for p, s in zip(profiles, speakers, strict=True)]
    vocabulary = arrays.turns.vocabulary
    return [
        Read(
            profile,
            spoken,
            content,
            tuple(sorted({vocabulary[w] for w in words if w in vocabulary})),
            tuple((s, entity_id.get(s, -1)) for s in profile.subjects if s not in spoken),
        )
        for profile, spoken, content, words in zip(
            profiles, speakers, contents, terms(contents), strict=True
        )
    ]


def prepare(
    questions: Sequence[Read],
    vectors: Array,
    arrays: Arrays,
    *,
    phrases: bool,
    echoes: Sequence[str] | None = None,
) -> Questions:
    """Lay out a batch for the kernels.

    Parameters
    ----------
    questions : sequence of Read
    vectors : (b, dim) float32
        Of their contents.
    arrays : Arrays
    phrases : bool
        Whether any signal weighs phrases.
    echoes : sequence of str, optional
        For each question a text; turns that ask the very same are left out.
    """
    has_assistant = bool((arrays.turns.role == _ASSISTANT).any())
    titled = [_titled(q, arrays) for q in questions]
    who = [_ids(sorted(arrays.turns.speakers[s] for s in q.speakers)) for q in questions]
    named = [len(w) > 0 or len(t) > 0 for w, t in zip(who, titled, strict=True)]
    gone = [()] * len(questions) if echoes is None else [_echoes(t, arrays) for t in echoes]
    masks, mask_of = _masks([q.profile.boundary for q in questions], gone, arrays)
    term_indptr, term = _csr([_ids(q.terms) for q in questions])
    speaker_indptr, speaker = _csr(who)
    row_indptr, row = _csr(titled)
    return Questions(
        read=tuple(questions),
        vectors=np.ascontiguousarray(vectors, np.float32),
        term_indptr=term_indptr,
        term=term,
        speaker_indptr=speaker_indptr,
        speaker=speaker,
        row_indptr=row_indptr,
        row=row,
        by_role=_ids(
            _by_person(q.profile.text) if has_assistant and not known else -1
            for q, known in zip(questions, named, strict=True)
        ),
        period=np.array([_period(q.profile) for q in questions], np.int64).reshape(-1, 2),
        standing=np.array(
            # Help is asked of an assistant; who is asked about by name is no assistant's business.
            [has_assistant and q.profile.asks_help and not q.speakers for q in questions],
            np.int8,
        ),
        masks=masks,
        mask_of=mask_of,
        phrase=np.stack([_phrase(q.profile, arrays) for q in questions])
        if phrases
        else np.zeros((0, 0), np.float32),
    )


def without_names(text: str, names: Collection[str]) -> str:
    """Take names out of a question, possessives included.

    Half of all turns are by the speaker a question names: as words the name drowns the rest, so it
    is matched by who speaks. A question of nothing but names stays whole.
    """
    if not names:
        return text
    spans = word_spans(text)
    kept: list[str] = []
    done = i = 0
    while i < len(spans):
        for n in range(min(_LONGEST_NAME, len(spans) - i), 0, -1):
            start, end = spans[i][0], spans[i + n - 1][1]
            if canonical(text[start:end]) in names:
                if text[end : end + 2] in ("'s", "’s"):
                    end += 2
                kept.append(text[done:start])
                done = end
                while i < len(spans) and spans[i][0] < end:
                    i += 1
                break
        else:
            i += 1
    rest = " ".join("".join([*kept, text[done:]]).split())
    return rest if terms([rest])[0] else text


def _ids(values: Any) -> Array:
    return np.array(list(values), np.int32)


def _csr(lines: Sequence[Array]) -> tuple[Array, Array]:
    indptr = np.zeros(len(lines) + 1, np.int64)
    np.cumsum([len(line) for line in lines], out=indptr[1:])
    return indptr, np.concatenate([np.zeros(0, np.int32), *lines])


def _titled(question: Read, arrays: Arrays) -> Array:
    """Turns whose title the question names."""
    known = [arrays.turns.entities.get(name, -1) for name in question.profile.subjects]
    return np.concatenate(
        [np.zeros(0, np.int32), *(arrays.graph.titled.of(e) for e in known if e >= 0)]
    )


def _by_person(text: str) -> int:
    """Asked of an assistant, "my plans" are what the user said, "did you suggest" what it said."""
    who: Role | None = None
    if _SECOND_PERSON.search(text):
        who = "assistant"
    elif _FIRST_PERSON.search(text):
        who = "user"
    return ROLES.index(who) if who else -1


def _period(profile: QueryProfile) -> tuple[int, int]:
    cue = profile.temporal
    if cue.start is None and cue.end is None:
        return 0, 0
    low = NO_TIME + 1 if cue.start is None else to_micros(cue.start)
    high = int(np.iinfo(np.int64).max) if cue.end is None else to_micros(cue.end)
    return low, high


def _phrase(profile: QueryProfile, arrays: Arrays) -> Array:
    """Share of the question's phrases that stand in each turn, term for term."""
    s = arrays.turns
    found = np.zeros(len(arrays), np.float32)
    for phrase in terms(profile.phrases):
        ids = [s.vocabulary.get(w, -1) for w in phrase]
        n = len(s.term) - len(ids) + 1
        if not ids or -1 in ids or n <= 0:
            continue
        at = np.ones(n, np.bool_)
        for i, term in enumerate(ids):
            at &= s.term[i : i + n] == term
        starts = np.flatnonzero(at)
        first = np.searchsorted(s.term_indptr, starts, side="right") - 1
        last = np.searchsorted(s.term_indptr, starts + len(ids) - 1, side="right") - 1
        found[np.unique(first[first == last])] += 1.0 / len(profile.phrases)
    return found


def _masks(
    boundaries: Sequence[Boundary], gone: Sequence[tuple[int, ...]], arrays: Arrays
) -> tuple[Array, Array]:
    """Return the turns of each distinct boundary, without those left out, and whose it is."""
    place: dict[tuple[Boundary, tuple[int, ...]], int] = {}
    limits = zip(boundaries, gone, strict=True)
    mask_of = np.array([place.setdefault(limit, len(place)) for limit in limits], np.int32)
    masks = np.stack([admissible(boundary, arrays) for boundary, _ in place])
    for mask, (_, rows) in zip(masks, place, strict=True):
        mask[list(rows)] = False
    return masks, mask_of


def _echoes(text: str, arrays: Arrays) -> tuple[int, ...]:
    """Turns that ask what a question asks, term for term: no evidence for what they ask for."""
    turns = arrays.turns
    words = terms([text])[0]
    ids = [turns.vocabulary.get(word, -1) for word in words]
    if not ids or -1 in ids:
        return ()
    rows = min((arrays.postings.of(term) for term in set(ids)), key=len)
    first = turns.term_indptr[rows]
    same = (turns.term_indptr[rows + 1] - first == len(ids)) & (turns.flags[rows] & ASKS > 0)
    return tuple(
        row
        for row, start in zip(rows[same].tolist(), first[same].tolist(), strict=True)
        if turns.term[start : start + len(ids)].tolist() == ids
    )


def admissible(boundary: Boundary, arrays: Arrays) -> Array:
    """Turns that lie within a boundary: (n,) bool. ``as_of`` is the index's own business."""
    s = arrays.turns
    mask = np.ones(len(arrays), np.bool_)
    if boundary.sessions is not None:
        mask &= _named(s.session, s.sessions, map(named_session, boundary.sessions))
    if boundary.speakers is not None:
        mask &= _named(s.speaker, s.speakers, map(canonical, boundary.speakers))
    if boundary.sources is not None:
        mask &= _named(s.source, s.sources, boundary.sources)
    if boundary.roles is not None:
        mask &= np.isin(s.role, [ROLES.index(role) for role in boundary.roles])
    start, end = s.time.T
    if boundary.after is not None:
        mask &= (start != NO_TIME) & (start >= to_micros(boundary.after.start))
    if boundary.before is not None:
        mask &= (start != NO_TIME) & (end <= to_micros(boundary.before.start))
    return mask


def _named(ids: Array, names: Any, wanted: Any) -> Array:
    return np.isin(ids, [names[name] for name in set(wanted) if name in names])
