"""What the tables of one run share: data, encoder, methods, readers and where things are kept."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from zeromem.backend import resolve
from zeromem.config import Config
from zeromem.errors import InvalidInputError
from zeromem.evaluation import datasets, methods, report
from zeromem.evaluation.answering import judge, readers
from zeromem.evaluation.answering.readers import RunReader
from zeromem.evaluation.datasets.contexts import Contexts
from zeromem.evaluation.datasets.hotpotqa import LONGEST
from zeromem.evaluation.methods.warm import warm
from zeromem.evaluation.tables.results import placeless
from zeromem.evaluation.types import Budget, Dataset, Method
from zeromem.ingest.encode import Encoder, load_encoder

FILES: dict[str, tuple[tuple[str, str], ...]] = {
    "locomo": (("locomo", "--data"), ("corrections", "--corrections")),
    "hotpotqa": (
        ("hotpotqa", "--data"),
        ("hotpotqa_questions", "--questions"),
        ("hotpotqa_pool", "--pool"),
    ),
    "beam": (("beam", "--data"),),
    "longmemeval": (("longmemeval", "--data"),),
    "musique": (("musique", "--data"),),
    "twowiki": (("twowiki", "--data"),),
}
"""Each set's options here, and what its loader calls them; one of the first kind is enough."""
CONTEXTS = ("hotpotqa", "musique", "twowiki")
"""Sets that draw a context for each question."""
NOT_MEMAGENTS = "The HotpotQA questions are not MemAgent's own 128."


class Setting:
    """One run of the tables.

    Parameters
    ----------
    options : argparse.Namespace
        Of ``bench/tables.py``.

    Attributes
    ----------
    table : str
        The one that is being made.
    data : dict
        Files that it was made from.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.device = resolve(options.device).device
        self.data: dict[str, Any] = {}
        self.table = ""
        self._latest: tuple[tuple[str, int | None], Dataset] | None = None
        self._closing = ExitStack()
        cache: Path | None = options.cache
        if cache is None:
            cache = Path(self._closing.enter_context(TemporaryDirectory(prefix="zeromem-tables-")))
        cache.mkdir(parents=True, exist_ok=True)
        self._cache = cache
        self._passages: dict[str, int] = {}
        self._warmed: set[str] = set()
        self._rows: IO[str] | None = None

    def close(self) -> None:
        """Close readers and judge, and remove what is not kept."""
        self._closing.close()

    def __enter__(self) -> Setting:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- data

    def has(self, name: str) -> bool:
        """Whether the command line gives a set's data."""
        # Corrections alone are no data.
        given = (option for option, _ in FILES[name] if option != "corrections")
        return any(getattr(self.options, option) is not None for option in given)

    def given(self, *names: str, table: str = "all") -> list[str]:
        """Return those of the named sets whose data the command line gives.

        Parameters
        ----------
        *names : str
        table : str
            What needs one of them.

        Raises
        ------
        InvalidInputError
            Where it gives none of them.
        """
        found = [name for name in names if self.has(name)]
        if not found:
            wanted = " or ".join(f"--{FILES[name][0][0].replace('_', '-')}" for name in names)
            raise InvalidInputError(f"{table} needs data: give {wanted}")
        return found

    def load(self, name: str, *, documents: int | None = None) -> Dataset:
        """Load a set, and note its files.

        Parameters
        ----------
        name : str
        documents : int, optional
            Passages per context, in a set that has contexts.

        Raises
        ------
        InvalidInputError, ImportFormatError, OSError
        """
        if name not in CONTEXTS:
            documents = None
        if self._latest is None or self._latest[0] != (name, documents):
            self._latest = None  # two sets need not be held at once
            self._latest = ((name, documents), self._read(name, documents))
        dataset = self._latest[1]
        self.data[name if documents is None else f"{name}, {documents} documents"] = dataset.files
        return dataset

    def n_passages(self, name: str) -> int:
        """Count the passages that a set's contexts can be drawn from."""
        if name not in self._passages:
            tasks = self._read(name, 1).tasks
            self._passages[name] = len(tasks.traces) if isinstance(tasks, Contexts) else 0
        return self._passages[name]

    def documents(self, name: str) -> int | None:
        """Return the passages per context that the command line asks for; None: the set's own.

        A pool without contexts of its own gives the longest that it can.
        """
        options = self.options
        chosen: int | None = options.documents if name in CONTEXTS else None
        if name == "hotpotqa":
            if options.hotpotqa_documents is not None:
                chosen = options.hotpotqa_documents
            if chosen is None and options.hotpotqa_pool is not None and options.hotpotqa is None:
                return min(LONGEST, self.n_passages(name))
        return chosen

    def _read(self, name: str, documents: int | None) -> Dataset:
        parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
        datasets.add_arguments(parser, name)
        words = [
            f"{theirs}={value}"
            for ours, theirs in FILES[name]
            if (value := getattr(self.options, ours)) is not None
        ]
        if self.options.limit is not None:
            words.append(f"--limit={self.options.limit}")
        if name in CONTEXTS:
            words.append(f"--seed={self.options.seed}")
            if documents is not None:
                words.append(f"--documents={documents}")
        if name == "locomo" and self.options.categories is not None:
            words.append(f"--categories={self.options.categories}")
        if name == "musique" and self.options.with_unanswerable:
            words.append("--with-unanswerable")
        chosen = parser.parse_args(words)
        chosen.set = name
        try:
            return datasets.load(chosen)
        except InvalidInputError as error:
            raise InvalidInputError(f"{name}: {error}") from None

    # ---- methods

    @cached_property
    def encoder(self) -> Encoder:
        """The encoder that every method shares."""
        return load_encoder(self.options.encoder, self.device)

    @property
    def budget(self) -> Budget:
        """What every method may give the reader."""
        return Budget(self.options.k, self.options.token_budget)

    def names(self, default: Sequence[str]) -> list[str]:
        """Return the names of ``--methods``, or a command's default."""
        chosen: str | None = self.options.methods
        found = list(default) if chosen is None else [n.strip() for n in chosen.split(",")]
        methods.check(found)
        return list(dict.fromkeys(found))

    def make(self, names: Iterable[str], store: Path | None = None) -> list[Method]:
        """Make methods over the kept features, or over a store of their own."""
        return methods.make(
            list(names),
            encoder=self.encoder,
            store=self._cache / "features.zm" if store is None else store,
            device=self.device,
            paper=self.options.config == "paper",
        )

    def warm(self, names: Iterable[str]) -> None:
        """Run methods that have not run yet over next to nothing, before a clock starts."""
        cold = [name for name in names if name not in self._warmed]
        if not cold:
            return
        warm(
            cold,
            encoder=self.encoder,
            device=self.device,
            paper=self.options.config == "paper",
            budget=self.budget,
        )
        self._warmed.update(cold)

    @contextmanager
    def fresh_store(self) -> Iterator[Path]:
        """Lend a store that knows nothing yet, for honest times."""
        with TemporaryDirectory(prefix="zeromem-fresh-") as folder:
            yield Path(folder) / "fresh.zm"

    # ---- readers and judge

    @cached_property
    def readers(self) -> dict[str, RunReader]:
        """Readers by name, in the order of the command line."""
        found: dict[str, RunReader] = {}
        for name in dict.fromkeys(self.options.reader or ["extractive"]):
            chosen = self._replying(reader=name)
            encoder = self.encoder if name == "extractive" else None
            found[_short(name)] = reader = readers.from_options(chosen, encoder)
            self._closing.callback(reader.close)
        return found

    @cached_property
    def judge(self) -> judge.Judge | None:
        """The judge, where the command line names one."""
        made = judge.from_options(self._replying())
        if made is not None:
            self._closing.callback(made.close)
        return made

    def _replying(self, **changed: Any) -> argparse.Namespace:
        replies = self.options.replies or self._cache / "replies.sqlite"
        return argparse.Namespace(**{**vars(self.options), "replies": replies, **changed})

    # ---- question by question

    @property
    def keeps_rows(self) -> bool:
        """Whether anybody wants each question's own row."""
        return self.options.rows is not None

    def keep(self, row: Mapping[str, Any]) -> None:
        """Write one question's row of the table in hand to the file of ``--rows``."""
        if not self.keeps_rows:
            return
        self.open_rows()
        line = json.dumps({"table": self.table, **row}, ensure_ascii=False, allow_nan=False)
        if self._rows is not None:
            self._rows.write(line + "\n")

    def open_rows(self) -> None:
        """Empty the file of ``--rows``, where one is named, once in a run.

        Raises
        ------
        OSError
            Where it cannot be written.
        """
        if self.keeps_rows and self._rows is None:
            self.options.rows.parent.mkdir(parents=True, exist_ok=True)
            self._rows = self._closing.enter_context(self.options.rows.open("w", encoding="utf-8"))

    # ---- the report

    def about(self, *, reads: bool = True, judges: bool = True) -> dict[str, Any]:
        """Return what the figures depend on; no secret, and no folder of this machine.

        Parameters
        ----------
        reads, judges : bool
            Whether the table asks readers and judge.
        """
        hidden = {"base_url", "judge_base_url"}
        given = {
            # A folder's own name is enough: the encoder's fingerprint stands beside it.
            name: placeless(value)
            if isinstance(value, str)
            else [placeless(str(part)) for part in value]
            if isinstance(value, list)
            else value
            for name, value in vars(self.options).items()
            # Files are named, with their digests, under "data".
            if name not in hidden and not isinstance(value, Path)
        }
        config = Config.paper() if self.options.config == "paper" else Config()
        made = self.readers if reads else {}
        judging = self.judge if judges else None
        return {
            "commit": report.commit(),
            "versions": report.versions(),
            "hardware": report.hardware(self.device),
            "data": dict(self.data),
            "encoder": self.encoder.fingerprint,
            "reader": {name: reader.fingerprint for name, reader in made.items()},
            "judge": judging.fingerprint if judging is not None else None,
            "seeds": {"contexts": self.options.seed, "bootstrap": self.options.seed},
            "settings": {**given, "zeromem": asdict(config)},
        }


def _short(reader: str) -> str:
    """Return the name that tables show: the model's, without the protocol or the folder."""
    kind, _, detail = reader.partition(":")
    return (Path(detail).stem if kind == "llama" else detail) or kind
