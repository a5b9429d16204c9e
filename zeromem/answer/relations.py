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
    "work job employ employer hire company office career employee colleague coworker start join",
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
    "bear born birth baby newborn deliver",
    "niece nephew uncle aunt",
    "price total cost amount sum fee fare",
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

# What is said of an event in several words, by the verb that a question names it with.
PARAPHRASES = {
    "bear": r"ha(?:d|s had) (?:her|him|them|a (?:little |baby |healthy )*"
            r"(?:baby|girl|boy|son|daughter)|the baby|twins)\b"
            r"(?! \w+(?:ed|en)\b)|gave birth|came into the world",
    "die": r"passed away|passed on|is gone|lost (?:my|her|his|our) (?:\w+ )?"
           r"(?:mother|father|mum|dad|gran\w*|dog|cat|aunt|uncle)",
    "marry": r"tied the knot|got hitched|said (?:yes|I do)|walked down the aisle",
    "repair": r"(?:brought|got|put) (?:it|them) back|works? again|good as new|"
              r"lives? again|running again",
    "fix": r"(?:brought|got|put) (?:it|them) back|works? again|good as new|running again",
    "quit": r"hand(?:ed|ing) (?:in|back) (?:my|her|his|the)|gave (?:my |her |his )?notice",
    "resign": r"hand(?:ed|ing) in (?:my|her|his)|gave (?:my |her |his )?notice",
    "look": r"took care|taking care|babysat|cat-?sat|dog-?sat|house-?sat|"
            r"mind(?:ed|ing) (?:the|his|her|their)",
}  # fmt: skip

ENDS = frozenset("leave quit stop resign end sell lose cancel".split())
AGAINST = frozenset("hate dislike refuse avoid quit stop cancel deny lose".split())

COLORS = frozenset(
    "black white grey gray red green blue yellow orange purple pink brown violet turquoise teal "
    "beige gold golden silver navy maroon cream ivory indigo crimson lilac lavender".split()
)
FEMALE = frozenset(
    "woman lady girl mother mum mom sister aunt niece daughter wife girlfriend grandmother "
    "landlady bride queen waitress actress".split()
)
MALE = frozenset(
    "man boy guy father dad brother uncle nephew son husband boyfriend grandfather landlord "
    "groom king waiter".split()
)
# Parts of a thing and not places: "on top of the boiler".
PARTS = frozenset(
    "top bottom end middle side front back edge centre center corner start beginning rest part "
    "half way time case moment fact course point order".split()
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

# Nouns for anybody: "I'm a changed man" names no occupation.
ANYBODY = frozenset(
    "man woman person guy girl boy lad lass fella bloke human adult mess fan uncle aunt mother "
    "father mum dad parent sister brother friend beginner lover believer member owner winner "
    "loser number".split()
)

# Asks whether something was carried through, in whatever words.
COMPLETION = re.compile(
    r"(?i)\b(?:finish(?:ed)?|complet(?:e|ed)|ma(?:k|d)e it|manag(?:e|ed) to|succe(?:ed|eded)|"
    r"(?:get|got|go|went|ran|run|walk(?:ed)?|to) (?:all the way|(?:to )?the (?:end|finish|top))|"
    r"reach(?:ed)? the (?:end|finish|top|summit|goal))\b"
)

# Words by which a sentence reports that something was carried through.
SUCCESS = re.compile(
    r"(?i)\b(?:finish(?:ed)?|complet(?:e|ed)|made it|managed|succeeded|"
    r"crossed the (?:finish )?line|did it|done it|all the way|"
    r"to the (?:very )?end|passed|won|nailed)\b"
)

# Words by which a sentence reports that something did not come about.
FAILURE = re.compile(
    r"(?i)\b(?:unfortunately|never|fail(?:ed)?|g[ai]ve up|giving up|quit|dropped out|"
    r"pulled out|missed|cancel(?:l?ed)?|nearly|almost|half[ -]?way|only (?:got|made)|stopped|"
    r"turned back|"
    r"(?:got|went|came|made it) (?:only )?(?:as|so) far as|had to (?:stop|quit|turn)|short of|"
    r"bailed|abandon(?:ed)?|called it (?:off|a day)|backed out|ran out of)\b"
)
