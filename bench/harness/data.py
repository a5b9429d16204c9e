"""Evaluation sets as memories and questions. Gold labels stay in :class:`Question`."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from zeromem.errors import ImportFormatError, InvalidInputError
from zeromem.importers import conversations
from zeromem.types import Trace

LOCOMO_CATEGORIES = {
    1: "multi-hop",
    2: "temporal",
    3: "open-domain",
    4: "single-hop",
    5: "adversarial",
}
# "D8:6; D9:17" and "D9:1 D4:4" are several; "D30:05" is padded; "D:11:26" has a colon too many.
_CITATION = re.compile(r"D\s*:?\s*(\d+)\s*:\s*(\d+)")


@dataclass(frozen=True)
class Memory:
    """What a method may see.

    Attributes
    ----------
    name : str
    traces : tuple of Trace
        With ids, unique.
    ephemeral : bool
        One question's own context: made, asked and forgotten.
    """

    name: str
    traces: tuple[Trace, ...]
    ephemeral: bool = False

    @cached_property
    def session_of(self) -> dict[str, str]:
        """Session by trace id; a document without one is its own."""
        return {t.id or "": t.session if t.session is not None else f"#{t.id}" for t in self.traces}


@dataclass(frozen=True)
class Question:
    """A question with its labels, which no method sees: methods get ``text`` alone.

    Attributes
    ----------
    text, category : str
    gold : frozenset of str
        Ids of the traces that carry the answer.
    n_bad_citations : int
        Citations that name no trace.
    answer : str, optional
    """

    text: str
    category: str
    gold: frozenset[str]
    n_bad_citations: int = 0
    answer: str | None = None


Task = tuple[Memory, list[Question]]


@dataclass(frozen=True)
class Dataset:
    """An evaluation set.

    Attributes
    ----------
    name : str
    tasks : sequence of (Memory, list of Question)
        May be made one at a time while iterated over.
    files : dict
        What ran: base names and SHA-256 of the files.
    shared : Memory, optional
        Every trace that the tasks' memories draw on, so that each is encoded once.
    sessions : bool
        Whether session-level figures say anything the trace-level ones do not.
    """

    name: str
    tasks: Sequence[Task]
    files: dict[str, Any]
    shared: Memory | None = None
    sessions: bool = True


def fingerprint(path: Path) -> dict[str, str]:
    """Return base name and SHA-256 of a data file."""
    return {"name": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def citations(labels: Sequence[Any], known: set[str]) -> tuple[frozenset[str], int]:
    """Read LoCoMo's evidence labels.

    Parameters
    ----------
    labels : sequence
        Strings that hold one or more turn ids, some padded or malformed.
    known : set of str
        The conversation's turn ids.

    Returns
    -------
    found : frozenset of str
        Cited ids that exist.
    n_bad : int
        Citations that name no turn.
    """
    found: set[str] = set()
    n_bad = 0
    for label in labels:
        cited = _CITATION.findall(str(label))
        n_bad += not cited
        for session, turn in cited:
            turn_id = f"D{int(session)}:{int(turn)}"
            if turn_id in known:
                found.add(turn_id)
            else:
                n_bad += 1
    return frozenset(found), n_bad


def load_locomo(
    path: Path,
    *,
    limit: int | None = None,
    corrections: Path | None = None,
    categories: Sequence[int] = (1, 2, 3, 4),
) -> Dataset:
    """Load LoCoMo: one memory per conversation, turns as gold.

    Parameters
    ----------
    path : Path
        Official format.
    limit : int, optional
        Questions in all, the first ones.
    corrections : Path, optional
        Published label corrections (``sample_id``, ``qa_index``, ``correct_evidence``,
        ``correct_answer``) to apply.
    categories : sequence of int
        The tables use 1 to 4.
    """
    samples = json.loads(path.read_text(encoding="utf-8"))
    files: dict[str, Any] = fingerprint(path)
    fixes: dict[tuple[str, int], dict[str, Any]] = {}
    if corrections is not None:
        fixes = {
            (fix["sample_id"], fix["qa_index"]): fix
            for fix in json.loads(corrections.read_text(encoding="utf-8"))
        }
        files["corrections"] = fingerprint(corrections)
    tasks: list[Task] = []
    left = limit
    for sample, conversation in zip(samples, conversations(path, "locomo"), strict=True):
        memory = Memory(str(conversation.name), tuple(conversation.traces))
        known = set(memory.session_of)
        questions = []
        for index, item in enumerate(sample["qa"]):
            if item["category"] in categories:
                item = item | _corrected(fixes.get((memory.name, index)))
                gold, n_bad = citations(item.get("evidence") or [], known)
                category = LOCOMO_CATEGORIES[item["category"]]
                answer = item.get("answer", item.get("adversarial_answer"))
                questions.append(Question(item["question"], category, gold, n_bad, _text(answer)))
        _append(tasks, memory, questions[:left])
        left = None if left is None else left - len(questions[:left])
    return Dataset("locomo", tasks, files)


def _corrected(fix: dict[str, Any] | None) -> dict[str, Any]:
    if fix is None:
        return {}
    return {"evidence": fix["correct_evidence"], "answer": fix["correct_answer"]}


def _text(answer: object) -> str | None:
    return None if answer is None else str(answer)  # some are whole numbers


def _append(tasks: list[Task], memory: Memory, questions: list[Question]) -> None:
    if questions:
        tasks.append((memory, questions))


def load_beam(path: Path, *, limit: int | None = None) -> Dataset:
    """Load BEAM: one memory per chat, messages as gold, abilities as categories."""
    tasks: list[Task] = []
    left = limit
    with path.open(encoding="utf-8") as lines:
        chats = [json.loads(line) for line in lines if line.strip()]
    for chat, conversation in zip(chats, conversations(path, "beam"), strict=True):
        memory = Memory(str(conversation.name), tuple(conversation.traces))
        known = set(memory.session_of)
        questions = []
        for item in chat["questions"]:
            cited = [str(message) for message in item.get("evidence") or []]
            gold = frozenset(cited) & known
            bad = sum(message not in known for message in cited)
            questions.append(
                Question(item["question"], item["ability"], gold, bad, _text(item.get("answer")))
            )
        _append(tasks, memory, questions[:left])
        left = None if left is None else left - len(questions[:left])
    return Dataset("beam", tasks, fingerprint(path))


@dataclass(frozen=True)
class HotpotContexts(Sequence[Task]):
    """One memory per question, made when asked for: its own passages and random others.

    Attributes
    ----------
    items : list of dict
    pool : dict
        Passage by title.
    documents, seed : int
        Passages per context; question i's context is drawn and shuffled with ``seed`` and i.
    """

    items: list[dict[str, Any]]
    pool: dict[str, Trace]
    documents: int
    seed: int
    titles: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Task:  # type: ignore[override]
        if not 0 <= index < len(self.items):
            raise IndexError(index)
        item = self.items[index]
        own = list(dict.fromkeys(item["context_titles"]))
        rng = random.Random(f"{self.seed}/{index}")
        mine = set(own)
        others = [title for title in self.titles if title not in mine]
        chosen = own + rng.sample(others, max(0, self.documents - len(own)))
        rng.shuffle(chosen)
        memory = Memory(
            f"hotpotqa-{index}", tuple(self.pool[title] for title in chosen), ephemeral=True
        )
        gold = frozenset(item["gold_titles"]) & set(chosen)
        bad = len(set(item["gold_titles"]) - gold)
        question = Question(
            item["question"], item.get("type") or "all", gold, bad, _text(item.get("answer"))
        )
        return memory, [question]

    def __iter__(self) -> Iterator[Task]:
        return (self[index] for index in range(len(self)))


def load_hotpotqa(
    questions: Path, pool: Path, *, documents: int, seed: int = 0, limit: int | None = None
) -> Dataset:
    """Load long-context HotpotQA by MemAgent's recipe; gold is the supporting titles.

    Raises
    ------
    InvalidInputError
        Where the pool has fewer passages than ``documents``.
    ImportFormatError
        Where a question's own passage is missing from the pool.
    """
    items = _json_lines(questions)[:limit]
    passages = {
        item["title"]: Trace(item["text"], id=item["title"], role="document", title=item["title"])
        for item in _json_lines(pool)
    }
    if documents > len(passages):
        raise InvalidInputError(
            f"--documents must be at most the pool's {len(passages)} passages, got {documents}"
        )
    for number, item in enumerate(items, 1):
        if missing := set(item["context_titles"]) - set(passages):
            raise ImportFormatError(
                f"question {number}: field 'context_titles': {min(missing)!r} is not in the pool"
            )
    files: dict[str, Any] = {**fingerprint(questions), "pool": fingerprint(pool)}
    contexts = HotpotContexts(items, passages, documents, seed, list(passages))
    shared = Memory("hotpotqa-pool", tuple(passages.values()))
    return Dataset("hotpotqa", contexts, files, shared=shared, sessions=False)


def _json_lines(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]
