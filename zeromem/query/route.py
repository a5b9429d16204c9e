"""Route(q), eq. 7: which view comes first, by the structure of the question."""

from __future__ import annotations

from zeromem.types import QueryProfile, Route

_ORDERED = {
    "when": "asks for a time",
    "duration": "asks how long",
    "current": "asks for the present state",
    "first": "asks for the first of its kind",
    "last": "asks for the last of its kind",
    "at": "names a time",
    "before": "names a time",
    "after": "names a time",
    "between": "names a time",
}


def route(
    profile: QueryProfile, anchors: tuple[str, ...], speakers: tuple[str, ...]
) -> tuple[Route, str]:
    """Choose the primary view and say why.

    Parameters
    ----------
    profile : QueryProfile
    anchors : tuple of str
        Entities of the question that the graph holds, speakers apart.
    speakers : tuple of str
        Speakers that the question names.

    Returns
    -------
    route : Route
    reason : str
    """
    if anchors:
        return Route.RELATIONAL, f"the graph knows {', '.join(anchors[:3])}"
    if reason := _ORDERED.get(profile.temporal.kind):
        return Route.LOCAL, f"{reason}: order and session state decide"
    if len(speakers) > 1:
        return Route.RELATIONAL, f"relates {' and '.join(speakers[:3])}"
    if profile.aggregation:
        return Route.RELATIONAL, "gathers items from several interactions"
    if speakers:
        return Route.LOCAL, f"about {speakers[0]}, who is matched by who speaks"
    return Route.LOCAL, "no entity of the question is in the graph"
