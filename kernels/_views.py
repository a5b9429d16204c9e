"""What the forms of ``views`` share: questions, turns and results as they read them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# The order of ``SignalWeights``' fields, which a test compares.
SIGNALS = (
    "turn_dense", "turn_lexical", "window_dense", "window_lexical", "episode_dense",
    "episode_lexical", "sentence_dense", "episode_best", "subject", "statement", "informative",
    "phrase", "temporal", "standing",
)  # fmt: skip
(
    TURN_DENSE, TURN_LEXICAL, WINDOW_DENSE, WINDOW_LEXICAL, EPISODE_DENSE, EPISODE_LEXICAL,
    SENTENCE_DENSE, EPISODE_BEST, SUBJECT, STATEMENT, INFORMATIVE, PHRASE, TEMPORAL, STANDING,
) = range(14)  # fmt: skip
N_SIGNALS = 14

# What each row of the weights is for.
PRIOR, REFINE, SCORE, REGION, EPISODE, WINDOW = range(6)
"""Context priors (eq. 10), the graph view's refinement, the hierarchy view's turns, what counts
as a good turn of an episode, and the beams over episodes and over windows (eq. 11)."""

NO_TIME = np.iinfo(np.int64).min


class Units(NamedTuple):
    """The memory's turns as this kernel reads them; the columns of ``zeromem.index.Arrays``."""

    n_tokens: NDArray[np.int32]
    flags: NDArray[np.int32]
    speaker: NDArray[np.int32]
    role: NDArray[np.int32]
    time: NDArray[np.int64]
    group: NDArray[np.int32]
    group_asks: NDArray[np.float32]
    group_informative: NDArray[np.float32]
    turn_inverse_norm: NDArray[np.float32]
    previous: NDArray[np.int32]
    following: NDArray[np.int32]
    window_inverse_norm: NDArray[np.float32]
    episode_of: NDArray[np.int32]
    episode_inverse_norm: NDArray[np.float32]
    sentence_indptr: NDArray[np.int64]
    sentence_addresses: NDArray[np.int64]
    sentence_inverse_norm: NDArray[np.float32]


class Asked(NamedTuple):
    """A batch of b questions.

    Attributes
    ----------
    queries : (b, dim) float32
    dots : (b, n) float32
        Inner products with the turns' vectors as they are.
    turn_lexical, window_lexical, episode_lexical : (b, n) float32
        ``bm25``'s scores.
    masks : (n_masks, n) bool
        Turns within a boundary; question j's is ``masks[mask_of[j]]``.
    mask_of : (b,) int32
    speaker_indptr, speaker : CSR (b x n_speakers)
        Speakers that count as the question's subject.
    row_indptr, row : CSR (b x n)
        Turns that do so by their title.
    by_role : (b,) int32
        Where the subject is a role and not a name; -1 otherwise.
    period : (b, 2) int64
        Microseconds, half-open; empty where the question names no period.
    standing : (b,) int8
        1 where it asks for help: standing instructions of ``user_role`` count.
    phrase : (b, n) or (0, 0) float32
        Share of the question's phrases that stand in each turn; (0, 0) where unused.
    sentence_dots : (b, n_sentences) or (1, 0) float32
        Inner products with the sentences' vectors; where they are left out, those that are needed
        are computed one by one, with the same bits.
    """

    queries: NDArray[np.float32]
    dots: NDArray[np.float32]
    turn_lexical: NDArray[np.float32]
    window_lexical: NDArray[np.float32]
    episode_lexical: NDArray[np.float32]
    masks: NDArray[np.bool_]
    mask_of: NDArray[np.int32]
    speaker_indptr: NDArray[np.int64]
    speaker: NDArray[np.int32]
    row_indptr: NDArray[np.int64]
    row: NDArray[np.int32]
    by_role: NDArray[np.int32]
    period: NDArray[np.int64]
    standing: NDArray[np.int8]
    phrase: NDArray[np.float32]
    sentence_dots: NDArray[np.float32]


class Views(NamedTuple):
    """What the kernel returns.

    Attributes
    ----------
    prior_rows : (b, p) int32
        Turns with a context prior, padded with -1.
    priors : (b, p) float64
        They sum to 1, or to 0 where no turn is admissible or all are alike.
    refine : (b, n) float32
        Lexical and other support of the graph view's ranking; meaningless outside the mask.
    rows : (b, k) int32
        The hierarchy view's candidates, best first, padded with -1.
    scores : (b, k) float32
    subject : (b, n) bool
        Turns whose speaker or title is what the question names.
    """

    prior_rows: NDArray[np.int32]
    priors: NDArray[np.float64]
    refine: NDArray[np.float32]
    rows: NDArray[np.int32]
    scores: NDArray[np.float32]
    subject: NDArray[np.bool_]
