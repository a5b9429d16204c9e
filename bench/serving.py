"""What serving costs: requests a second and their times, with batching and without.

    python bench/serving.py [--clients 1,16,64,256] [--seconds 5] [--tokens 448000]
        [--tenants 64] [--tenant-tokens 20000] [--only one,many] [--out FILE]

A server process of its own on this machine, and clients that cost it little (``clients.py``). The
questions' vectors are known, as if every embedding were cached. Beside each rate stand, of the same
run, a route of the same server that replies with a constant of the same length, and the rate of
``zeromem.retrieve_batch`` in a process by itself. "one" is one memory, "many" are as many tenants
with a memory each.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import clients
import clock
import stored
from hashed import SyntheticEncoder
from subjects import threads
from synthetic import Question, Synthetic

import zeromem
from zeromem.evaluation.tables import results

Row = dict[str, Any]
CLIENTS = Path(clients.__file__)
_QUESTIONS = 256
_BATCH = 64
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

    def in_process(self) -> tuple[Row, int]:
        """Rates of batches in this process, and the mean length of a reply."""
        from zeromem.records import retrieval
        from zeromem.server.problems import as_json

        with memories(self.path, self.synthetic, self.questions) as open_:
            held = {scope: open_.take(scope) for scope in self.scopes}
            pairs = [(held[scope], text) for scope, text in self.asked]
            found = zeromem.retrieve_batch(pairs, k=_K)
            length = sum(len(as_json(retrieval(one))) for one in found) // len(found)
            parts = [pairs[i : i + _BATCH] for i in range(0, len(pairs), _BATCH)]
            calls = {
                f"batches of {_BATCH}": lambda: [zeromem.retrieve_batch(p, k=_K) for p in parts],
                "one by one": lambda: [memory.retrieve(text, k=_K) for memory, text in pairs],
            }
            times = clock.alternately(calls, self.options.repeats, limit=60)
        row = {how: len(pairs) / min(found) for how, found in times.items()}
        return row, length

    def run(self) -> list[Row]:
        """Measure with batching and without."""
        inside, length = self.in_process()
        batched = inside[f"batches of {_BATCH}"]
        common = {"scene": self.name, "memories": len(self.scopes), "tokens": self.tokens}
        rows = [
            {**common, "how": f"in process, {how}", "per_second": rate, "seconds": 1 / rate}
            for how, rate in inside.items()
        ]
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


def parser() -> argparse.ArgumentParser:
    """Build the command line."""
    top = argparse.ArgumentParser(description=__doc__.splitlines()[0])

    def numbers(text: str) -> list[int]:
        return clock.comma_list(text, int)

    top.add_argument("--clients", type=numbers, default="1,16,64,256")
    top.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    top.add_argument("--warm", type=float, default=2.0, help="seconds before the first")
    top.add_argument("--tokens", type=int, default=448_000, help="of the one memory")
    top.add_argument("--tenants", type=int, default=64)
    top.add_argument("--tenant-tokens", type=int, default=20_000, help="of each memory of many")
    top.add_argument("--dim", type=int, default=384)
    top.add_argument("--repeats", type=int, default=5)
    top.add_argument("--only", type=clock.comma_list, default="one,many")
    top.add_argument("--folder", type=Path, help="for stores; removed afterwards")
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
