"""Answer metrics: GAM's, A-Mem's, LoCoMo's own, and HotpotQA's."""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from zeromem.errors import InvalidInputError

_ARTICLES = frozenset(("a", "an", "the"))
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_NO_ANSWER = ("no information available", "not mentioned")


def gam_tokens(text: str) -> list[str]:
    """Lower-case words; what is neither word nor space is a space; articles removed."""
    words = re.sub(r"[^\w\s]", " ", text.lower()).split()
    return [word for word in words if word not in _ARTICLES]


def gam_f1(prediction: str, gold: str) -> float:
    """Multiset token F1; two empty answers agree."""
    return _multiset_f1(gam_tokens(prediction), gam_tokens(gold), both_empty=1.0)


def gam_bleu1(prediction: str, gold: str) -> float:
    """Brevity penalty times clipped unigram precision, unsmoothed."""
    return _bleu1(gam_tokens(prediction), gam_tokens(gold))


def amem_f1(prediction: str, gold: str) -> float:
    """F1 over sets of tokens, ``.,!?`` read as spaces."""
    sets = [set(re.sub(r"[.,!?]", " ", text.lower()).split()) for text in (prediction, gold)]
    common = len(sets[0] & sets[1])
    if not common:
        return 0.0
    return 2 * common / (len(sets[0]) + len(sets[1]))


def amem_bleu1(prediction: str, gold: str) -> float:
    """Return NLTK's ``sentence_bleu`` with weights (1, 0, 0, 0) and smoothing method 1.

    With these weights smoothing changes nothing: it fills in the higher orders, whose weight is 0,
    and NLTK returns 0 where no unigram matches.
    """
    return _bleu1(word_tokens(prediction), word_tokens(gold))


def word_tokens(text: str) -> list[str]:
    """Word-tokenise lower-case text as NLTK does: "don't stop." becomes do, n't, stop, full stop.

    NLTK's ``word_tokenize`` first divides into sentences by a model that has to be downloaded; here
    a sentence ends at ``.!?`` and space. The two differ after abbreviations ("dr. who").

    Raises
    ------
    InvalidInputError
        Where NLTK is not installed.
    """
    tokenize = _nltk("tokenize").NLTKWordTokenizer().tokenize
    return [w for part in _SENTENCE_END.split(text.lower().strip()) for w in tokenize(part)]


def locomo_tokens(text: str) -> list[str]:
    """LoCoMo's normalisation: no commas, punctuation or a/an/the/and; NLTK's Porter stems.

    Raises
    ------
    InvalidInputError
        Where NLTK is not installed.
    """
    text = "".join(c for c in text.replace(",", "").lower() if c not in string.punctuation)
    return [_porter(word) for word in re.sub(r"\b(a|an|the|and)\b", " ", text).split()]


@cache
def _porter(word: str) -> str:
    return str(_stemmer().stem(word))


@cache
def _stemmer() -> Any:
    # NLTK's own variant of Porter's algorithm, which LoCoMo calls, departs from it in some words.
    return _nltk("stem").PorterStemmer()


@cache
def _nltk(part: str) -> Any:
    try:
        return import_module(f"nltk.{part}")
    except ImportError as error:
        raise InvalidInputError(
            "these metrics are defined by NLTK's tokeniser and stemmer: pip install 'zeromem[eval]'"
        ) from error


def locomo_f1(prediction: str, gold: str, category: int) -> float:
    """LoCoMo's official score of one answer.

    Parameters
    ----------
    prediction, gold : str
    category : int
        1 splits both sides on commas and averages, over the golds, the best F1; 3 uses the gold
        before ``;``; 5 is right where the prediction says that there is no answer.
    """
    if category == 5:
        return float(any(phrase in prediction.lower() for phrase in _NO_ANSWER))
    if category == 3:
        gold = gold.split(";")[0].strip()
    if category != 1:
        return _locomo_pair(prediction, gold)
    said = [part.strip() for part in prediction.split(",")]
    wanted = [part.strip() for part in gold.split(",")]
    return sum(max(_locomo_pair(s, w) for s in said) for w in wanted) / len(wanted)


def _locomo_pair(prediction: str, gold: str) -> float:
    return _multiset_f1(locomo_tokens(prediction), locomo_tokens(gold), both_empty=0.0)


def hotpot_normal(text: str) -> str:
    """Lower-case, punctuation and articles removed, single spaces."""
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def hotpot_em(prediction: str, gold: str) -> float:
    """Exact match after normalisation."""
    return float(hotpot_normal(prediction) == hotpot_normal(gold))


def hotpot_f1(prediction: str, gold: str) -> float:
    """Multiset token F1; yes, no and no-answer score 0 against anything else."""
    said, wanted = hotpot_normal(prediction), hotpot_normal(gold)
    closed = ("yes", "no", "noanswer")
    if said != wanted and (said in closed or wanted in closed):
        return 0.0
    return _multiset_f1(said.split(), wanted.split(), both_empty=0.0)


def best(metric: Callable[[str, str], float], prediction: str, golds: Iterable[str]) -> float:
    """Score against several right answers: the best over them, 0 where there is none."""
    return max((metric(prediction, gold) for gold in golds), default=0.0)


def _multiset_f1(prediction: Sequence[str], gold: Sequence[str], *, both_empty: float) -> float:
    if not prediction and not gold:
        return both_empty
    common = sum((Counter(prediction) & Counter(gold)).values())
    if not common:
        return 0.0
    precision, recall = common / len(prediction), common / len(gold)
    return 2 * precision * recall / (precision + recall)


def _bleu1(prediction: Sequence[str], gold: Sequence[str]) -> float:
    if not prediction:
        return 0.0
    clipped = sum((Counter(prediction) & Counter(gold)).values())
    brevity = min(1.0, math.exp(1 - len(gold) / len(prediction)))
    return brevity * clipped / len(prediction)
