"""Frozen configuration. ``Config()`` is the tuned default, ``Config.paper()`` eq. 3-15 to the letter."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from zeromem.errors import InvalidInputError


def _check(owner: object, **limits: tuple[float, float]) -> None:
    for name, (low, high) in limits.items():
        value: Any = getattr(owner, name)
        if not low <= value <= high:
            raise InvalidInputError(
                f"{type(owner).__name__}.{name} must be in [{low:g}, {high:g}], got {value!r}"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class IngestConfig:
    """How traces become turns.

    Attributes
    ----------
    max_turn_words : int
        A longer trace splits at sentence borders into turns of at most this many words (a CJK
        character counts as one).
    batch_traces : int
        Traces per transaction of a bulk add, and per encoding batch.
    """

    max_turn_words: int = 150
    batch_traces: int = 512

    def __post_init__(self) -> None:
        _check(self, max_turn_words=(8, 100_000), batch_traces=(1, 1_000_000))


@dataclass(frozen=True, kw_only=True, slots=True)
class HierarchyConfig:
    """How turns become windows and episodes (eq. 5).

    Attributes
    ----------
    window : int
        Turns per window; a window is centred on each turn and clipped at its session's ends.
    depth : float
        An episode ends where the dip in similarity between neighbouring windows exceeds the
        session's mean dip by this many standard deviations.
    min_turns, max_turns : int
        Bounds of an episode's length where the session is long enough.
    gap_hours : float
        A silence longer than this ends an episode whatever the similarity.
    local : int
        Turns on either side that a local span restores.
    """

    window: int = 3
    depth: float = 0.5
    min_turns: int = 3
    max_turns: int = 24
    gap_hours: float = 6.0
    local: int = 2

    def __post_init__(self) -> None:
        _check(
            self,
            window=(1, 99),
            depth=(-10, 10),
            min_turns=(1, 10_000),
            max_turns=(1, 10_000),
            gap_hours=(0, float("inf")),
            local=(0, 99),
        )
