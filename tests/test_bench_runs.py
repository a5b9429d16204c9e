"""Peers, throughput and latency at the smallest sizes: what is wrong is not timed, all is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import clock
import contests
import numpy as np
import peers
import pytest
import speed
import subjects
import throughput

ROOT = Path(__file__).parents[1]


def entry(name, value, allowed=1e-6):
    def distance(found):
        subjects.must(abs(found - 1.0) < allowed, f"got {found}")
        return abs(found - 1.0)

    return contests.Entry(name, 4, lambda: lambda: value, distance)


def absent():
    raise subjects.Missing("prpack is not installed")


def test_a_wrong_result_is_not_timed_and_a_missing_peer_is_named():
    lost = contests.Entry("lost", 1, absent, lambda found: 0.0)
    rows = peers.contest(
        "ppr", 4, [entry(contests.OURS, 1.0), entry("off", 1.1), lost, entry("right", 1.0)], 20
    )
    ours, off, missing, right = rows
    assert off["wrong"] == "got 1.1"
    assert missing["missing"] == "prpack is not installed"
    assert "seconds" not in off
    assert "seconds" not in missing
    assert ours["ratio"] == 1.0
    assert ours["n_runs"] == right["n_runs"] == 20
    assert right["ratio"] == pytest.approx(right["seconds"] / ours["seconds"])
    assert right["microseconds"] == pytest.approx(1e6 * right["seconds"])


def test_without_ours_nobody_has_a_ratio():
    rows = peers.contest("ppr", 1, [entry(contests.OURS, 2.0), entry("right", 1.0)], 2)
    assert "wrong" in rows[0]
    assert "ratio" not in rows[1]


def test_peers_agree_on_a_small_memory(tmp_path, capsys):
    out = tmp_path / "peers.json"
    options = ["--tokens", "2500", "--dim", "16", "--batches", "1,3", "--repeats", "2"]
    assert peers.main([*options, "--out", str(out)]) == 0
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["table"] == "peers"
    assert found["command"].startswith("python bench/peers.py --tokens 2500")
    assert len(found["load"]) == 3
    timed = [row for row in found["rows"] if "seconds" in row]
    assert not [row for row in found["rows"] if "wrong" in row]
    for what in ("ppr", "lexical", "dense"):
        assert {row["b"] for row in timed if row["contest"] == what} == {1, 3}
        assert contests.OURS in {row["method"] for row in timed if row["contest"] == what}
    named = {row["method"] for row in timed if row["contest"] == "ppr"}
    assert {"igraph prpack", "SciPy power iteration, float64"} <= named
    assert all("over_floor" in row for row in timed if row["method"] == contests.OURS
               and row["contest"] == "ppr")  # fmt: skip
    assert "us per question" in capsys.readouterr().out


@pytest.mark.slow
def test_throughput_and_its_tables(tmp_path):
    out = tmp_path / "results" / "throughput.json"
    done = subprocess.run(
        [
            sys.executable, str(ROOT / "bench" / "throughput.py"), "--tokens", "2500",
            "--dim", "384", "--adding", "2500", "--scaling", "1000,2500,5000", "--packed", "1,3",
            "--packed-tokens", "800", "--processes", "1", "--repeats", "2", "--folder",
            str(tmp_path), "--out", str(out),
        ],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(out.read_text(encoding="utf-8"))
    rows = found["rows"]
    assert {row["part"] for row in rows} == set(throughput.PARTS)
    assert {row["memories"] for row in rows if row["part"] == "packed"} == {1, 3}
    assert {row["how"] for row in rows if row["part"] == "threads"} == {
        "one batch", "8 threads", "one thread",
    }  # fmt: skip
    adds = {row["what"]: row for row in rows if row["part"] == "adding"}
    assert adds["both"]["n_runs"] >= 20
    assert adds["both"]["seconds.max"] >= adds["both"]["seconds.p95"] >= adds["both"]["seconds"]
    scaled = [row for row in rows if row["part"] == "scaling"]
    assert [row["tokens"] for row in scaled] == sorted(row["tokens"] for row in scaled)
    assert set(found["exponents"]) >= {"question", "file", "nonzeros"}
    assert not list(tmp_path.glob("zeromem-bench-*"))  # stores are gone
    text = tmp_path / "speed.md"
    rendered = subprocess.run(
        [sys.executable, str(ROOT / "bench" / "render.py"), str(out.parent), "--out", str(text)],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert rendered.returncode == 0, rendered.stderr
    body = text.read_text(encoding="utf-8")
    for name in ("batches", "packed", "threads", "opening", "adding", "memory", "scaling"):
        block = body.split(f"<!-- begin:speed-{name} -->")[1].split("<!-- end")[0]
        assert "not run yet" not in block
    assert (tmp_path / "plots" / "speed-scaling.png").stat().st_size > 1000


def test_unknown_parts_and_sizes_are_refused(capsys):
    with pytest.raises(SystemExit):
        throughput.main(["--only", "batches,speed"])
    assert "'speed' is none of batches, packed" in capsys.readouterr().err


def test_exponents_are_those_of_the_law():
    tokens = [1e4, 1e5, 1e6, 1e7]
    rows = [{"tokens": t, "seconds": 3e-6 * t**0.8, "on_disk": 9 * t, "resident_added": -1}
            for t in tokens]  # fmt: skip
    fits = speed.exponents(rows)
    assert fits == {"question": pytest.approx(0.8), "file": pytest.approx(1.0)}
    assert speed.exponents(rows[:1]) == {}


def test_calls_take_turns():
    order = []
    times = clock.alternately({n: lambda n=n: order.append(n) for n in "ab"}, 20)
    assert order == ["a", "b"] * 21  # the first of each is not counted
    assert [len(found) for found in times.values()] == [20, 20]
    summary = clock.summary([0.2, 0.4, 0.6], per=2)
    assert summary["seconds"] == pytest.approx(0.2)
    assert summary["n_runs"] == 3


def test_a_permuted_ranking_is_told_from_a_tie():
    import whole

    class Item:
        def __init__(self, row, score):
            self.row, self.score = row, score

    class Ranked:
        def __init__(self, *items):
            self.items = [Item(row, score) for row, score in items]

    exact = [Ranked(*[(i, 1.0 - i / 100) for i in range(40)])]
    assert whole.exempted(exact, exact) == 0.0
    tied = [Ranked(*[(i, 1.0) for i in range(40)])]
    swapped = [Ranked((1, 1.0), (0, 1.0), *[(i, 1.0) for i in range(2, 40)])]
    assert whole.exempted(swapped, tied) == pytest.approx(2 / 40)
    wrong = [Ranked(*[(i, 0.9 - i / 100) for i in range(40)])]
    with pytest.raises(subjects.WrongResult, match="question 0: score"):
        whole.exempted(wrong, exact)
    with pytest.raises(subjects.WrongResult, match="stand elsewhere"):
        whole.exempted([Ranked(*[(i, 1.0) for i in np.roll(range(40), 1)])], tied)


@pytest.mark.slow
def test_latency_benchmarks_run(tmp_path):
    # In one of several test processes nothing would be measured.
    alone = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_XDIST")}
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir",
            str(ROOT), str(ROOT / "bench" / "latency"), "--sizes", "locomo", "-q", "-m",
            "not model", "-k", "ppr or question or stage", "-p", "no:cacheprovider",
            "--benchmark-only", "--benchmark-storage", f"file://{tmp_path}/saved",
            "--benchmark-save", "one",
        ],
        capture_output=True, text=True, timeout=600, cwd=tmp_path, env=alone,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    (saved,) = (tmp_path / "saved").rglob("*.json")
    made = json.loads(saved.read_text(encoding="utf-8"))["benchmarks"]
    kernels = [b for b in made if b["group"].startswith("ppr")]
    assert all(b["extra_info"]["over_floor"] > 0 for b in kernels)
    assert {b["group"] for b in made} >= {"stage: graph view", "question, without encoding"}
    assert all(b["stats"]["rounds"] >= 20 for b in made)
