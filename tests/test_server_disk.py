"""What the place of a store can do to a running server: full, moved away, deleted, closed to it."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from server_process import GONE, SERVE, STOPPED, Client, ServerProcess
from support import ids, open_memory

from zeromem.store import Store

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "served.zm"


def filled(client: Client, status: int) -> int:
    """Add until it is refused with a status; return how many were not."""
    for n in range(400):
        body = {"traces": [{"text": f"{n} {i} " + "x" * 20_000} for i in range(4)]}
        got, reply = client.ask("traces/batch", body)
        if got != 201:
            assert got == status, reply
            assert reply["status"] == status
            return 4 * n
    raise AssertionError("the disk does not fill up")


def lives(client: Client, n: int) -> None:
    """Check that reads and writes work, and that nothing but whole requests is there."""
    held = client.export()
    assert len(held) == n
    body = {"text": "Carla plays the cello.", "id": f"cello {n}"}
    assert client.ask("traces", body)[0] == 201
    status, found = client.ask("retrieve", {"question": "Who plays the cello?", "k": 3})
    assert (status, found["evidence"][0]["id"]) == (200, f"cello {n}")
    assert client.ask("forget", {"ids": [f"cello {n}"]}) == (200, {"forgotten": 1})


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=False)


def test_a_full_disk_is_507_and_questions_are_answered_meanwhile(small: Path) -> None:
    with ServerProcess(small / "s.zm") as server:
        client = server.client()
        assert client.ask("traces", {"text": "Miso is Ana's kitten.", "id": "miso"})[0] == 201
        assert client.ask("retrieve", {"question": "Who is Miso?"})[0] == 200
        n = 1
        with (small / "other").open("wb", buffering=0) as other:
            while shutil.disk_usage(small).free > 2_000_000:
                other.write(bytes(65536))
        n += filled(client, 507)
        status, problem = client.ask("traces", {"text": "y" * 2_000_000})
        assert (status, problem["type"]) == (507, "urn:zeromem:problem:store-full")
        lines = json.dumps({"text": "z" * 2_000_000}).encode()
        assert client.ask("traces/stream", lines)[0] == 507
        assert client.ask("import?format=jsonl", lines)[0] == 507
        for _ in range(3):
            status, found = client.ask("retrieve", {"question": "Who is Miso?", "k": 3})
            assert status == 200
            assert "miso" in [e["id"] for e in found["evidence"]]
        assert len(client.export()) == n
        assert client.ask("/readyz")[0] == 200
        (small / "other").unlink()
        lives(client, n)
        assert server.stop() in STOPPED
    with Store.open(small / "s.zm") as store:
        store.check()
    for snapshot in small.glob("*.zmi"):  # which has the vectors that found no room in the store
        snapshot.unlink()
    with open_memory(small / "s.zm") as memory:
        assert "miso" in ids(memory.retrieve("Who is Miso?", k=3))
        assert memory.stats()["pending"] == 0


@contextmanager
def limit(server: ServerProcess, what: int, value: int) -> Iterator[None]:
    """Set a limit of a running server."""
    soft, hard = resource.prlimit(server.pid, what)
    resource.prlimit(server.pid, what, (value, hard))
    try:
        yield
    finally:
        resource.prlimit(server.pid, what, (soft, hard))


def test_a_limit_of_file_sizes_is_507(path: Path) -> None:
    with ServerProcess(path) as server:
        client = server.client()
        assert client.ask("traces", {"text": "Miso is Ana's kitten.", "id": "miso"})[0] == 201
        with limit(server, resource.RLIMIT_FSIZE, 600_000):
            n = 1 + filled(client, 507)
            assert client.ask("retrieve", {"question": "Who is Miso?"})[0] == 200
        lives(client, n)


def test_a_full_table_of_files_is_503_and_passes(path: Path) -> None:
    with ServerProcess(path) as server:
        client, importing = server.client(), server.client()
        assert client.ask("traces", {"text": "Miso is Ana's kitten.", "id": "miso"})[0] == 201
        assert client.ask("retrieve", {"question": "Who is Miso?"})[0] == 200
        assert importing.ask("stats")[0] == 200
        used = len(os.listdir(f"/proc/{server.pid}/fd"))
        n, statuses = 1, []
        with limit(server, resource.RLIMIT_NOFILE, used):
            # Its body is kept in a file.
            assert importing.ask("import?format=jsonl", b'{"text": "imported"}')[0] == 503
            for i in range(4):
                status, _ = client.ask("traces", {"text": f"one {i}"})
                n += status == 201  # connections to the store that are open may do
                statuses += [status, client.ask("retrieve", {"question": "Who is Miso?"})[0]]
            another = server.client(timeout=0.3)
            with suppress(*GONE):  # it is accepted when there is room
                another.ask("traces", {"text": "is not heard"})
        assert set(statuses) <= {200, 201, 503}
        another.close()
        lives(server.client(scope="afterwards"), 0)
        assert n <= len(client.export()) <= n + 1
        lives(client, len(client.export()))


def test_a_store_that_is_moved_away_is_503_until_it_is_back(path: Path, tmp_path: Path) -> None:
    """Writing on into a file that nobody can reach would lose what was acknowledged."""
    with ServerProcess(path) as server:
        client = server.client()
        assert client.ask("traces", {"text": "Miso is Ana's kitten.", "id": "miso"})[0] == 201
        names = [f"{path}{suffix}" for suffix in ("", "-wal", "-shm")]
        for name in names:
            os.rename(name, f"{name}.away")
        for name, body in (
            ("traces", {"text": "lost?"}),
            ("traces/batch", {"traces": [{"text": "lost?"}]}),
            ("traces/stream", b'{"text": "lost?"}'),
            ("import?format=jsonl", b'{"text": "lost?"}'),
            ("forget", {"ids": ["miso"]}),
        ):
            assert client.ask(name, body)[0] == 503, name
        assert not path.exists()  # and none is made in its place
        for name in names:
            os.rename(f"{name}.away", name)
        lives(client, 1)


def test_a_store_that_was_deleted_is_503_and_a_new_server_begins_anew(path: Path) -> None:
    with ServerProcess(path) as server:
        client = server.client()
        assert client.ask("traces", {"text": "Miso is Ana's kitten."})[0] == 201
        for suffix in ("", "-wal", "-shm"):
            os.unlink(f"{path}{suffix}")
        status, problem = client.ask("traces", {"text": "lost?"})
        assert (status, problem["type"]) == (503, "urn:zeromem:problem:store-unavailable")
        assert str(path) not in json.dumps(problem)
        assert server.stop() in STOPPED
    with ServerProcess(path) as server:
        lives(server.client(), 0)


def test_a_store_made_read_only_refuses_writes_and_accepts_them_again(path: Path) -> None:
    """Permissions bind nobody who is root: the server gives up that right of root's."""
    bound: list[str] = []
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("needs another user than root, or setpriv")
        bound = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
    folder = path.parent
    command = [*bound, sys.executable, "-c", SERVE, str(path)]
    try:
        with ServerProcess(path, command=command) as server:
            client = server.client()
            assert client.ask("traces", {"text": "Miso is Ana's kitten."})[0] == 201
            n = 1
            folder.chmod(0o500)
            for name in folder.iterdir():
                name.chmod(0o400)
            # Descriptors that are open already may be written to; new ones are refused.
            for i in range(12):
                status, _ = client.ask("traces", {"text": f"either stored or refused {i}"})
                assert status in (201, 503)
                n += status == 201
                assert client.ask("retrieve", {"question": "Who is Miso?"})[0] in (200, 503)
            folder.chmod(0o700)
            for name in folder.iterdir():
                name.chmod(0o600)
            lives(client, n)
            server.stop()
        folder.chmod(0o500)
        path.chmod(0o400)
        with ServerProcess(path, command=[*command[:-2], READ_ONLY, str(path)]) as server:
            client = server.client()
            assert len(client.export()) == n
            assert client.ask("retrieve", {"question": "Who is Miso?"})[0] == 200
            for name, body in (
                ("traces", {"text": "a"}),
                ("traces/stream", b'{"text": "a"}'),
                ("import?format=jsonl", b'{"text": "a"}'),
                ("forget", {"everything": True}),
            ):
                status, problem = client.ask(name, body)
                assert (status, problem["type"]) == (503, "urn:zeromem:problem:store-unavailable")
    finally:
        folder.chmod(0o700)


READ_ONLY = SERVE.replace('device="cpu"', 'device="cpu", read_only=True')
