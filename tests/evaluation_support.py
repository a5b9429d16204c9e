"""What the tests of retrieval methods share: two chats, and a bank that keeps nothing."""

from __future__ import annotations

from support import HashEncoder

from zeromem.evaluation.methods.features import FeatureBank
from zeromem.evaluation.types import Budget, History, Query
from zeromem.times import EventTime
from zeromem.types import Trace


def talk(*lines, session="s", day=None):
    """Turns of a session, a minute apart where a day is given."""
    return [
        Trace(
            text,
            id=f"{session}{i}",
            speaker=speaker,
            session=session,
            time=None if day is None else EventTime.parse(f"{day}T10:{i:02}:00Z"),
        )
        for i, (speaker, text) in enumerate(lines)
    ]


CHAT = History(
    "chat",
    tuple(
        talk(
            ("Ines", "I sold the green kayak."),
            ("Omar", "Good price for the kayak?"),
            ("Ines", "Enough for a tent."),
            ("Omar", "Then camping it is."),
        )
        + talk(("Omar", "The tent has a hole."), ("Ines", "I will patch it."), session="z")
    ),
)


def bank(scope=None, encoder=None):
    return FeatureBank(encoder or HashEncoder(), scope)


def queries(*texts):
    return [Query(text) for text in texts]


def rank(method, history, *texts, depth=20):
    method.index(history)
    return method.rank(queries(*texts), depth)


def found(method, history, *texts, k=None, tokens=1200):
    """Ids of the evidence, block by block, of the last text."""
    method.index(history)
    *_, last = method.find(queries(*texts), Budget(k, tokens))
    return [tuple(item.id for item in block) for block in last.blocks]
