"""A batch of questions against one index: profiles, content vectors, terms, admissible turns."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.index import Arrays
from zeromem.index.features import INSTRUCTS, PREFERS
from zeromem.index.segment import NO_TIME, TITLE, named_session
from zeromem.text import canonical, terms, word_spans
from zeromem.times import to_micros
from zeromem.types import ROLES, Boundary, QueryProfile, Role

Array = NDArray[Any]
Encode = Callable[[Sequence[str]], Array]
_LONGEST_NAME = 6  # words
_PREFERENCE = 0.25  # of a standing instruction
# "What did you suggest", but not the polite "can you tell me".
_SECOND_PERSON = re.compile(r"\b(?:did|have|had|were)\s+you\b", re.IGNORECASE)
_FIRST_PERSON = re.compile(r"\b(?:i|my|me|mine|myself|we|our|us)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, eq=False)
class Questions:
    """What the views read of a batch of b questions.

    Attributes
    ----------
    profiles : tuple of QueryProfile
    vectors : (b, dim) float32
        Unit rows: the question without the names of speakers, which are matched as subjects.
    term_indptr, term : CSR of distinct term ids
    subject : (b, n) float32
        1 where a turn's speaker or title is what the question names.
    phrase, in_period : (b, n) float32
    standing : (b, n) float32
        Where the question asks for help: 1 at the user's standing instructions, less at what the
        user prefers.
    mask : (b, n) bool
        Turns within the question's boundary.
    entities : tuple of (names, entity ids)
        Entities that the question names: known ones with their id, others with -1.
    entity_vectors : dict of str to (dim,) float32
        Of the names that the graph does not know.
    """

    profiles: tuple[QueryProfile, ...]
    vectors: Array
    term_indptr: Array
    term: Array
    subject: Array
    phrase: Array
    in_period: Array
    standing: Array
    mask: Array
    entities: tuple[tuple[tuple[str, int], ...], ...]
    entity_vectors: dict[str, Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.profiles)

    def take(self, rows: Array) -> Questions:
        """Return the questions at these places of the batch."""
        lines = [self.term[slice(*self.term_indptr[j : j + 2])] for j in rows]
        indptr = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(line) for line in lines], out=indptr[1:])
        return replace(
            self,
            profiles=tuple(self.profiles[j] for j in rows),
            vectors=self.vectors[rows],
            term_indptr=indptr,
            term=np.concatenate([self.term[:0], *lines]),
            subject=self.subject[rows],
            phrase=self.phrase[rows],
            in_period=self.in_period[rows],
            standing=self.standing[rows],
            mask=self.mask[rows],
            entities=tuple(self.entities[j] for j in rows),
        )


def prepare(
    profiles: Sequence[QueryProfile],
    arrays: Arrays,
    encode: Encode,
) -> Questions:
    """Bring profiles into the index's terms: ids, vectors, masks.

    Parameters
    ----------
    profiles : sequence of QueryProfile
    arrays : Arrays
    encode : callable
        Texts to (n, dim) float32 unit rows.
    """
    speakers = [frozenset(s for s in p.subjects if s in arrays.speaker_id) for p in profiles]
    content = [without_names(p.text, s) for p, s in zip(profiles, speakers, strict=True)]
    unknown = [
        tuple(s for s in p.subjects if s not in arrays.entity_id and s not in arrays.speaker_id)
        for p in profiles
    ]
    names = sorted({name for found in unknown for name in found})
    vectors = encode([*content, *names])
    indptr, term = _terms(content, arrays)
    boundaries = [p.boundary for p in profiles]
    return Questions(
        profiles=tuple(profiles),
        vectors=vectors[: len(content)],
        term_indptr=indptr,
        term=term,
        subject=np.stack([_subject(p, s, arrays) for p, s in zip(profiles, speakers, strict=True)]),
        phrase=np.stack([_phrase(p, arrays) for p in profiles]),
        in_period=np.stack([_in_period(p, arrays) for p in profiles]),
        standing=np.stack(
            [_standing(p, s, arrays) for p, s in zip(profiles, speakers, strict=True)]
        ),
        mask=_masks(boundaries, arrays),
        entities=tuple(
            tuple((s, arrays.entity_id.get(s, -1)) for s in p.subjects if s not in spoken)
            for p, spoken in zip(profiles, speakers, strict=True)
        ),
        entity_vectors=dict(zip(names, vectors[len(content) :], strict=True)),
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


def _terms(content: Sequence[str], arrays: Arrays) -> tuple[Array, Array]:
    """Distinct known terms of each question, in the order of their ids."""
    ids = [
        sorted({arrays.term_id[w] for w in line if w in arrays.term_id}) for line in terms(content)
    ]
    indptr = np.zeros(len(ids) + 1, np.int64)
    np.cumsum([len(line) for line in ids], out=indptr[1:])
    return indptr, np.array([t for line in ids for t in line], np.int32)


def _subject(profile: QueryProfile, speakers: Collection[str], arrays: Arrays) -> Array:
    s = arrays.turns
    found = np.isin(s.speaker, [arrays.speaker_id[name] for name in speakers])
    named = [e for name in profile.subjects if (e := arrays.entity_id.get(name, -1)) >= 0]
    if named:
        turn, sentence, entity = s.mentions.T
        found[turn[(sentence == TITLE) & np.isin(entity, named)]] = True
    if not found.any() and (s.role == ROLES.index("assistant")).any():
        found = _by_person(profile.text, s.role)
    return found.astype(np.float32)


def _by_person(text: str, role: Array) -> Array:
    """Asked of an assistant, "my plans" are what the user said, "did you suggest" what it said."""
    who: tuple[Role, ...] = ()
    if _SECOND_PERSON.search(text):
        who = ("assistant",)
    elif _FIRST_PERSON.search(text):
        who = ("user",)
    return np.isin(role, [ROLES.index(r) for r in who])


def _phrase(profile: QueryProfile, arrays: Arrays) -> Array:
    """Share of the question's phrases that stand in each turn, term for term."""
    s = arrays.turns
    found = np.zeros(len(s), np.float32)
    for phrase in terms(profile.phrases):
        ids = [arrays.term_id.get(w, -1) for w in phrase]
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


def _in_period(profile: QueryProfile, arrays: Arrays) -> Array:
    cue = profile.temporal
    if cue.start is None and cue.end is None:
        return np.zeros(len(arrays), np.float32)
    low = NO_TIME + 1 if cue.start is None else to_micros(cue.start)
    high = np.iinfo(np.int64).max if cue.end is None else to_micros(cue.end)
    start, end = arrays.turns.time.T
    inside: Array = ((start != NO_TIME) & (start < high) & (end > low)).astype(np.float32)
    return inside


def _standing(profile: QueryProfile, speakers: Collection[str], arrays: Arrays) -> Array:
    s = arrays.turns
    found = np.zeros(len(s), np.float32)
    # Help is asked of an assistant; who is asked about by name is no assistant's business.
    if profile.asks_help and not speakers and (s.role == ROLES.index("assistant")).any():
        found[(s.flags & PREFERS) > 0] = _PREFERENCE
        found[(s.flags & INSTRUCTS) > 0] = 1.0
        found[s.role != ROLES.index("user")] = 0.0
    return found


def _masks(boundaries: Sequence[Boundary], arrays: Arrays) -> Array:
    made: dict[Boundary, Array] = {}
    for boundary in boundaries:
        if boundary not in made:
            made[boundary] = admissible(boundary, arrays)
    return np.stack([made[boundary] for boundary in boundaries])


def admissible(boundary: Boundary, arrays: Arrays) -> Array:
    """Turns that lie within a boundary: (n,) bool. ``as_of`` is the index's own business."""
    s = arrays.turns
    mask = np.ones(len(s), np.bool_)
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


def _named(ids: Array, names: tuple[str, ...], wanted: Any) -> Array:
    allowed = set(wanted)
    return np.isin(ids, [i for i, name in enumerate(names) if name in allowed])
