"""A conversation-like English corpus, made from templates: for speed, not for evidence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np

from zeromem.times import EventTime
from zeromem.types import Trace

_FIRST = (
    "Ana", "Ben", "Carla", "Dmitri", "Elena", "Farid", "Greta", "Hugo", "Irene", "Jonas", "Keiko",
    "Luis", "Marta", "Nadia", "Oscar", "Priya", "Quentin", "Rosa", "Samir", "Tilda", "Umar", "Vera",
    "Wendy", "Yusuf", "Zofia",
)  # fmt: skip
_LAST = (
    "Almeida", "Becker", "Castro", "Dubois", "Eriksen", "Ferrari", "Gupta", "Hansen", "Ivanova",
    "Jensen", "Kowalski", "Lindqvist", "Moreau", "Novak", "Okafor", "Petrov", "Quispe", "Rossi",
    "Schneider", "Tanaka", "Ueda", "Vargas", "Weber", "Yamada", "Zhang",
)  # fmt: skip
_PLACES = (
    "Lisbon", "Porto", "Berlin", "Kyoto", "Nairobi", "Toronto", "Oslo", "Lima", "Vienna", "Dublin",
    "Seoul", "Marseille", "Boston", "Prague", "Valencia", "Helsinki", "Montreal", "Naples",
)  # fmt: skip
_KINDS = ("Labs", "Foods", "Systems", "Museum", "Clinic", "Airlines", "Press", "Institute")
_THINGS = (
    "a bicycle", "the guitar", "an old camera", "two kittens", "a sourdough starter", "the tent",
    "a second-hand piano", "three novels", "the kitchen table", "a telescope", "new running shoes",
    "the spreadsheet", "a watercolour set", "the garden shed", "a blue raincoat", "the recipe",
)  # fmt: skip
_ACTS = (
    "bought", "repaired", "lost", "painted", "sold", "borrowed", "found", "gave away", "ordered",
    "finished with", "photographed", "cleaned",
)  # fmt: skip
_DAYS = (
    "yesterday", "last Friday", "in March", "two weeks ago", "on the weekend", "this morning",
    "in the summer of 2023", "on 14 May", "before the holidays", "after work",
)  # fmt: skip
_FEELINGS = (
    "really proud of it", "a little worried", "so tired", "happier than before", "not sure yet",
    "quite relieved", "curious how it ends", "busy with the children", "calmer now",
)  # fmt: skip
_SENTENCES = (
    "I {act} {thing} {day}.",
    "{person} told me that {other} {act} {thing} in {place}.",
    "We are going to {place} with {person}, and I am {feeling}.",
    "My sister works for {company} and moved from {place} to {place2} {day}.",
    "Did you know that {company} opened an office in {place}?",
    "Honestly, I was {feeling} when {person} called.",
    "The train to {place} was late again, so we stayed at home and cooked.",
    "What did {person} say about {thing}?",
    "I always keep {thing} beside the door, or I forget it.",
    "There were about {n} people at the concert in {place}, which is more than we expected.",
    "She {act} {thing} for {n} euros, although the first offer was much higher.",
    "That sounds lovely!",
    "I see what you mean.",
    "He teaches physics at the {company} and plays chess with {person} every week.",
    "The doctor said to rest, drink water and come back {day}.",
    "If the weather holds, {person} and I will walk along the river and look at the boats.",
    "It took me {n} hours to read the report that {other} wrote for {company}.",
    "Please remind me to send the photos from {place}.",
)


def corpus(n_turns: int, *, seed: int = 20260612, mean_words: float = 28.0) -> list[Trace]:
    """Make a long conversation of two speakers a session.

    Turn lengths are log-normal, names are drawn by Zipf's law, a tenth of which are new.

    Parameters
    ----------
    n_turns : int
    seed : int
    mean_words : float
        Mean words of a turn; 28 are about 35 tokens.
    """
    rng = np.random.default_rng(seed)
    people = [f"{first} {last}" for first in _FIRST for last in _LAST]
    rng.shuffle(people)
    companies = [f"{name} {kind}" for name in _LAST for kind in _KINDS]
    rng.shuffle(companies)
    sigma = 0.7
    lengths = rng.lognormal(np.log(mean_words) - sigma**2 / 2, sigma, n_turns)
    traces: list[Trace] = []
    begin = datetime(2024, 1, 1, 9, tzinfo=UTC)
    for i in range(n_turns):
        session = i // 25
        pair = (people[session % 7], people[7 + session % 11])
        sentences: list[str] = []
        n_words = 0
        while not sentences or n_words < lengths[i] - 4:
            sentences.append(_sentence(rng, people, companies))
            n_words += len(sentences[-1].split())
        when = begin + timedelta(days=session, minutes=2 * (i % 25))
        traces.append(
            Trace(
                " ".join(sentences), id=f"t{i}", speaker=pair[i % 2].split()[0],
                session=f"s{session}", time=EventTime.parse(when.isoformat()),
            )
        )  # fmt: skip
    return traces


def _sentence(rng: np.random.Generator, people: list[str], companies: list[str]) -> str:
    def pick(options: tuple[str, ...]) -> str:
        return options[int(rng.integers(len(options)))]

    def named(options: list[str]) -> str:
        return options[min(int(rng.zipf(1.4)), len(options)) - 1]

    name = named(people)
    return pick(_SENTENCES).format(
        act=pick(_ACTS), thing=pick(_THINGS), day=pick(_DAYS), feeling=pick(_FEELINGS),
        place=pick(_PLACES), place2=pick(_PLACES), n=int(rng.integers(2, 400)),
        company=named(companies), other=named(people),
        person=name if rng.random() < 0.5 else name.split()[0],
    )  # fmt: skip


QUESTIONS = [
    form.format(person=f"{first} {last}", place=place, thing=thing)
    for first, last, place, thing in zip(_FIRST, _LAST, _PLACES * 2, _THINGS * 2, strict=False)
    for form in (
        "What did {person} say about {thing}?",
        "When did {person} travel to {place}?",
        "Who told me that {thing} was sold in {place} last summer?",
    )
]
"""Questions about such a conversation."""
