"""What serving costs: requests a second and their times, with batching and without.

    python bench/serving.py [--clients 1,16,64,256] [--seconds 5] [--tokens 448000]
        [--tenants 64] [--tenant-tokens 20000] [--only one,many] [--out FILE]

A server process of its own on this machine, and clients that cost it little (``clients.py``).
"one" is one memory, "many" are as many tenants with a memory each.

Measured is what serving adds to finding evidence: HTTP, JSON, queue, batch. Not measured are
encoding (the questions' vectors are known, as if every embedding were cached), names (rules find
them), keys, TLS and a network. Beside each rate stand, of the same run, a route of the same server
that replies with a constant of the same length, and the rates of the same questions in a process
by itself.

client_share  the clients' own share of one core, of those that the server has too: near 1 they are
              what is measured
of_least      the rate by the lower one of two that bound it: the constant reply's, and that of
              batches in a process by itself
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import clients
import clock
import stored
from hashed import SyntheticEncoder
from subjects import threads
from synthetic import LEAST_TOKENS, Question, Synthetic

import zeromem
from zeromem.evaluation.tables import results

Row = dict[str, Any]
CLIENTS = Path(clients.__file__)
SCENES = ("one", "many")
_QUESTIONS = 256
_BATCH = 64
_BATCHES = f"batches of {_BATCH}"
_K = 5


def memories(path: Path, synthetic: Synthetic, questions: Sequence[Question]) -> zeromem.Memories:
    """Open a store's memories, the questions' vectors known."""
    encoder: SyntheticEncoder = synthetic.encoder(questions)
    return zeromem.Memories(path, encoder=encoder, annotator="rules", device="cpu")


def serve(given: dict[str, Any]) -> int:
    """Serve a store until told to stop; prints the port. The server process."""
    from fastapi import FastAPI
    from starlette.responses import Response

    import zeromem.server.run as running
    from zeromem.server.settings import Settings

    synthetic = Synthetic(given["tokens"], dim=given["dim"])
    open_ = memories(Path(given["path"]), synthetic, synthetic.questions(_QUESTIONS))
    constant = b'"' + b"x" * (given["length"] - 2) + b'"'
    made = running.create_app

    def with_constant(*arguments: Any, **named: Any) -> FastAPI:
        app = made(*arguments, **named)

        @app.post("/constant")
        async def reply() -> Response:
            return Response(constant, media_type="application/json")

        return app

    running.create_app = with_constant
    running.serve(
        open_, Settings(batching=given["batching"]), None, host="127.0.0.1", port=0,
        started=lambda url: print(url.rpartition(":")[2], flush=True),
    )  # fmt: skip
    return 0


@contextmanager
def server(given: dict[str, Any]) -> Iterator[int]:
    """Run a server process, and give its port once it is ready."""
    command = [sys.executable, str(Path(__file__)), "--serve", json.dumps(given)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        try:
            yield port
        finally:
            process.terminate()


def ask(port: int, requests: Sequence[str], n_clients: int, seconds: float) -> Row:
    """Load the server and return rate and times."""
    given = {"port": port, "requests": requests, "clients": n_clients, "seconds": seconds}
    done = subprocess.run(
        [sys.executable, str(CLIENTS), "-"], input=json.dumps(given), check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    times = sorted(found["seconds"])
    return {
        "per_second": len(times) / found["wall"],
        "seconds": times[len(times) // 2],
        "seconds.p99": times[int(0.99 * (len(times) - 1))],
        "n_replies": len(times),
        "failed": sum(n for status, n in found["statuses"].items() if status != "200"),
        "client_share": found["share"],
    }


class Scene:
    """A store with one memory or many, and requests to it.

    Parameters
    ----------
    name : {"one", "many"}
    folder : Path
    options : Namespace
    """

    def __init__(self, name: str, folder: Path, options: argparse.Namespace) -> None:
        self.name = name
        self.options = options
        many = name == "many"
        self.tokens = options.tenant_tokens if many else options.tokens
        self.scopes = [f"t{i}" for i in range(options.tenants)] if many else ["default"]
        self.synthetic = Synthetic(self.tokens, dim=options.dim)
        self.path = folder / f"{name}.zm"
        for scope in self.scopes:
            stored.make(self.path, self.synthetic, scope=scope)
        self.questions = self.synthetic.questions(_QUESTIONS)
        self.asked = [
            (self.scopes[i % len(self.scopes)], question.text)
            for i, question in enumerate(self.questions)
        ]
        self.requests = [
            clients.request("/v1/retrieve", {"question": text, "k": _K}, {"Zeromem-Scope": scope})
            for scope, text in self.asked
        ]

    def in_process(self) -> tuple[dict[str, Row], int]:
        """Rates in this process, a single call's times, and the mean length of a reply."""
        from zeromem.records import retrieval
        from zeromem.server.problems import as_json

        with memories(self.path, self.synthetic, self.questions) as open_:
            held = {scope: open_.take(scope) for scope in self.scopes}
            pairs = [(held[scope], text) for scope, text in self.asked]
            found = zeromem.retrieve_batch(pairs, k=_K)
            length = sum(len(as_json(retrieval(one))) for one in found) // len(found)
            parts = [pairs[i : i + _BATCH] for i in range(0, len(pairs), _BATCH)]
            singles = [partial(memory.retrieve, text, k=_K) for memory, text in pairs]
            each: list[float] = []
            calls = {
                _BATCHES: lambda: [zeromem.retrieve_batch(p, k=_K) for p in parts],
                "one by one": lambda: each.extend(map(clock.seconds, singles)),
            }
            times = clock.alternately(calls, self.options.repeats, limit=60)
        rows: dict[str, Row] = {
            how: {"per_second": len(pairs) / min(found)} for how, found in times.items()
        }
        # A call's own times; those of a batch are no question's. The first round is not counted.
        rows["one by one"] |= clock.summary(each[len(pairs) :])
        return rows, length

    def run(self) -> list[Row]:
        """Measure with batching and without."""
        inside, length = self.in_process()
        batched = inside[_BATCHES]["per_second"]
        common = {"scene": self.name, "memories": len(self.scopes), "tokens": self.tokens}
        rows = [{**common, "how": f"in process, {how}", **row} for how, row in inside.items()]
        for batching in (True, False):
            given = {
                "path": str(self.path), "tokens": self.tokens, "dim": self.options.dim,
                "batching": batching, "length": length,
            }  # fmt: skip
            with server(given) as port:
                ask(port, self.requests, 16, self.options.warm)
                for n in self.options.clients:
                    row = ask(port, self.requests, n, self.options.seconds)
                    how = "server" if batching else "server, no batching"
                    rows.append({**common, "how": how, "clients": n, **row})
                    if batching:
                        constant = ask(
                            port, [clients.request("/constant", {})], n, self.options.seconds
                        )
                        rows.append({**common, "how": "constant reply", "clients": n, **constant})
                        least = min(constant["per_second"], batched)
                        rows[-2]["of_least"] = row["per_second"] / least
        return rows


def run(options: argparse.Namespace) -> list[Row]:
    """Run the chosen scenes."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="zeromem-bench-", dir=options.folder) as folder:
        for name in options.only:
            start = time.perf_counter()
            rows += Scene(name, Path(folder), options).run()
            print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
    return rows


def above_zero(kind: Callable[[str], float], least: int = 0) -> Callable[[str], Any]:
    """Read a number that must be above 0, or of at least so much."""
    what = "a whole number" if kind is int else "a number"
    bound = f"of at least {least}" if least else "above 0"

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not (0 < value < math.inf and value >= least):
            raise argparse.ArgumentTypeError(f"must be {what} {bound}, got {text!r}")
        return value

    return read


def several(read: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """Read several values, with commas between them; each once."""

    def split(text: str) -> list[Any]:
        return list(dict.fromkeys(map(read, text.split(","))))

    return split


def scene(text: str) -> str:
    """Read the name of a scene."""
    if text not in SCENES:
        raise argparse.ArgumentTypeError(f"must be among {', '.join(SCENES)}, got {text!r}")
    return text


def folder(text: str) -> Path:
    """Read the path of a folder that is there."""
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"must be a folder that is there, got {text!r}")
    return Path(text)


def parser() -> argparse.ArgumentParser:
    """Build the command line."""
    top = argparse.ArgumentParser(
        usage="%(prog)s [OPTIONS]", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    whole, number, tokens = above_zero(int), above_zero(float), above_zero(int, LEAST_TOKENS)

    def add(name: str, kind: Callable[[str], Any], default: Any, metavar: str, text: str) -> None:
        text = f"{text} (default: %(default)s)"
        top.add_argument(name, type=kind, default=default, metavar=metavar, help=text)

    add("--clients", several(whole), "1,16,64,256", "N,…", "how many at once")
    add("--seconds", number, 5.0, "S", "of each measurement")
    add("--warm", number, 2.0, "S", "before the first one")
    add("--tokens", tokens, 448_000, "N", "of the one memory")
    add("--tenants", whole, 64, "N", "how many memories many are")
    add("--tenant-tokens", tokens, 20_000, "N", "of each memory of many")
    add("--dim", whole, 384, "N", "dimensions of a vector")
    add("--repeats", whole, 5, "N", "rounds in a process by itself")
    add("--only", several(scene), ",".join(SCENES), "SCENE,…", f"among {', '.join(SCENES)}")
    top.add_argument("--folder", type=folder, help="for stores, which are removed afterwards")
    top.add_argument("--out", type=Path, help="JSON file; render.py makes tables from it")
    top.add_argument("--serve", type=json.loads, help=argparse.SUPPRESS)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = parser().parse_args(given)
    if options.serve is not None:
        return serve(options.serve)
    rows = run(options)
    for row in rows:
        print(", ".join(f"{k} {v:,.4g}" if isinstance(v, float) else f"{k} {v}"
                        for k, v in row.items()))  # fmt: skip
    if options.out:
        results.write(options.out, clock.result("serving", rows, given, threads=threads()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
