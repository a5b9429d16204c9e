"""Servers that are killed, run side by side, or find their disk full, gone or closed to them."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from server_process import ENV, GONE, STOPPED, Client, ServerProcess

from zeromem.keys import Keys
from zeromem.store import Store

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
BATCH, BLOCK = 7, 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "served.zm"


class Writer(threading.Thread):
    """A client that adds and forgets until its server is gone, and keeps account.

    Every id tells its request: ``w3-17/5`` is the sixth trace of writer 3's request 17.
    """

    def __init__(self, name: str, scope: str, key: str | None) -> None:
        super().__init__(daemon=True)
        self.name = name
        self.scope = scope
        self.key = key
        self.rng = random.Random(name)
        self.server: ServerProcess | None = None
        self.n_requests = 0
        self.acknowledged: set[str] = set()
        self.whole: list[list[str]] = []  # requests that are stored as a whole, or not at all
        self.streams: list[list[str]] = []
        self.forgotten: set[str] = set()
        self.forgetting: list[list[str]] = []  # forgets without a reply
        self.wrong: list[Any] = []  # replies that should not be

    def again(self, server: ServerProcess) -> Writer:
        """Return one that goes on against another server."""
        other = Writer(self.name, self.scope, self.key)
        known = vars(self)
        for field in ("rng", "acknowledged", "whole", "streams", "forgotten", "forgetting"):
            setattr(other, field, known[field])
        other.n_requests = self.n_requests
        other.server = server
        return other

    def run(self) -> None:
        assert self.server is not None
        client = self.server.client(self.key, self.scope)
        works = (self._one, self._batch, self._stream, self._forget)
        with suppress(*GONE):
            while True:
                self.n_requests += 1
                self.rng.choices(works, (5, 3, 2, 1))[0](client)

    def _traces(self, n: int) -> list[dict[str, Any]]:
        names = [f"{self.name}-{self.n_requests}/{i}" for i in range(n)]
        return [
            {"id": i, "text": f"{i} is a word of its own.", "session": self.name} for i in names
        ]

    def _one(self, client: Client) -> None:
        (trace,) = self._traces(1)
        status, reply = client.ask("traces", trace)
        self._told([reply], status, 201)

    def _batch(self, client: Client) -> None:
        traces = self._traces(BATCH)
        self.whole.append([t["id"] for t in traces])
        status, reply = client.ask("traces/batch", {"traces": traces})
        self._told(reply.get("added", [reply]), status, 201)

    def _stream(self, client: Client) -> None:
        traces = self._traces(BLOCK * 5)
        self.streams.append([t["id"] for t in traces])
        blocks = [traces[i : i + BLOCK] for i in range(0, len(traces), BLOCK)]
        self.whole += [[t["id"] for t in block] for block in blocks]
        for reply in client.stream(blocks):
            self._told([reply], 200, 200)

    def _forget(self, client: Client) -> None:
        there = sorted(self.acknowledged - self.forgotten - set().union(*self.forgetting))
        meant = self.rng.sample(there, min(len(there), 3))
        if not meant:
            return
        self.forgetting.append(meant)
        status, reply = client.ask("forget", {"ids": meant})
        if (status, reply) != (200, {"forgotten": len(meant)}):
            self.wrong.append((status, reply))
        self.forgotten.update(meant)
        self.forgetting.remove(meant)

    def _told(self, reply: Any, status: int, right: int) -> None:
        if status != right or not all("id" in one for one in reply):
            self.wrong.append((status, reply))
            return
        self.acknowledged.update(one["id"] for one in reply)

    def check(self, client: Client) -> None:
        """Compare what is stored with what was acknowledged."""
        held = {t["id"]: t for t in client.export() if t["session"] == self.name}
        unsure = set().union(*self.forgetting)
        assert not self.acknowledged - self.forgotten - unsure - held.keys()  # nothing is lost
        assert not self.forgotten & held.keys()  # nothing comes back
        assert all(t["text"] == f"{t['id']} is a word of its own." for t in held.values())
        for meant in self.forgetting:  # one delete is one transaction
            assert len(held.keys() & set(meant)) in (0, len(meant))
        dropped = self.forgotten | unsure
        for sent in self.whole:
            left = set(sent) - dropped
            assert len(left & held.keys()) in (0, len(left)), sent
        for sent in self.streams:
            left = [i for i in sent if i not in dropped]
            n = len(held.keys() & set(left))
            assert held.keys() & set(left) == set(left[:n])  # a prefix
        if newest := [i for i in held if i in self.acknowledged]:
            status, found = client.ask("retrieve", {"question": f"What is {newest[-1]}?", "k": 3})
            assert status == 200
            assert newest[-1] in [e["id"] for e in found["evidence"]]


def writers(path: Path, n: int) -> list[Writer]:
    """Writers of as many tenants, the first two of one, in scopes of their own or shared."""
    with Keys(path) as keys:
        made = [keys.create(f"tenant {max(1, i)}")[1] for i in range(n)]
    return [Writer(f"w{i}", "shared" if i < 3 else f"own {i}", made[i]) for i in range(n)]


def load(server: ServerProcess, clients: list[Writer]) -> list[Writer]:
    """Let all of them write."""
    running = [one.again(server) for one in clients]
    for one in running:
        one.start()
    return running


def kills(path: Path, n: int) -> None:
    """Kill a server under load time and again; check after each start, and print the account."""
    rng = random.Random(5)
    clients = writers(path, 6)
    starts = []
    for round_ in range(n + 1):
        with ServerProcess(path) as server:
            status, _ = server.client(clients[0].key).ask("stats")
            starts.append(time.perf_counter() - server.started)
            assert status == 200
            for one in clients:
                one.check(server.client(one.key, one.scope))
            if round_ == n:
                break
            clients = load(server, clients)
            time.sleep(0.2 + 0.5 * rng.random())
            server.kill()
            for one in clients:
                one.join(60)
                assert not one.is_alive()
                assert one.wrong == []
    with Store.open(path) as store:
        store.check()
        found = sum(store.scope(name).version().n_traces for name in store.scopes())
    kept = sum(len(one.acknowledged - one.forgotten) for one in clients)
    print(
        f"{n} kills; acknowledged {sum(len(o.acknowledged) for o in clients)}, forgotten "
        f"{sum(len(o.forgotten) for o in clients)}; left {kept}, found {found}; requests "
        f"{sum(o.n_requests for o in clients)}; seconds to the first reply: "
        f"{sorted(round(s, 2) for s in starts)}"
    )
    assert found >= kept > n
    assert max(starts) < 60


def test_two_kills_lose_nothing_acknowledged(path: Path) -> None:
    kills(path, 2)


@pytest.mark.slow
def test_twenty_kills_lose_nothing_acknowledged(path: Path) -> None:
    kills(path, 20)


@pytest.mark.model
def test_the_command_serves_soon_after_a_kill(path: Path) -> None:
    """`zeromem serve` itself, with its own encoder."""
    command = [
        sys.executable, "-c", "import sys; from zeromem.cli.main import main; sys.exit(main())",
        "serve", "--store", str(path), "--port", "0",
    ]  # fmt: skip
    for round_ in range(3):
        with commanded(command) as (url, process, started):
            client = Client(url.rpartition(":")[2], None, "default", 60)
            status, _ = client.ask("traces", {"text": f"The {round_} kitten is called Miso."})
            print("seconds to the first acknowledged trace:", time.perf_counter() - started)
            assert status == 201
            process.kill()
            process.wait()
    with Store.open(path) as store:
        assert store.scope("default").version().n_traces == 3


@contextmanager
def commanded(command: list[str]) -> Iterator[tuple[str, subprocess.Popen[str], float]]:
    """Run `zeromem serve`, which says its URL to stdout."""
    started = time.perf_counter()
    process = subprocess.Popen(command, env=ENV, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("zeromem: serving http"), process.wait(30)
        yield line.split()[2], process, started
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


# ---- acknowledged means synced


def synced(path: Path, tmp_path: Path) -> tuple[dict[int, bool], int]:
    """Add from threads to a server whose writes are watched; return what each reply followed."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    shim, told = tmp_path / "shim.so", tmp_path / "told"
    source = Path(__file__).with_name("synced_replies.c")
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", shim, source, "-ldl"]
    subprocess.run(command, check=True)
    with ServerProcess(path, env={**ENV, "LD_PRELOAD": str(shim), "TOLD": str(told)}) as server:
        numbers = iter(range(100_000))
        lock = threading.Lock()
        acknowledged: list[int] = []

        def trace() -> tuple[int, dict[str, Any]]:
            with lock:
                n = next(numbers)
            return n, {"id": f"mark-{n:06}", "text": "synced"}

        def work() -> None:
            client = server.client()
            for _ in range(20):
                n, one = trace()
                assert client.ask("traces", one)[0] == 201
                batch = [trace() for _ in range(3)]
                body = {"traces": [b for _, b in batch]}
                assert client.ask("traces/batch", body)[0] == 201
                with lock:
                    acknowledged.extend([n, *(m for m, _ in batch)])

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        server.stop()
    lines = told.read_text().splitlines()
    seen: dict[int, bool] = {}
    for line in lines:
        if line != "sync":
            n, ok = map(int, line.split())
            seen[n] = seen.get(n, True) and bool(ok)
    assert sorted(acknowledged) == sorted(seen)
    return seen, lines.count("sync")


def test_every_acknowledged_trace_was_synced_before_its_reply(path: Path, tmp_path: Path) -> None:
    """The shim sees each id in the log's bytes, then a completed sync, then the reply's bytes."""
    seen, n_syncs = synced(path, tmp_path)
    print(f"{len(seen)} acknowledged, {n_syncs} syncs of the log")
    assert len(seen) == 6 * 20 * 4
    assert all(seen.values())
    assert n_syncs < 6 * 20 * 2 + 100  # those who wait together share one


# ---- several processes on one store


@pytest.mark.parametrize("round_", range(3))
def test_one_of_two_servers_is_killed_and_the_other_goes_on(path: Path, round_: int) -> None:
    clients = writers(path, 6)
    with ServerProcess(path) as doomed, ServerProcess(path) as other:
        dying, living = load(doomed, clients[:3]), load(other, clients[3:])
        time.sleep(0.4 + 0.2 * round_)
        doomed.kill()
        for one in dying:
            one.join(60)
        before = [len(one.acknowledged) for one in living]
        deadline = time.monotonic() + 60
        while any(len(o.acknowledged) < n + 10 for o, n in zip(living, before, strict=True)):
            assert time.monotonic() < deadline  # nobody has to remove a lock
            time.sleep(0.02)
        for one in dying:  # what the dead one acknowledged, the living one shows
            one.check(other.client(one.key, one.scope))
        assert other.stop() in STOPPED
        for one in living:
            one.join(60)
        assert [one.wrong for one in dying + living if one.wrong] == []
    with ServerProcess(path) as again:
        for one in dying + living:
            one.check(again.client(one.key, one.scope))
    with Store.open(path) as store:
        store.check()


def test_the_command_line_goes_on_beside_a_killed_server(path: Path) -> None:
    """A server sees what a command did, and a command what a server that died had acknowledged."""

    def command(*arguments: str) -> str:
        code = "import sys; from zeromem.cli.main import main; sys.exit(main())"
        given = [sys.executable, "-c", code, arguments[0], "--store", str(path), *arguments[1:]]
        ran = subprocess.run(given, env=ENV, capture_output=True, text=True, timeout=60, check=True)
        return ran.stdout

    with ServerProcess(path) as server:
        client = server.client()
        assert client.ask("traces", {"text": "Miso is a kitten.", "id": "a"})[0] == 201
        assert client.ask("traces", {"text": "Ben plays chess.", "id": "b"})[0] == 201
        assert [json.loads(line)["id"] for line in command("export").splitlines()] == ["a", "b"]
        command("forget", "a")
        assert [t["id"] for t in client.export()] == ["b"]
        status, found = client.ask("retrieve", {"question": "Who is Miso?"})
        assert (status, [e["id"] for e in found["evidence"]]) == (200, ["b"])
        server.kill()
    assert [json.loads(line)["id"] for line in command("export").splitlines()] == ["b"]
