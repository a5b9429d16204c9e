"""Sentences that mean what the question asks, whatever words they use."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from zeromem.text import sanitize

if TYPE_CHECKING:
    from zeromem.answer.passages import Passages

# Texts to unit rows, float32 (n, dim): an encoder's ``encode``.
Encode = Callable[[Sequence[str]], NDArray[np.float32]]

_AROUND, _W_AROUND = 2, 0.5  # sentences on each side, and their share of the similarity
_W_BARE = 0.3  # share of the similarity without any name: a short sentence is all speaker otherwise


def compare(passages: Passages, question: str, encode: Encode) -> Mapping[tuple[int, int], float]:
    """Each sentence's cosine with the question, said by its speaker as "Ana: …".

    The better half of its own and that of the sentences around it, as one event is often told in
    several; averaged with that of the words alone, names aside.

    Returns
    -------
    mapping of (item, index) to float
    """
    own, around, bare = [], [], []
    for s in passages.sentences:
        item = passages.evidence[s.item]
        who = item.speaker or item.trace.title
        lead = f"{who}: " if who else ""
        own.append(sanitize(lead + s.text))
        bare.append(sanitize(s.text))
        near = passages.by_item[s.item][max(0, s.index - _AROUND) : s.index + _AROUND + 1]
        around.append(sanitize(lead + item.text[near[0].start : near[-1].end]))
    names = "|".join(re.escape(s) for s in sorted(passages.speakers))
    nameless = re.sub(rf"(?i)\b(?:{names})\b", "somebody", question) if names else question
    rows = encode([sanitize(question), sanitize(nameless), *own, *around, *bare])
    n = len(own)
    scores = rows[2 : 2 + 2 * n] @ rows[0]
    named = (1 - _W_AROUND) * scores[:n] + _W_AROUND * np.maximum(scores[:n], scores[n:])
    blended = (1 - _W_BARE) * named + _W_BARE * (rows[2 + 2 * n :] @ rows[1])
    return {(s.item, s.index): float(x) for s, x in zip(passages.sentences, blended, strict=True)}
