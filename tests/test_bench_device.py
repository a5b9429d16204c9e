"""bench/device.sh rehearsed, and what it needs: plain words, an encoder of the right shape."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import plain_words
import pytest
import shaped
import synthetic

from zeromem import text
from zeromem.ingest.encode import Encoder

SCRIPT = Path(__file__).parents[1] / "bench" / "device.sh"


def device(cwd, *arguments, **variables):
    return subprocess.run(
        ["bash", str(SCRIPT), *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHON": sys.executable, "OUT": "found", **variables},
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_plain_words_are_the_real_terms_of_synthetic_texts():
    memory = synthetic.Synthetic(30_000, dim=8)
    texts = [t.text for t in memory.traces()] + [q.text for q in memory.questions(300)]
    assert plain_words.terms(texts) == text.terms(texts)
    words = {word.strip("?.").lower() for line in texts for word in line.split()}
    assert all(text.is_stop(word) for word in words if plain_words.is_stop(word))


def test_shaped_encoder_pools_spans_of_one_pass():
    encoder = shaped.ShapedEncoder("cpu", shaped.TINY)
    assert isinstance(encoder, Encoder)
    texts = ["The cat sat. It slept long.", "One more"]
    spans = [np.array([[0, 12], [13, 27]], np.int32), np.array([[0, 8]], np.int32)]
    found = encoder.encode_spans(texts, spans)
    assert found.n_tokens.tolist() == [8, 2]
    assert found.span_tokens.tolist() == [4, 4, 2]
    # The mean of a text's sentences, weighed by their tokens, is the text's own mean.
    alone = encoder.encode_spans(texts[:1], spans[:1])
    np.testing.assert_allclose(alone.text_vectors[0], found.text_vectors[0], atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(found.span_vectors, axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(found.text_vectors[1], 0.9 * found.span_vectors[2], atol=1e-5)
    assert not np.allclose(found.span_vectors[0], found.span_vectors[1], atol=1e-3)


def test_what_is_missing_is_named_before_anything_runs(tmp_path):
    assert device(tmp_path, "--reherse").returncode == 2
    done = device(tmp_path)  # a machine without a device, as those that run tests are
    if done.returncode != 1 or "missing: CuPy" not in done.stderr:
        pytest.skip("there is a device here")
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_rehearsal_takes_every_step(tmp_path):
    done = device(tmp_path, "--rehearse")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = json.loads((tmp_path / "found" / "device.json").read_text(encoding="utf-8"))
    assert found["rehearsal"] is True
    rows = found["rows"]
    assert not [row for row in rows if "error" in row]
    steps = {row.get("step") for row in rows}
    assert {"parity", "kernels", "retrieval", "encoder", "ingest", "questions"} <= steps
    assert next(row for row in rows if row["what"] == "parity tests")["failures"] == 0
    assert all(row["over_floor"] > 0 for row in rows if "floor" in row)
    assert "for speed alone" in next(row for row in rows if row["what"] == "encoder")["note"]
