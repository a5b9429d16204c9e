"""What a reader is: the one stage that may spend LLM tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from zeromem.types import Evidence, QueryProfile, TokenUsage


@dataclass(frozen=True, slots=True)
class Draft:
    """a_0 of eq. 16: what a reader said before calibration.

    Attributes
    ----------
    text : str
        Empty where the reader abstained.
    usage : TokenUsage
        What it cost; zero for a reader without an LLM.
    cited : tuple of int
        Positions in the evidence that the reader named as its sources, strongest first.
    spans : tuple of (int, int, int)
        Where the reader knows them: evidence position and the character range in that item's text.
    confidence : float, optional
        How sure the reader is of this answer, to be compared with its other answers alone: the
        mean log-probability of the answer's tokens, or a score of the reader's own. None where it
        does not know.
    """

    text: str
    usage: TokenUsage = field(default_factory=TokenUsage)
    cited: tuple[int, ...] = ()
    spans: tuple[tuple[int, int, int], ...] = ()
    confidence: float | None = None


@runtime_checkable
class Reader(Protocol):
    """Final QA: reads a question and its evidence, and nothing else."""

    def read(self, question: str, evidence: Sequence[Evidence], *, profile: QueryProfile) -> Draft:
        """Answer from the evidence alone.

        Parameters
        ----------
        question : str
        evidence : sequence of Evidence
            R(q), best first.
        profile : QueryProfile

        Raises
        ------
        ReaderError
            Where the model cannot be reached or does not answer in its protocol.
        """
        ...
