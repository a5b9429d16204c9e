r"""The papers' tables and figures for any reader, any encoder and any data in these formats.

Examples::

    python bench/tables.py table1 --locomo locomo.json --out results
    python bench/tables.py all --locomo locomo.json --hotpotqa-questions questions.jsonl \
        --hotpotqa-pool pool.jsonl --reader openai:gpt-4o-mini --jobs 8 --cache cache --out results
    python bench/render.py results --out tables.md

Each writes OUT/COMMAND.json, from which bench/render.py makes Markdown and plots.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from zeromem.errors import ZeroMemError
from zeromem.evaluation import methods
from zeromem.evaluation.answering import judge, readers
from zeromem.evaluation.tables import results
from zeromem.evaluation.tables.commands import COMMANDS, make
from zeromem.evaluation.tables.plan import JUDGING, preflight, wanted
from zeromem.evaluation.tables.setting import Setting


def parser() -> argparse.ArgumentParser:
    """Build the command line."""
    lines = [f"  {name:12}{command.help}" for name, command in COMMANDS.items()]
    lines += ["  all         everything whose data is given", "", "methods:"]
    lines += [f"  {name:20}{what}" for name, what in methods.describe().items()]
    top = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="commands:\n" + "\n".join(lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        conflict_handler="resolve",  # --reader below replaces the one that can be given once
    )
    top.add_argument("commands", nargs="+", choices=(*COMMANDS, "all"), metavar="COMMAND")
    _data(top)
    _run(top)
    readers.add_arguments(top)
    judge.add_arguments(top)
    top.add_argument(
        "--reader", action="append", metavar="NAME",
        help="extractive (default), openai:MODEL, llama or llama:FILE.gguf; may be given again",
    )  # fmt: skip
    top.add_argument(
        "--judge", metavar="openai:MODEL",
        help=f"also judge every answer with this model, in {', '.join(JUDGING)}",
    )  # fmt: skip
    return top


def _data(top: argparse.ArgumentParser) -> None:
    add = top.add_argument_group("data").add_argument
    add("--locomo", type=Path, metavar="FILE", help="official LoCoMo JSON")
    add("--corrections", type=Path, metavar="FILE", help="published label corrections for LoCoMo")
    add("--hotpotqa", type=Path, metavar="FILE", help="public HotpotQA JSON; or the next two")
    add("--hotpotqa-questions", type=Path, metavar="FILE", help="JSON Lines that name passages")
    add("--hotpotqa-pool", type=Path, metavar="FILE", help="the passages, JSON Lines")
    add("--beam", type=Path, metavar="FILE", help="BEAM chats, JSON Lines")
    add("--longmemeval", type=Path, metavar="FILE", help="LongMemEval JSON: oracle, S or M")
    add("--musique", type=Path, metavar="FILE", help="MuSiQue, JSON Lines")
    add("--twowiki", type=Path, metavar="FILE", help="2WikiMultihopQA JSON")
    add("--documents", type=int, metavar="N",
        help="passages per context of HotpotQA, MuSiQue and 2WikiMultihopQA in `answers` and "
        "`retrieval`; default: a question's own, or of a pool as many as table3's longest"
    )  # fmt: skip
    add("--hotpotqa-documents", type=int, metavar="N", help="the same for HotpotQA alone")
    add("--categories", metavar="N,N", help="LoCoMo's category numbers (default 1,2,3,4)")
    add("--with-unanswerable", action="store_true", help="MuSiQue's unanswerable questions too")


def _run(top: argparse.ArgumentParser) -> None:
    add = top.add_argument_group("run").add_argument
    add("--methods", metavar="A,B", help="in place of the command's own; also file.py:Class")
    add("--config", default="default", choices=("default", "paper"), help="of zeromem's methods")
    add("--encoder", help="model name or folder; default: the device's")
    add("--device", default="cpu", choices=("auto", "cpu", "cuda"))
    add("--k", type=int, default=5, help="retrieved items (default 5)")
    add("--token-budget", type=int, default=1200, help="of the evidence (default 1200)")
    add("--limit", type=int, help="ask the first LIMIT questions of each set only")
    add("--seed", type=int, default=0, help="of contexts and bootstrap (default 0)")
    add("--prices", type=Path, metavar="FILE", help="USD per million tokens by model, JSON")
    add("--cache", type=Path, metavar="DIR",
        help="keep features and replies here: a later run starts from them")  # fmt: skip
    add("--rows", type=Path, metavar="FILE",
        help="write each question's answer, scores and evidence here, JSON Lines")  # fmt: skip
    add("--out", type=Path, default=Path("results"), metavar="DIR", help="default: results")


def check(top: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuse unusable options, naming option, value and fix."""
    for option in ("k", "token_budget", "limit", "jobs", "documents", "hotpotqa_documents"):
        value = getattr(options, option)
        if value is not None and value < 1:
            top.error(f"--{option.replace('_', '-')} must be at least 1, got {value}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 1 where a sample or some table failed, 2 where nothing was made."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    top = parser()
    options = top.parse_args(given)
    check(top, options)
    try:
        with Setting(options) as setting:
            names = wanted(setting, options.commands)
            problems = preflight(setting, names)
            failed = 0
            for name in names:
                if name not in problems:
                    failed += _one(setting, name, given, problems)
    except (ZeroMemError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for name, reason in problems.items():
        print(f"error: {name} was not made: {reason}", file=sys.stderr)
    if len(problems) == len(names):
        return 2
    return 1 if failed or problems else 0


def _one(setting: Setting, name: str, given: Sequence[str], problems: dict[str, str]) -> int:
    """Make and write one table; return how many samples and verdicts failed.

    A table that cannot be made is noted in ``problems``.
    """
    print(f"{name} ...", file=sys.stderr)
    try:
        result = {"command": results.command_line(given), **make(setting, name)}
        results.write(setting.options.out / f"{name}.json", result)
    except Exception as error:  # the other tables, which may have been paid for, go on
        if not isinstance(error, ZeroMemError | OSError):
            traceback.print_exc(file=sys.stderr)
        problems[name] = str(error) if isinstance(error, ZeroMemError | OSError) else repr(error)
        return 0
    return sum(row.get(key, 0) for row in result["rows"] for key in ("n_failed", "n_judge_failed"))


if __name__ == "__main__":
    sys.exit(main())
