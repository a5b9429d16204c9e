"""The serving benchmark at its smallest: every reply is counted, and its table can be made."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import serving
import speed

pytest.importorskip("fastapi", reason="serving needs zeromem[server]")
ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_serving_and_its_table(tmp_path):
    out = tmp_path / "results" / "serving.json"
    done = subprocess.run(
        [
            sys.executable, str(ROOT / "bench" / "serving.py"), "--tokens", "2500", "--tenants",
            "3", "--tenant-tokens", "1000", "--clients", "1,4", "--seconds", "0.4", "--warm", "0.2",
            "--repeats", "1", "--dim", "16", "--out", str(out),
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert {(r["scene"], r["memories"]) for r in rows} == {("one", 1), ("many", 3)}
    alone = {(r["scene"], r["how"]): r for r in rows if "clients" not in r}
    assert set(alone) == {
        (scene, f"in process, {how}") for scene in serving.SCENES
        for how in ("batches of 64", "one by one")
    }  # fmt: skip
    for (_, how), row in alone.items():
        # The times are a single call's; a batch has none that a question would wait for.
        assert ("seconds" in row) == how.endswith("one by one")
        if "seconds" in row:
            assert row["n_runs"] == 256
            assert row["seconds.min"] < row["seconds"] < row["seconds.p99"]
            assert row["seconds.min"] < 1 / row["per_second"]
    served = [row for row in rows if "clients" in row]
    assert len(served) == 2 * 2 * 3
    for row in served:
        assert row["failed"] == 0
        assert row["n_replies"] > 0
        assert row["per_second"] == pytest.approx(row["n_replies"] / 0.4, rel=0.9)
        assert row["seconds"] <= row["seconds.p99"]
    batched = [row for row in served if row["how"] == "server"]
    assert all(row["of_least"] > 0 for row in batched)
    view = speed.VIEWS["speed-serving"]
    assert {key for column in view.columns for key in column.keys} <= set().union(*rows)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--only", "one,two"], "--only: must be among one, many, got 'two'"),
        (["--only", ""], "--only: must be among one, many, got ''"),
        (["--clients", "1,0"], "--clients: must be a whole number above 0, got '0'"),
        (["--clients", "many"], "--clients: must be a whole number above 0, got 'many'"),
        (["--seconds", "nan"], "--seconds: must be a number above 0, got 'nan'"),
        (["--warm", "inf"], "--warm: must be a number above 0, got 'inf'"),
        (["--folder", "no/such"], "--folder: must be a folder that is there, got 'no/such'"),
        *(
            ([f"--{name}", "-3"], f"--{name}: must be a whole number above 0, got '-3'")
            for name in ("tenants", "dim", "repeats")
        ),
        *(
            ([f"--{name}", "199"], f"--{name}: must be a whole number of at least 200, got '199'")
            for name in ("tokens", "tenant-tokens")
        ),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_is_built(given, message, capsys):
    with pytest.raises(SystemExit) as error:
        serving.main(given)
    assert error.value.code == 2
    assert message in capsys.readouterr().err


def test_the_help_tells_defaults_and_what_is_not_measured(capsys):
    with pytest.raises(SystemExit):
        serving.main(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for text in ("Not measured are encoding", "of_least", "client_share", "(default: 448000)",
                 "(default: 1,16,64,256)", "(default: one,many)"):  # fmt: skip
        assert text in shown
    options = serving.parser().parse_args(["--only", "many,many"])
    assert options.only == ["many"]
    assert options.clients == [1, 16, 64, 256]


def test_a_status_that_is_not_200_is_a_failure():
    import clients

    statuses = clients.Counter()
    seconds: list[float] = []

    async def run():
        import asyncio

        class Transport:
            closed = False

            def write(self, data):
                assert data == b"ask"

            def close(self):
                self.closed = True

        transport = Transport()
        client = clients.Client([b"ask"], iter([0, 1, 2]), 0.0, seconds, statuses)
        client.connection_made(transport)
        client.data_received(b"HTTP/1.1 503 no\r\nContent-Len")
        client.data_received(b"gth: 4\r\n\r\nab")
        assert not transport.closed
        client.data_received(b"cd")
        assert transport.closed
        client.connection_lost(ConnectionResetError())
        await asyncio.wait_for(client.done, 1)

    import asyncio

    asyncio.run(run())
    assert statuses == {503: 1, 0: 1}
    assert len(seconds) == 1
    assert serving.CLIENTS.name == "clients.py"
