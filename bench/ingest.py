"""How fast ingestion is, against its models alone; and what a question's models take.

Examples::

    python bench/ingest.py
    python bench/ingest.py --turns 3000 --runs 3 --json ingest.json

The ratio is that of `add_many` to bare encoding of each turn once (the same model, batches of
like length under the same token budget, every core) plus bare spaCy (``nlp.pipe`` with the same
components), one after the other, over the same text in the same run.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from ingest_corpus import QUESTIONS, corpus

import zeromem
from zeromem.english import find_pipeline
from zeromem.index.features import feature_key
from zeromem.ingest.ahead import SLAB, Annotating
from zeromem.ingest.annotate import Annotation, load_annotator
from zeromem.ingest.encode import SpanVectors, load_encoder
from zeromem.ingest.featurize import Begun, Featurizer
from zeromem.store import Store
from zeromem.types import Trace

_UNUSED = ["tagger", "attribute_ruler", "lemmatizer", "senter"]


def seconds(run: Callable[[], Any]) -> float:
    """Time one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def work(run: Callable[[], Any]) -> tuple[float, float]:
    """Return the seconds that a call takes, and the processor's on all cores together."""
    start, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - start, time.process_time() - cpu


class Timed:
    """A model with the time spent in it."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def _timed(self, run: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        try:
            return run()
        finally:
            self.seconds += time.perf_counter() - start


class TimedAnnotator(Timed):
    """An annotator with the time spent in it."""

    def annotate(self, texts: Sequence[str]) -> list[Annotation]:
        return self._timed(lambda: self._model.annotate(texts))


class TimedEncoder(Timed):
    """An encoder with the time spent in it."""

    def encode(self, texts: Sequence[str]) -> Any:
        return self._timed(lambda: self._model.encode(texts))

    def encode_spans(self, texts: Sequence[str], spans: Sequence[Any]) -> SpanVectors:
        return self._timed(lambda: self._model.encode_spans(texts, spans))


def bare_spacy() -> Any:
    """Load spaCy as anyone would."""
    import spacy

    return spacy.load(find_pipeline(None)[0], exclude=_UNUSED)


def ratio(traces: Sequence[Trace], runs: int) -> dict[str, Any]:
    """Time bare models and ingestion, turn by turn, `runs` times."""
    texts = [t.text for t in traces]
    encoder, nlp = load_encoder(None), bare_spacy()
    none = [np.empty((0, 2), np.int32)] * len(texts)
    load_annotator(None).annotate(["warm"])
    n_tokens = int(encoder.encode_spans(texts[:64], none[:64]).n_tokens.sum())  # warm
    list(nlp.pipe(texts[:64]))
    found: dict[str, list[tuple[float, float]]] = {
        "bare encoding": [], "bare spaCy": [], "ingest": [],
    }  # fmt: skip

    def encode() -> None:
        nonlocal n_tokens
        n_tokens = int(encoder.encode_spans(texts, none).n_tokens.sum())

    def annotate() -> None:
        with nlp.memory_zone():
            for doc in nlp.pipe(texts):
                len(doc.ents)

    for _ in range(runs):
        found["bare encoding"].append(work(encode))
        found["bare spaCy"].append(work(annotate))
        with tempfile.TemporaryDirectory() as folder, zeromem.open(f"{folder}/m.zm") as memory:
            found["ingest"].append(work(lambda: memory.add_many(traces, progress=False)))
    times = {name: [wall for wall, _ in rows] for name, rows in found.items()}
    spent = {name: [cpu for _, cpu in rows] for name, rows in found.items()}
    each = [i / (e + s) for e, s, i in zip(*times.values(), strict=True)]
    return {
        "tokens": n_tokens,
        "seconds": times,
        "processor seconds": spent,
        "tokens per second": {k: n_tokens / median(v) for k, v in times.items()},
        "ratio": median(each),
        "ratios": each,
        "ratio of processor time": median(
            i / (e + s) for e, s, i in zip(*spent.values(), strict=True)
        ),
    }


def stages(traces: Sequence[Trace], n_tokens: int) -> dict[str, float]:
    """Return tokens per second of each stage, run one after the other."""
    annotator, encoder = TimedAnnotator(load_annotator(None)), TimedEncoder(load_encoder(None))
    featurizer = Featurizer(annotator, encoder)
    start = time.perf_counter()
    slabs = [traces[i : i + SLAB] for i in range(0, len(traces), SLAB)]
    keys = [feature_key(t) for t in traces]
    made = featurizer.finish(Begun(keys, keys, Annotating(annotator, slabs, [])))
    whole = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder, Store.open(f"{folder}/m.zm") as store:
        log = store.scope("bench")
        append = seconds(lambda: log.append(traces, keys=keys))
        packed: dict[bytes, bytes] = {}
        pack = seconds(
            lambda: packed.update((k, f.to_bytes()) for k, f in zip(keys, made, strict=True))
        )
        put = seconds(lambda: log.put_features(packed, featurizer.fingerprint))
    spent = {
        "spaCy": annotator.seconds,
        "encoding": encoder.seconds,
        "layout, terms, flags": whole - annotator.seconds - encoder.seconds,
        "log append": append,
        "features packed": pack,
        "features stored": put,
    }
    return {stage: n_tokens / s for stage, s in spent.items()}


def question(traces: Sequence[Trace]) -> dict[str, dict[str, float]]:
    """Return p50 and p95 in milliseconds of what a question's models take."""
    encoder, annotator = load_encoder(None), load_annotator(None)
    found: dict[str, list[float]] = {"encode": [], "names": [], "whole retrieval": []}
    with zeromem.open() as memory:
        memory.add_many(traces, progress=False)
        memory.retrieve(QUESTIONS[0])
        for asked in QUESTIONS[1:]:
            found["encode"].append(seconds(lambda q=asked: encoder.encode([q])))
            found["names"].append(seconds(lambda q=asked: annotator.annotate([q])))
            found["whole retrieval"].append(seconds(lambda q=asked: memory.retrieve(q)))
    return {
        name: {"p50": 1e3 * median(v), "p95": 1e3 * float(np.percentile(v, 95))}
        for name, v in found.items()
    }


def cold_search(traces: Sequence[Trace]) -> float:
    """Return the seconds of ``zeromem search`` in a new process over these turns."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/m.zm"
        with zeromem.open(path) as memory:
            memory.add_many(traces, progress=False)
            memory.retrieve(QUESTIONS[0])
        code = "import sys; from zeromem.cli import main; sys.exit(main())"
        command = [sys.executable, "-c", code, "search", "--store", path, QUESTIONS[1]]
        return median(
            seconds(lambda: subprocess.run(command, check=True, capture_output=True))
            for _ in range(3)
        )


def hardware() -> dict[str, Any]:
    """Say where and on what this ran."""
    import os

    import torch

    info = Path("/proc/cpuinfo")
    models = [
        line.split(":", 1)[1].strip()
        for line in (info.read_text().splitlines() if info.exists() else ())
        if line.startswith("model name")
    ]
    here = Path(__file__).parent
    commit = subprocess.run(
        ["git", "-C", str(here), "describe", "--always", "--dirty"], capture_output=True, text=True
    ).stdout.strip()
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "commit": commit,
    }


def main() -> None:
    """Run all of it and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=1500)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the figures here")
    args = parser.parse_args()
    traces = corpus(args.turns)
    measured = ratio(traces, args.runs)
    record = {
        **hardware(),
        "turns": args.turns,
        **measured,
        "stages, tokens per second": stages(traces, measured["tokens"]),
        "peak memory, MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "one question, ms": question(traces[:300]),
        "cold search, s": cold_search(traces),
    }
    if args.json:
        args.json.write_text(json.dumps(record, indent=1) + "\n")
    _show(record)


def _show(record: dict[str, Any]) -> None:
    print(f"{record['turns']} turns, {record['tokens']} tokens; {record['cpu']}, "
          f"{record['cores']} cores, commit {record['commit']}")  # fmt: skip
    rows = record["tokens per second"] | record["stages, tokens per second"]
    for name, rate in rows.items():
        print(f"  {name:24}{rate:12,.0f} tokens/s")
    print(f"  ingest against its bare models {record['ratio']:.2f}x of their time")
    print(f"  in processor time, on a busy machine the better figure: "
          f"{record['ratio of processor time']:.2f}x")  # fmt: skip
    print(f"  peak memory {record['peak memory, MB']:.0f} MB")
    for name, times in record["one question, ms"].items():
        print(f"  one question, {name:18} p50 {times['p50']:6.1f} ms, p95 {times['p95']:6.1f} ms")
    print(f"  `zeromem search` from a cold shell {record['cold search, s']:.2f} s")


if __name__ == "__main__":
    main()
