"""Figures that are known for the evaluation sets, as far as they need no model."""

import os
from pathlib import Path

import numpy as np
import pytest

from zeromem.evaluation import Budget
from zeromem.evaluation.datasets import beam, hotpotqa, locomo
from zeromem.evaluation.methods.features import FeatureBank
from zeromem.evaluation.methods.plain import Baseline
from zeromem.evaluation.run import retrieval
from zeromem.ingest.encoders.base import SpanVectors

ROOT = Path(__file__).resolve().parents[1]
SETS = Path(os.environ.get("ZEROMEM_DATA", ROOT.parent / "shared" / "data"))
pytestmark = pytest.mark.data


class NoVectors:
    """An encoder that sees words and no meaning."""

    fingerprint, dim = "none", 1

    def encode(self, texts):
        return np.ones((len(texts), 1), np.float32)

    def encode_spans(self, texts, spans):
        one, n = self.encode(texts), np.array([len(text.split()) for text in texts], np.int32)
        return SpanVectors(one, one, n, n)


def bm25(dataset):
    return retrieval(dataset, [Baseline("bm25", FeatureBank(NoVectors()))], Budget())["bm25"]


def need(*names: str) -> list[Path]:
    paths = [SETS / name for name in names]
    for path in paths:
        if not path.exists():
            pytest.skip(f"{path.name} is not under {SETS}; set ZEROMEM_DATA to its folder")
    return paths


def test_locomo_bm25():
    """46.5 is known for all ten conversations; these five are somewhat easier."""
    (path,) = need("locomo/locomo_dev5.json")
    figures = bm25(locomo.load(path))
    assert figures["n_questions"] == 760
    assert (figures["n_unresolved"], figures["n_unresolved_citations"]) == (2, 2)
    assert figures["recall@5"] == pytest.approx(0.483, abs=0.01)
    assert figures["recall@20"] == pytest.approx(0.646, abs=0.01)


def test_beam_bm25():
    """41.8 / 48.2 / 55.6 are known."""
    (path,) = need("beam/beam_100k_dev8.jsonl")
    figures = bm25(beam.load(path))
    assert (figures["n_questions"], figures["n_unresolved"]) == (144, 16)
    assert figures["recall@5"] == pytest.approx(0.418, abs=0.015)
    assert figures["recall@10"] == pytest.approx(0.482, abs=0.015)
    assert figures["recall@20"] == pytest.approx(0.556, abs=0.015)


@pytest.mark.slow
def test_hotpotqa_bm25():
    """74.2 is known for 400 questions."""
    questions, pool = need("hotpotqa/questions_dev500.jsonl", "hotpotqa/pool.jsonl")
    figures = bm25(hotpotqa.load_pool(questions, pool, documents=3200, limit=40))
    assert figures["recall@5"] == pytest.approx(0.742, abs=0.05)
