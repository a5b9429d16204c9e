"""Which tables a run makes, and what can be known to be wrong before anything is paid for."""

from __future__ import annotations

from collections.abc import Sequence

from zeromem.errors import InvalidInputError, ZeroMemError
from zeromem.evaluation import methods
from zeromem.evaluation.tables.commands import COMMANDS, ablation_sets, lengths, read_prices
from zeromem.evaluation.tables.setting import FILES, Setting

JUDGING = tuple(name for name, command in COMMANDS.items() if command.judges)


def wanted(setting: Setting, names: Sequence[str]) -> list[str]:
    """Return the tables that are meant; ``all`` is those whose data was given.

    Raises
    ------
    InvalidInputError
        Where a table's data is missing, before any other is made.
    """
    if "all" in names:
        setting.given(*FILES)
        return [n for n, c in COMMANDS.items() if any(setting.has(name) for name in c.sets)]
    for name in names:
        setting.given(*COMMANDS[name].sets, table=name)
    return list(dict.fromkeys(names))


def preflight(setting: Setting, names: Sequence[str]) -> dict[str, str]:
    """Try all that can go wrong before the first method runs and the first reader is asked.

    Parameters
    ----------
    setting : Setting
    names : sequence of str
        Of tables, from :func:`wanted`.

    Returns
    -------
    dict
        Why a table cannot be made of its data, by its name. The others can go on.

    Raises
    ------
    ZeroMemError, OSError
        Where an option that all tables share is unusable: methods, readers, judge, prices, rows.
    """
    chosen = [COMMANDS[name] for name in names]
    if setting.options.judge is not None and not any(command.judges for command in chosen):
        raise InvalidInputError(
            f"--judge is asked for {', '.join(JUDGING)} and for no other table; leave it out for "
            f"{', '.join(names)}"
        )
    run = dict.fromkeys(name for command in chosen for name in setting.names(command.methods))
    own = [name for name in run if name not in methods.NAMES]
    if own:
        for method in methods.make(own, encoder=setting.encoder, device=setting.device):
            method.close()
    if any(command.reads for command in chosen):
        _ = setting.readers
    if any(command.judges for command in chosen):
        _ = setting.judge
    if "backbones" in names:
        read_prices(setting)
    problems = _unusable(setting, names)
    if len(problems) < len(names):
        setting.open_rows()
    return problems


def _unusable(setting: Setting, names: Sequence[str]) -> dict[str, str]:
    """Load every table's data once."""
    known: dict[tuple[str, int | None], str | None] = {}
    problems: dict[str, str] = {}
    for name in names:
        try:
            for key in _data(setting, name):
                if key not in known:
                    known[key] = _problem(setting, *key)
                if (problem := known[key]) is not None:
                    problems[name] = problem
                    break
        except (ZeroMemError, OSError) as error:
            problems[name] = str(error)
    return problems


def _problem(setting: Setting, name: str, documents: int | None) -> str | None:
    try:
        setting.load(name, documents=documents)
    except (ZeroMemError, OSError) as error:
        return str(error)
    return None


def _data(setting: Setting, table: str) -> list[tuple[str, int | None]]:
    """Return the sets that a table is made from, with their passages per context."""
    if table == "table3":
        fitting, _ = lengths(setting, table)
        return [("hotpotqa", documents) for documents in fitting.values()]
    if table == "figure3":
        sets, _ = ablation_sets(setting)
        shortest = min(lengths(setting, table)[0].values()) if "hotpotqa" in sets else None
        return [(name, shortest if name == "hotpotqa" else None) for name in sets]
    sets = setting.given(*COMMANDS[table].sets, table=table)
    return [(name, setting.documents(name)) for name in sets]
