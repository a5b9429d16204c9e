"""bench/paper.sh: what it misses it names, all at once; rehearsed, it takes every step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from chat_server import Server, good

SCRIPT = Path(__file__).parents[1] / "bench" / "paper.sh"
DATA = Path(__file__).with_name("data")
OURS = (
    "LOCOMO", "LOCOMO_CORRECTIONS", "HOTPOTQA", "HOTPOTQA_QUESTIONS", "HOTPOTQA_POOL",
    "LONGMEMEVAL", "BEAM", "MUSIQUE", "TWOWIKI", "GPT_MODEL", "GPT_BASE_URL", "QWEN_MODEL",
    "QWEN_BASE_URL", "JUDGE_MODEL", "BACKBONES", "PRICES", "ENCODER", "DEVICE", "JOBS",
    "OUT", "CACHE", "OPENAI_API_KEY", "OPENAI_BASE_URL",
)  # fmt: skip


def paper(cwd, *arguments, **variables):
    clean = {name: value for name, value in os.environ.items() if name not in OURS}
    return subprocess.run(
        ["bash", str(SCRIPT), *arguments],
        cwd=cwd,
        env={**clean, "PYTHON": sys.executable, "HF_HUB_OFFLINE": "1", **variables},
        capture_output=True,
        text=True,
        timeout=900,
    )


def test_everything_that_is_missing_is_named_before_anything_runs(tmp_path):
    done = paper(tmp_path, LOCOMO="no.json", ENCODER="no-such-encoder", PRICES="no-prices.json")
    assert done.returncode == 1
    for said in (
        "LOCOMO names 'no.json'", "CUDA GPU with 24 GB", "the encoder no-such-encoder",
        "OPENAI_API_KEY, or GPT_BASE_URL", "QWEN_BASE_URL", "PRICES names 'no-prices.json'",
    ):  # fmt: skip
        assert f"missing: {said}" in done.stderr.replace("missing: a CUDA", "missing: CUDA")
    assert not any(tmp_path.iterdir())


def test_no_data_at_all(tmp_path):
    done = paper(tmp_path, "--rehearse")
    assert done.returncode == 1
    assert done.stderr.startswith("missing: data: set LOCOMO")
    assert paper(tmp_path, "--reherse").returncode == 2


def reply(handler, body):
    said = body["messages"][-1]["content"]
    good(handler, body, "Verdict: correct" if "eference answer" in said else "Answer: Petrel")


@pytest.mark.slow
@pytest.mark.model
def test_rehearsal_takes_every_step(tmp_path):
    prices = tmp_path / "prices.json"
    prices.write_text('{"small": {"prompt": 2, "cached": 1, "completion": 10}}')
    with Server(reply) as server:
        done = paper(
            tmp_path,
            "--rehearse",
            LOCOMO=str(DATA / "locomo_tiny.json"),
            LOCOMO_CORRECTIONS=str(DATA / "locomo_tiny_corrections.json"),
            LONGMEMEVAL=str(DATA / "longmemeval_tiny.json"),
            BEAM=str(DATA / "beam_tiny.jsonl"),
            GPT_BASE_URL=server.url,
            QWEN_BASE_URL=server.url,
            BACKBONES="small large",
            PRICES=str(prices),
            OUT="made",
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == "made/tables.md\n"
        asked = {body["model"] for body in server.requests}
        assert asked == {"gpt-4o-mini", "Qwen2.5-14B-Instruct", "small", "large"}
    results = tmp_path / "made" / "results"
    found = {str(path.relative_to(results)) for path in results.rglob("*.json")}
    assert found == {
        "retrieval.json",
        "gpt/table1.json", "gpt/table2.json", "gpt/figure3.json", "gpt/figure4.json",
        "gpt/judged.json", "gpt/channels.json", "gpt/backbones.json", "gpt/answers.json",
        "qwen/table1.json", "qwen/table2.json", "qwen/answers.json",
    }  # fmt: skip
    rows = json.loads((results / "gpt" / "backbones.json").read_text())["rows"]
    assert [(row["set"], row["reader"], row["accuracy"]) for row in rows] == [
        (data, reader, 1.0) for data in ("longmemeval", "locomo") for reader in ("small", "large")
    ]
    assert {row["cost"] is None for row in rows if row["reader"] == "small"} == {False}
    text = (tmp_path / "made" / "tables.md").read_text()
    assert "| gpt-4o-mini | zeromem |" in text
    assert "| Qwen2.5-14B-Instruct | zeromem |" in text
    assert (tmp_path / "made" / "plots" / "frontier-cost-locomo.svg").exists()
