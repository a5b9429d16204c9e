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
from zeromem.evaluation.answering.readers import ChatReader, chat_reader
from zeromem.evaluation.types import Answered, Dataset
from zeromem.types import TokenUsage

if TYPE_CHECKING:
    from zeromem.evaluation.answering.run import Answers

_VERDICT = re.compile(r"(?i)\b(in)?correct\b")
_LINE = re.compile(r"(?im)^\W*verdict\W+(in)?correct\b\W*$")
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
    """The judge replied, but with no verdict or with two."""

    def __init__(self, reply: str, usage: TokenUsage) -> None:
        super().__init__(f"the judge's reply holds no single verdict: {reply[:_SHOWN]!r}")
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
    """Read a verdict; None where there is none, or more than one that differ."""
    reply = re.sub(r"(?is)<think>.*?</think>", "", reply)
    said = {m.group(1) is None for m in _LINE.finditer(reply)}
    if not said:  # the bare word, or a sentence with one of the words
        said = {m.group(1) is None for m in _VERDICT.finditer(reply)}
        if re.search(r"(?i)\bnot\s+correct\b", reply):
            return None
    return said.pop() if len(said) == 1 else None


class Judge:
    """A chat model as a judge.

    Parameters
    ----------
    chat : ChatReader
        Whose replies are kept where its own cache says.
    """

    def __init__(self, chat: ChatReader) -> None:
        self._chat = chat
        self.fingerprint = f"{chat.fingerprint} judge={key_of(template())[:16]}"

    def verdict(self, question: str, golds: Sequence[str], answer: str) -> Verdict:
        """Judge one answer; what fails says why and is asked again in the next run."""

        def check(text: str, usage: TokenUsage) -> None:
            if parse_verdict(text) is None:
                raise UnparsableVerdictError(text, usage)

        try:
            value, usage, _, _ = self._chat.chat(
                "judge", judge_messages(question, golds, answer), check
            )
        except UnparsableVerdictError as error:
            return Verdict(False, error.usage, str(error))
        except Exception as error:
            return Verdict(False, error=f"{type(error).__name__}: {error}")
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
