"""Judged accuracy: a chat model compares an answer with the reference answers.

The judge sees reference answers, as it must; nothing that it sees or says reaches a method or a
reader. Its tokens are metered apart from theirs.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from zeromem.errors import InvalidInputError
from zeromem.evaluation.answering.cache import ReplyCache, key_of
from zeromem.evaluation.answering.failures import Watch, metered, tell, tell_unmetered
from zeromem.evaluation.answering.readers import ChatReader, chat_reader
from zeromem.evaluation.types import Answered, Dataset
from zeromem.types import TokenUsage

if TYPE_CHECKING:
    from zeromem.evaluation.answering.run import Answers

_MARKS = "[*_`\"'\u2018\u2019\u201c\u201d<>{}()\\[\\]]*"  # Markdown, quotes and brackets
_VERDICT = re.compile(rf"(?i)\bverdict{_MARKS}\s*[:\uff1a]\s*{_MARKS}\s*")
# What follows the word must end the statement: "correct in part" and "correct or incorrect" do not.
_WORD = re.compile(
    rf"(?i)(in)?correct{_MARKS}(?=\s*\Z|[ \t]*[\n.;!]|,\s*\"|,?[ \t]+(?:because|since|as)\b)"
)
_BARE = re.compile(rf"(?i)\s*{_MARKS}(in)?correct{_MARKS}[.!]?{_MARKS}\s*")
_THOUGHT = re.compile(r"(?is)\A.*</think>|<think>.*\Z")
_SHOWN = 120  # characters of a reply in an error


@dataclass(frozen=True)
class Verdict:
    """What the judge said of one answer.

    Attributes
    ----------
    correct : bool
        False too where there is an ``error``: a failed verdict counts as failed, and is counted.
    usage : TokenUsage
    error : str, optional
    """

    correct: bool
    usage: TokenUsage = field(default_factory=TokenUsage)
    error: str | None = None


@dataclass(frozen=True)
class Judged:
    """The verdicts on one method's answers.

    Attributes
    ----------
    verdicts : dict
        By question id; questions without a reference answer have none.
    fingerprint : str
        The judge's model, settings and prompt.
    """

    verdicts: dict[str, Verdict] = field(default_factory=dict)
    fingerprint: str = ""

    @property
    def usage(self) -> TokenUsage:
        """Tokens of all verdicts."""
        return sum((v.usage for v in self.verdicts.values()), TokenUsage())


class UnparsableVerdictError(Exception):
    """The judge replied, but with no verdict."""

    def __init__(self, reply: str, usage: TokenUsage) -> None:
        super().__init__(f"the judge's reply holds no verdict: {reply[:_SHOWN]!r}")
        self.usage = usage


@cache
def template() -> str:
    """Return the judge's prompt, with its places for question, golds and answer."""
    path = files("zeromem.evaluation.answering") / "prompts" / "judge.txt"
    return path.read_text(encoding="utf-8").strip()


def judge_messages(question: str, golds: Sequence[str], answer: str) -> list[dict[str, str]]:
    """Build the chat that asks for one verdict."""
    values = {
        "question": _quoted(question),
        "golds": "\n".join(f"- <<<{_quoted(gold)}>>>" for gold in golds),
        "answer": _quoted(answer) or "(no answer)",
    }
    # One pass, so that an answer that contains "{golds}" stays what it is.
    text = re.sub(r"\{(\w+)\}", lambda m: values[m.group(1)], template())
    return [{"role": "user", "content": text}]


def _quoted(text: str) -> str:
    return re.sub(r"<<<|>>>", " ", text).strip()


def parse_verdict(reply: str) -> bool | None:
    """Read a verdict.

    Parameters
    ----------
    reply : str

    Returns
    -------
    bool or None
        What the last "verdict: correct" or "verdict: incorrect" says, wherever it stands, or the
        bare word where it is all of the reply. None for anything else: a sentence that has the
        word in it may well deny it.
    """
    reply = _THOUGHT.sub("", reply)
    heads = [m.end() for m in _VERDICT.finditer(reply)]
    found = _WORD.match(reply, heads[-1]) if heads else _BARE.fullmatch(reply)
    return None if found is None else found.group(1) is None


class Judge:
    """A chat model as a judge.

    Parameters
    ----------
    chat : ChatReader
        Whose replies are kept where its own cache says.
    """

    def __init__(self, chat: ChatReader) -> None:
        self._chat = chat
        self._watch = Watch("judge")
        self.fingerprint = f"{chat.fingerprint} judge={key_of(template())[:16]}"

    def verdict(self, question: str, golds: Sequence[str], answer: str) -> Verdict:
        """Judge one answer; what fails says why and is asked again in the next run.

        Raises
        ------
        ReaderError
            Where every further verdict would fail too.
        """

        def check(text: str, usage: TokenUsage) -> None:
            if parse_verdict(text) is None:
                raise UnparsableVerdictError(text, usage)

        self._watch.check()
        try:
            value, usage, _, fresh = self._chat.chat(
                "judge", judge_messages(question, golds, answer), check
            )
            check(value["text"], usage)  # what was kept before a rule changed
        except UnparsableVerdictError as error:
            return Verdict(False, error.usage, str(error))
        except Exception as error:
            self._watch.failed(error)
            usage = getattr(error, "usage", TokenUsage())
            return Verdict(False, usage, f"{type(error).__name__}: {error}")
        if fresh:
            self._watch.replied()
        return Verdict(bool(parse_verdict(value["text"])), usage)

    def close(self) -> None:
        """Close the replies."""
        self._chat.close()


def judge(
    dataset: Dataset,
    answered: Mapping[str, Answers],
    judging: Judge,
    *,
    jobs: int = 1,
    corrected: bool = False,
) -> dict[str, Judged]:
    """Judge every method's answers.

    Parameters
    ----------
    dataset : Dataset
    answered : mapping
        From :func:`zeromem.evaluation.answering.run.answer`. A failed sample is incorrect
        without the judge's being asked.
    judging : Judge
    jobs : int
        Requests at once.
    corrected : bool
        Judge by the corrected labels where the set has any.

    Returns
    -------
    dict
        By method name.

    Raises
    ------
    ReaderError
        Where every verdict would fail: the endpoint refuses the key or does not know the model,
        or does not answer at all.
    """
    golds: dict[str, tuple[str, tuple[str, ...]]] = {}
    for _, questions in dataset.tasks:
        for q in questions:
            labels = dataset.corrected.get(q.id, q) if corrected else q
            golds[q.id] = (q.query.text, labels.answers)

    def one(row: Answered) -> Verdict:
        if row.error is not None:  # incorrect, and counted as a failed sample already
            return Verdict(False)
        text, right = golds[row.question_id]
        return judging.verdict(text, right, row.answer)

    found: dict[str, Judged] = {}
    with ThreadPoolExecutor(jobs) as pool:
        for name, answers in answered.items():
            known = [row for row in answers.rows if golds[row.question_id][1]]
            verdicts = _all(pool, one, known)
            ids = [row.question_id for row in known]
            found[name] = Judged(dict(zip(ids, verdicts, strict=True)), judging.fingerprint)
    said = [v for judged in found.values() for v in judged.verdicts.values()]
    tell("verdicts", (v.error for v in said))
    tell_unmetered("verdicts", sum(not metered(v.usage) for v in said), len(said))
    return found


def _all(
    pool: ThreadPoolExecutor, one: Callable[[Answered], Verdict], rows: Sequence[Answered]
) -> list[Verdict]:
    futures = [pool.submit(one, row) for row in rows]
    try:
        return [future.result() for future in futures]
    except BaseException:  # an interrupt: let what is under way arrive, and ask no more
        for future in futures:
            future.cancel()
        raise


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose a judge; rate limits and replies are the reader's."""
    add = parser.add_argument_group("judge").add_argument
    add("--judge", metavar="openai:MODEL", help="also judge every answer with this model")
    add("--judge-base-url", metavar="URL", help="where it differs from the reader's")
    add("--judge-api-key-env", metavar="NAME", help="where it differs from the reader's")


def from_options(options: argparse.Namespace) -> Judge | None:
    """Make the judge that the options name; None where they name none.

    Raises
    ------
    InvalidInputError, ReaderError
    """
    if options.judge is None:
        return None
    name, _, model = options.judge.partition(":")
    if name != "openai" or not model:
        raise InvalidInputError(f"--judge must be openai:MODEL, got {options.judge!r}")
    settings = argparse.Namespace(**{**vars(options), "logprobs": False, "temperature": 0.0})
    chat = chat_reader(
        model, settings, ReplyCache(options.replies), base_url=options.judge_base_url,
        api_key_env=options.judge_api_key_env,
    )  # fmt: skip
    return Judge(chat)
