"""Everyday English that no parse gives: which words speak of the same thing.

General vocabulary only, small on purpose. Sentences are found by retrieval; this decides between
the sentences of what was found.
"""

# ruff: noqa: SIM905 - lists of words read as words
from __future__ import annotations

import re

# Verbs that say little by themselves: matching them proves nothing.
LIGHT_VERBS = frozenset("be do have get go make take give use tell say know happen mention".split())
# Verbs whose object is another verb, which is what is asked about.
CONTROL_VERBS = LIGHT_VERBS | frozenset(
    "want plan try hope need decide like love intend begin start wish prefer agree".split()
)

# Short and long names of one thing.
SAME = dict.fromkeys("photo photograph photography image pic snapshot".split(), "picture")
SAME |= {
    "mom": "mother", "mum": "mother", "dad": "father", "grandma": "grandmother",
    "grandpa": "grandfather", "kid": "child", "bike": "bicycle", "fav": "favorite",
    "favourite": "favorite", "bday": "birthday", "tv": "television", "colour": "color",
    "flat": "apartment", "metre": "meter",
}  # fmt: skip

_GROUPS = (
    "work job employ employer hire company office career employee start join",
    "live move settle home apartment house reside",
    "study university college school degree course class learn",
    "cost pay price spend charge buy purchase owe",
    "give get receive present gift",
    "like love enjoy favorite prefer passion fan hobby",
    "begin start join",
    "finish end complete",
    "pet dog cat kitten puppy",
    "marry wedding husband wife",
    "fear afraid scare",
    "repair fix mend",
    "born birth baby",
    "own buy",
    "trip travel visit journey vacation holiday",
    "call name",
    "cook bake make prepare",
    "leave quit resign",
    "leave depart departure",
    "grow raise",
)
RELATED: dict[str, frozenset[str]] = {}
for _group in _GROUPS:
    for _word in _group.split():
        RELATED[_word] = RELATED.get(_word, frozenset()) | frozenset(_group.split())

ENDS = frozenset("leave quit stop resign end sell lose cancel".split())
AGAINST = frozenset("hate dislike refuse avoid quit stop cancel deny lose".split())

COLORS = frozenset(
    "black white grey gray red green blue yellow orange purple pink brown violet turquoise teal "
    "beige gold golden silver navy maroon cream ivory indigo crimson lilac lavender".split()
)
PLACES = frozenset(
    "place city town country state village location area region continent island neighborhood "
    "venue spot destination lake river mountain beach park museum restaurant".split()
)
PEOPLE = frozenset(
    "person man woman friend author artist colleague neighbor relative teacher sibling brother "
    "sister cousin actor singer writer musician player people child".split()
)

OCCUPATION = re.compile(
    r"(?i)\bdo(?:es|ing)? for (?:a living|work)\b|\b(?:job|profession|occupation)\b"
)

# Words by which a sentence reports that something did not come about.
FAILURE = re.compile(
    r"(?i)\b(?:fail(?:ed)?|g[ai]ve up|giving up|quit|dropped out|pulled out|missed|cancel(?:l?ed)?|"
    r"nearly|almost|half ?way|unfortunately|never|only (?:got|made)|stopped|turned back)\b"
)
