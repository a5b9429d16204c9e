"""Tables and plots come from result files and from nothing else, the same bytes every time."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

from zeromem.errors import ImportFormatError
from zeromem.evaluation.tables import markdown, plots, results
from zeromem.evaluation.tables.views import CATEGORIES, KS, VIEWS, Column

BENCH = Path(__file__).parents[1] / "bench"
ROWS = {
    "table1": [
        {"reader": "extractive", "method": "zeromem", "budgeted": True, "n_failed": 0,
         **{f"gam.{m}.{c}": 0.4321 + i / 100 for m in ("f1", "bleu1")
            for i, c in enumerate(CATEGORIES)},
         "gam.f1.average.interval": [0.4, 0.5], "gam.f1.average.minus_hybrid": -0.0123,
         "gam.f1.average.minus_hybrid.interval": [-0.03, 0.01], "evidence.recall": 0.7654},
        {"reader": "extractive", "method": "long|llm", "budgeted": False, "n_failed": 12345,
         "gam.f1.single-hop": 0.1},
    ],
    "figure3": [
        {"set": data, "reader": "extractive", "method": method, "gam.f1.average": 0.3 + i / 50}
        for data in ("hotpotqa", "locomo")
        for i, method in enumerate(("zeromem", "graph"))
    ],
    "figure4": [
        {"reader": "extractive", "method": "zeromem", "k": k, "gam.f1.average": k / 50} for k in KS
    ],
    "backbones": [
        {"set": "locomo", "reader": reader, "method": "zeromem", "accuracy": 0.8 + i / 10,
         "cost": 0.01 * i + 0.01, "median_seconds": 2.0 - i}
        for i, reader in enumerate(("small", "large"))
    ],
}  # fmt: skip


def load(name):
    spec = importlib.util.spec_from_file_location(f"bench_{name}", BENCH / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


render = load("render")


@pytest.fixture
def folder(tmp_path):
    """Results that no plot is drawn from, which takes a while."""
    return make(tmp_path / "results", ["table1"])


@pytest.fixture
def drawn(tmp_path):
    return make(tmp_path / "results", ROWS)


def make(made, tables):
    for table in tables:
        results.write(
            made / f"{table}.json",
            {
                "table": table, "command": f"python bench/tables.py {table} --limit 5",
                "commit": "0123456789abcdef-dirty", "encoder": "hash-32", "rows": ROWS[table],
                "hardware": {"gpu": None, "cores": 2, "cpu": "a processor"},
                "notes": ["A note of the run."],
            },
        )  # fmt: skip
    return made


def run(folder, out, *more):
    return render.main([str(folder), "--out", str(out), *map(str, more)])


def digests(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {p.relative_to(folder): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


# ---- the whole


def test_rendering_twice_gives_the_same_bytes(drawn, tmp_path):
    for place in ("one", "two"):
        assert run(drawn, tmp_path / place / "tables.md") == 0
    one = digests(tmp_path / "one")
    assert one == digests(tmp_path / "two")
    before = dict(one)
    assert run(drawn, tmp_path / "one" / "tables.md") == 0  # in place
    assert digests(tmp_path / "one") == before
    endings = {path.suffix for path in one}
    assert endings == {".md", ".png", ".svg"}
    assert sum(path.suffix == ".svg" for path in one) == 5  # as many plots as have rows


def test_other_figures_give_another_plot(drawn, tmp_path):
    run(drawn, tmp_path / "a" / "t.md")
    result = json.loads((drawn / "figure4.json").read_text())
    result["rows"][2]["gam.f1.average"] += 0.01
    results.write(drawn / "figure4.json", result)
    run(drawn, tmp_path / "b" / "t.md")
    a, b = digests(tmp_path / "a"), digests(tmp_path / "b")
    changed = {str(path) for path in a if a[path] != b[path]}
    assert changed == {"t.md", "plots/figure4.png", "plots/figure4.svg"}


def test_only_a_hand_changed_block_changes(folder, tmp_path):
    out = tmp_path / "README.md"
    text = "\n".join(
        ["# Title", "", "<!-- begin:table1 -->", "<!-- end:table1 -->", "Words of ours, 43.21.",
         "<!-- begin:table1-amem -->", "old", "<!-- end:table1-amem -->", "The end."]
    )  # fmt: skip
    out.write_text(text)
    assert run(folder, out) == 0
    made = out.read_text()
    assert made.startswith("# Title\n\n<!-- begin:table1 -->\n**LoCoMo")
    assert "<!-- end:table1 -->\nWords of ours, 43.21.\n<!-- begin:table1-amem -->" in made
    assert made.endswith("<!-- end:table1-amem -->\nThe end.")
    assert "\nold\n" not in made
    out.write_text(made.replace("| 43.21 / 43.21", "| 99.99 / 43.21").replace("The end", "An end"))
    assert run(folder, out) == 0
    assert out.read_text() == made.replace("The end", "An end")


def blocks_of(path):
    found = re.finditer(r"<!-- begin:([\w-]+) -->\n(.*?)<!-- end", path.read_text(), re.DOTALL)
    return {match[1]: match[2] for match in found}


def test_a_folder_with_one_table_leaves_the_others(folder, tmp_path):
    """Rendering what ran today does not wipe what ran yesterday, unless that is wanted."""
    out = tmp_path / "README.md"
    names = ["table1", "figure4", "table2"]
    out.write_text("".join(f"<!-- begin:{n} -->\n<!-- end:{n} -->\n" for n in names))
    assert run(make(tmp_path / "before", ["figure4"]), out) == 0
    first = blocks_of(out)
    for name in ("table1", "table2"):  # empty markers show what the papers printed
        assert "not run yet" in first[name]
        assert " † |" in first[name]
    assert "not run yet" not in first["figure4"]
    assert run(folder, out) == 0
    second = blocks_of(out)
    assert second["figure4"] == first["figure4"]
    assert second["table2"] == first["table2"]
    assert "| 43.21 / 43.21" in second["table1"]
    assert run(folder, out, "--all") == 0
    third = blocks_of(out)
    assert "not run yet" in third["figure4"]
    assert third["table1"] == second["table1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no marker", "must hold pairs"),
        ("<!-- begin:table1 -->\n", "must hold pairs"),
        ("<!-- begin:table1 -->\n<!-- end:table2 -->", "must hold pairs"),
        ("<!-- begin:table9 -->\n<!-- end:table9 -->", "'table9'; there are table1"),
    ],
)
def test_markers_that_cannot_be_filled(folder, tmp_path, capsys, text, message):
    out = tmp_path / "README.md"
    out.write_text(text)
    assert run(folder, out) == 2
    assert message in capsys.readouterr().err
    assert out.read_text() == text


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "x.json is no JSON"), ("[]", "one JSON object"), ('{"table": "t"}', "command, rows")],
)
def test_a_file_that_is_no_result(folder, tmp_path, capsys, text, message):
    (folder / "x.json").write_text(text)
    assert run(folder, tmp_path / "t.md") == 2
    error = capsys.readouterr().err
    assert "x.json" in error
    assert message in error


def test_other_scripts_results_may_lie_beside(folder, tmp_path):
    (folder / "misses.json").write_text('{"k": 5}')
    assert {made["table"] for made in results.read_folder(folder)} == {"table1"}


# ---- the figures


def test_figures_shown_are_those_of_the_file(folder, tmp_path):
    out = tmp_path / "t.md"
    run(folder, out)
    body = re.search(r"begin:table1 -->\n(.*?)<!-- end", out.read_text(), re.DOTALL)[1]
    lines = [line.strip("| ").split(" | ") for line in body.splitlines() if line.startswith("|")]
    head, ours = lines[0], lines[2]
    row = ROWS["table1"][0]
    for category in CATEGORIES:
        f1, bleu = (100 * row[f"gam.{m}.{category}"] for m in ("f1", "bleu1"))
        assert ours[head.index(category)] == f"{f1:.2f} / {bleu:.2f}"
    assert ours[head.index("F1 95%")] == "[40.00, 50.00]"
    assert ours[head.index("− hybrid [95%]")] == "-1.23 [-3.00, +1.00]"
    assert ours[head.index("R(q) recall")] == "76.54"
    other = lines[3]
    assert other[1] == "long\\|llm ‡"
    assert other[head.index("failed")] == "12,345"
    assert "multi-hop" in head
    assert other[head.index("multi-hop")] == ""  # nobody has run it
    assert "A note of the run." in body
    assert "python bench/tables.py table1 --limit 5` (commit 0123456789ab with changes" in body
    assert "encoder hash-32, 2 cores of a processor)" in body


def test_published_rows_are_marked_and_ours_are_not(folder, tmp_path):
    out = tmp_path / "t.md"
    run(folder, out)
    text = out.read_text()
    for name, table in results.read_published(render.PUBLISHED).items():
        block = re.search(rf"begin:{name} -->\n(.*?)<!-- end", text, re.DOTALL)[1]
        assert f"† published, not ours: {table.source}, {table.where}." in block
        assert sum(line.count(" † |") for line in block.splitlines()) == len(table.rows)
    assert "zeromem †" not in re.search(r"begin:table1 -->(.*?)<!-- end", text, re.DOTALL)[1]


def test_a_table_that_nobody_ran_has_an_empty_row(folder, tmp_path):
    out = tmp_path / "t.md"
    run(folder, out)
    block = re.search(r"begin:table2 -->\n(.*?)<!-- end", out.read_text(), re.DOTALL)[1]
    ours = next(line for line in block.splitlines() if "not run yet" in line)
    assert not re.search(r"\d", ours)
    assert "| 334.77 |" in block


def test_several_results_of_one_table_stand_in_one(folder, tmp_path):
    result = json.loads((folder / "table1.json").read_text())
    for row in result["rows"]:
        row["reader"] = "gpt"
    results.write(folder / "more" / "table1.json", result)
    run(folder, tmp_path / "t.md")
    block = re.search(r"begin:table1 -->(.*?)<!-- end", (tmp_path / "t.md").read_text(), re.DOTALL)
    assert block[1].count("| extractive | ") == block[1].count("| gpt | ") == 2
    assert block[1].count("A note of the run.") == 1


@pytest.mark.parametrize(
    ("kind", "value", "ours", "theirs"),
    [
        ("share", 0.5, "50.00", "0.50"),
        ("interval", [0.4, 0.5], "[40.00, 50.00]", "[40.00, 50.00]"),
        ("points", 0.012, "+1.20", "+1.20"),
        ("count", 14096246, "14,096,246", "14,096,246"),
        ("mean", 12224.84, "12,224.8", "12,224.8"),
        ("seconds", 8365.384, "8,365.38", "8,365.38"),
        ("milliseconds", 0.0123, "12.3", "12.3"),
        ("money", 0.034788, "0.034788", "0.034788"),
        ("text", "a|b", "a\\|b", "a\\|b"),
    ],
)
def test_cells(kind, value, ours, theirs):
    column = Column("c", ("x",), kind)
    assert markdown.cell(column, {"x": value}) == ours
    assert markdown.cell(column, {"x": value}, theirs=True) == theirs
    assert markdown.cell(column, {}) == ""
    assert markdown.cell(column, {"x": None}) == ""


def test_half_a_cell_shows_which_half():
    column = Column("c", ("x", "y"))
    assert markdown.cell(column, {"y": 0.5}) == " / 50.00"


# ---- what the papers printed


def test_the_papers_averages_are_those_of_their_columns():
    weights = {"multi-hop": 282, "temporal": 321, "open-domain": 96, "single-hop": 841}
    rows = results.read_published(render.PUBLISHED)["table1"].rows
    assert len(rows) == 22
    off = {
        (row["reader"], row["method"], metric)
        for row in rows
        for metric in ("gam.f1", "gam.bleu1")
        if abs(sum(n * row[f"{metric}.{c}"] for c, n in weights.items()) / 1540
               - row[f"{metric}.average"]) > 0.01
    }  # fmt: skip
    # As printed: 34.36, where its columns give 34.347.
    assert off == {("GPT-4o-mini", "LightMem", "gam.bleu1")}


def test_the_papers_tables_agree_with_each_other():
    tables = results.read_published(render.PUBLISHED)
    table1 = {row["method"]: row for row in tables["table1"].rows if "GPT" in row["reader"]}
    for row in tables["table2"].rows:
        for key in ("gam.f1.average", "gam.bleu1.average"):
            assert row[key] == table1[row["method"]][key]
        for what in ("tokens", "seconds"):
            total, each = row[f"memory_{what}"], row[f"memory_{what}_per_query"]
            assert total / 1540 == pytest.approx(each, abs=0.006)
    full = {row["k"]: row["gam.f1.average"] for row in tables["figure4"].rows}
    assert full == {1: 52.59, 5: table1["Zero-Mem"]["gam.f1.average"], 10: 59.80}
    table3 = {row["method"]: row for row in tables["table3"].rows if "GPT" in row["reader"]}
    assert tables["figure3"].rows[0]["gam.f1.average"] == table3["Zero-Mem"]["f1.56K"]
    judged = {row["method"]: row["accuracy"] for row in tables["judged-longmemeval"].rows}
    assert judged["Agent Zero"] == tables["backbones-longmemeval"].rows[0]["accuracy"]
    best = tables["channels-longmemeval"].rows[0]
    sol = next(r for r in tables["backbones-longmemeval"].rows if r["reader"] == best["reader"])
    assert best["accuracy"] == sol["accuracy"]


def test_every_published_table_has_a_view_that_shows_all_of_it():
    given = json.loads(render.PUBLISHED.read_text())["tables"]
    assert {table["status"] for table in given.values()} == {"published, not ours"}
    for name, table in given.items():
        shown = {key for column in VIEWS[name].columns for key in column.keys}
        assert {key for row in table["rows"] for key in row} <= shown


def test_views_and_plots_name_what_exists():
    assert all(name == view.name for name, view in VIEWS.items())
    assert {plot.view for plot in plots.PLOTS} <= set(VIEWS)
    for view in VIEWS.values():
        titles = [column.title for column in view.columns]
        assert len(set(titles)) == len(titles), view.name
        assert {c.kind for c in view.columns} <= set(markdown._FORMATS)


def test_a_command_line_names_no_folder_of_this_machine():
    line = results.command_line(["table1", "--locomo", "/home/me/x.json", "--out", "a b", "-k=1"])
    assert line == "python bench/tables.py table1 --locomo x.json --out 'a b' -k=1"
    line = results.command_line(["--methods", "bm25,/home/me/mine.py:Mine", "--out=/home/me/r/"])
    assert line == "python bench/tables.py --methods bm25,mine.py:Mine --out=r"
    line = results.command_line(["--reader", "llama:/m/a.gguf", "--base-url", "http://host/v1"])
    assert line == "python bench/tables.py --reader llama:a.gguf --base-url http://host/v1"


def test_a_result_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "r.json"
    results.write(path, {"table": "t", "command": "c", "rows": []})
    before = path.read_bytes()
    with pytest.raises(ValueError, match="nan"):
        results.write(path, {"table": "t", "command": "c", "rows": [{"x": float("nan")}]})
    assert path.read_bytes() == before
    with pytest.raises(ImportFormatError, match="folder"):
        results.read_folder(tmp_path / "none")
