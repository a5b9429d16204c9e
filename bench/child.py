"""What has to be measured in a process of its own: opening, and what memory it takes.

    python bench/child.py cold|warm|ingest '{"path": …}'

Prints one JSON object. Started by ``throughput.py``.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

STARTED = time.perf_counter()


def memory() -> dict[str, int]:
    """Bytes of this process: resident, of these not backed by a file, and the most there were."""
    gc.collect()
    found = {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    try:
        lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
        sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
        status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        peak = next(line for line in status if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return found  # another system than Linux
    return {
        "resident": sizes["Rss"],
        "anonymous": sizes["Anonymous"],
        "peak": int(peak.split()[1]) * 1024,
    }


def forget_peak() -> None:
    """Start the peak anew at what is resident now, where the system lets us."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


def _encoder(given: dict[str, Any]) -> Any:
    from hashed import SyntheticEncoder

    return SyntheticEncoder(given["dim"], given["fingerprint"], lambda text: None)


def _ask(memory_: Any, texts: list[str]) -> list[float]:
    times = []
    for text in texts:
        start = time.perf_counter()
        memory_.retrieve(text)
        times.append(time.perf_counter() - start)
    return times


def cold(given: dict[str, Any]) -> dict[str, Any]:
    """Import, open, ask: nothing is loaded before."""
    import zeromem

    imported = time.perf_counter()
    encoder = _encoder(given)
    ready = time.perf_counter()
    opened = zeromem.open(given["path"], encoder=encoder, annotator="rules", device="cpu")
    done = time.perf_counter()
    first, second = _ask(opened, given["texts"][:2])
    opened.close()
    return {
        "import": imported - STARTED,
        "open": done - ready,
        "first": first,
        "second": second,
    }


def warm(given: dict[str, Any]) -> dict[str, Any]:
    """Ask a memory in a process that has asked another one before; count what it adds."""
    import zeromem

    encoder = _encoder(given)
    options: Any = {"encoder": encoder, "annotator": "rules", "device": "cpu"}
    with zeromem.open(None, **options) as tiny:
        tiny.add_many(["The book is in the garden.", "The cat went to the lake."], progress=False)
        tiny.retrieve_batch(["Where is the book?", "When did the cat go?"] * 20)
    before = memory()
    forget_peak()
    start = time.perf_counter()
    opened = zeromem.open(given["path"], **options)
    opened.retrieve(given["texts"][0])
    ready = time.perf_counter() - start
    opened.retrieve_batch(given["texts"])  # every vector is known from here on
    asked = _ask(opened, given["texts"])
    with_it = memory()
    stages = opened.retrieve(given["texts"][0]).seconds
    opened.close()
    return {"before": before, "after": with_it, "ready": ready, "questions": asked,
            "stages": dict(stages)}  # fmt: skip


def ingest(given: dict[str, Any]) -> dict[str, Any]:
    """Remember a stream of turns that is never in memory as a whole."""
    from synthetic import BLOCK, Synthetic

    import zeromem

    made = Synthetic(given["tokens"], dim=given["dim"])
    options: Any = {"encoder": _encoder(given), "annotator": "rules", "device": "cpu"}
    traces = (t for i in range(0, made.n_turns, BLOCK)
              for t in made.traces(i, min(i + BLOCK, made.n_turns)))  # fmt: skip
    with zeromem.open(given["path"], **options) as opened:
        opened.add_many([next(traces)], progress=False)
        before = memory()
        forget_peak()
        start = time.perf_counter()
        opened.add_many(traces, progress=False)
        seconds = time.perf_counter() - start
        after = memory()
    return {"before": before, "after": after, "seconds": seconds, "tokens": made.n_tokens}


def main() -> int:
    """Run what the first argument names, with the second as its options."""
    run = {"cold": cold, "warm": warm, "ingest": ingest}[sys.argv[1]]
    print(json.dumps(run(json.loads(sys.argv[2]))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
