"""Whether a question asks for help now, or about what was said or happened."""

from __future__ import annotations

import re

_PAST_VERB = (
    r"(?:\w{2,}ed|said|told|went|made|got|bought|brought|took|gave|saw|came|met|wrote|spoke|"
    r"thought|found|chose|knew|began|ran|left|felt|kept|paid|sent|spent|won|lost|held|heard|led|"
    r"built|taught|caught|drove|ate|fell|grew|wore|broke|sold)"
)
_PAST = re.compile(
    r"\b(?:did|was|were|had|have|has|ago|yesterday|earlier|previously|already)\b|"
    r"\b(?:did|was|were|had|have|has)n['’]t\b|\b\w+['’]ve\b|"
    rf"\b(?:I|we|you|he|she|they|it|who|that|which)\s+(?:\w+ly\s+)?{_PAST_VERB}\b",
    re.IGNORECASE,
)
_HELP = re.compile(
    r"\bhow (?:do|can|could|should|would|might|to)\b|\b(?:can|could|would|will) (?:you|I|we)\b|"
    r"\b(?:should|shall) (?:I|we)\b|"
    r"\bI(?:['’]m| am) (?:trying|looking|planning|working|going|thinking)\b|"
    r"\bI (?:need|want)\b|(?:^|[.!?]\s+)(?:please\s+)?(?:help|show|explain|give|write|tell|list|"
    r"describe|suggest|recommend|make|create|draft|plan|translate|summari[sz]e)\b",
    re.IGNORECASE,
)
_FIRST_PERSON = re.compile(r"\b(?:I|my|mine|we|our|ours|us|me)\b", re.IGNORECASE)


def asks_help(question: str) -> bool:
    """Tell a task ("How should I cite this?") from a recollection ("How did I cite it?").

    Parameters
    ----------
    question : str

    Returns
    -------
    bool
        False for a question about the past, or about the asker's own things ("What is my budget?").
    """
    if _PAST.search(question):
        return False
    return _HELP.search(question) is not None or _FIRST_PERSON.search(question) is None
