"""What a turn asks for once and for all: standing instructions and preferences, by their form."""

from __future__ import annotations

import re

# Repeats are bounded: a page of blank lines must not take the square of its length.
_OPENING = (
    r"(?:^|[.!?:\n]\s{0,4}|[-*•]\s{1,4})"
    r"(?:(?:please|and|also|so|but|oh|ok|okay|hey)\b[\s,]{0,4}){0,4}"
)
_ALL_TIMES = (
    r"(?:always|never|from now on|from here on|going forward|in (?:the )?future|by default)"
)
# "Always cite the page" is addressed to the reader; "I always cite" is a habit.
_GENERAL = re.compile(
    rf"{_OPENING}{_ALL_TIMES}\b(?![\s,]{{0,4}}(?:I|I'[a-z]+|we|he|she|they|it|there)\b)",
    re.IGNORECASE,
)
_OCCASION = re.compile(
    r"\b(?:when|whenever|every time|each time|any ?time|if)\s+I\s+(?:ever\s+)?"
    r"(?:ask|mention|request|talk|say|write)\b",
    re.IGNORECASE,
)
_ADDRESSED = re.compile(
    r"\b(?:you (?:should|must|need to|have to|are to)|(?:want|need|like|prefer) you to|"
    r"make sure (?:to|that you|you)|remember to|be sure to)\s+(?:always|never)\b",
    re.IGNORECASE,
)
_PREFERENCE = re.compile(
    r"\bI(?:['’]d| would)?(?:\s+(?:really|always|generally|usually|much|strongly|still))?\s+"
    r"(?:prefer|rather)\b|\bmy preference\b|\bI (?:like|love|hate|dislike|enjoy)\b|"
    r"\bI (?:do not|don['’]t|can['’]t) (?:like|stand|eat|drink|want)\b",
    re.IGNORECASE,
)


def instructs_reader(text: str) -> bool:
    """Whether a text tells its reader how to act from now on ("Always answer in metric units").

    Parameters
    ----------
    text : str

    Returns
    -------
    bool
    """
    return any(form.search(text) for form in (_GENERAL, _OCCASION, _ADDRESSED))


def states_preference(text: str) -> bool:
    """Whether a text says what its speaker likes better ("I'd rather keep it simple")."""
    return _PREFERENCE.search(text) is not None
