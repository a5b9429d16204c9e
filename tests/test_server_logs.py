"""Logs of the command: JSON Lines, at their level, which nobody has to read."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from server_support import check_problem, open_memories, running

import zeromem
from zeromem.keys import Keys
from zeromem.server.logs import JSONFormatter

ENV = {**os.environ, "PYTHONPATH": str(Path(zeromem.__file__).parents[1])}


def command(path, *more):
    return [
        sys.executable, "-m", "zeromem", "serve", "--store", str(path), "--annotator", "rules",
        "--port", "0", *more,
    ]  # fmt: skip


def test_a_server_whose_log_nobody_reads_goes_on(tmp_path):
    process = subprocess.Popen(
        command(tmp_path / "m.zm"), env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        url = process.stdout.readline().split()[2]
        with httpx.Client(base_url=url, timeout=20) as client:
            for _ in range(1500):  # far more than a pipe holds
                assert client.get("/v1/scopes").status_code == 200
        process.terminate()
        assert process.wait(20) == 0
    finally:
        process.kill()


def test_every_line_is_json_with_its_time_and_probes_are_left_out(tmp_path):
    log = tmp_path / "log"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            command(tmp_path / "m.zm"), env=ENV, stdout=subprocess.PIPE, stderr=stderr, text=True
        )
        try:
            url = process.stdout.readline().split()[2]
            with httpx.Client(base_url=url, timeout=20) as client:
                client.get("/healthz")
                client.get("/metrics")
                client.get("/v1/traces", params={"sessions": "marzipan"})
                client.post("/v1/retrieve", json={"question": "marzipan?", "k": "x"})
            process.terminate()
            process.wait(20)
        finally:
            process.kill()
    text = log.read_text()
    assert "marzipan" not in text
    found = [json.loads(line) for line in text.splitlines()]
    assert any("there are no API keys" in line.get("message", "") for line in found)
    assert all({"time", "level", "logger"} <= set(line) for line in found)
    requests = [(one["route"], one["status"]) for one in found if "route" in one]
    assert requests == [("/v1/traces", 200), ("/v1/retrieve", 422)]


def test_an_exception_is_logged_without_its_message():
    said = " ".join(["what", "a", "user", "said"])
    try:
        raise ValueError(said)
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "f", 1, "it failed", (), sys.exc_info())
    line = json.loads(JSONFormatter().format(record))
    assert line["error"] == "ValueError"
    assert "test_server_logs.py" in line["traceback"]
    assert said not in str(line)


def test_a_scope_given_to_the_command_is_the_default(tmp_path):
    with zeromem.open(tmp_path / "m.zm", scope="ana", annotator="rules") as memory:
        memory._log.append([zeromem.Trace("Miso is a kitten.")], keys=[b"k"])
    process = subprocess.Popen(
        command(tmp_path / "m.zm", "--scope", "ana", "--log-level", "error"), env=ENV,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        url = process.stdout.readline().split()[2]
        with httpx.Client(base_url=url, timeout=20) as client:
            assert client.get("/v1/scopes").json() == {"scopes": ["ana"]}
            assert "kitten" in client.get("/v1/export").text
            other = client.get("/v1/export", headers={"Zeromem-Scope": "default"})
            assert other.text == ""
    finally:
        process.kill()


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP"])
def test_what_a_proxy_passed_on_needs_a_key(header, tmp_path):
    with running(keys=Keys(tmp_path / "m.zm")) as server, server.client() as client:
        reply = client.get("/v1/scopes", headers={header: "203.0.113.9"})
        check_problem(reply, 421, "misdirected")


def test_from_the_first_key_on_a_server_goes_by_any_name(tmp_path):
    keys = Keys(tmp_path / "m.zm")
    with running(open_memories(tmp_path / "m.zm"), keys=keys) as server:
        passed_on = {"X-Forwarded-For": "203.0.113.9", "Host": "memory.example"}
        with server.client() as client:
            check_problem(client.get("/v1/scopes", headers=passed_on), 421, "misdirected")
            key = keys.create("ana")[1]
            check_problem(client.get("/v1/scopes", headers=passed_on), 401, "unauthorized")
            passed_on["Authorization"] = f"Bearer {key}"
            assert client.get("/v1/scopes", headers=passed_on).status_code == 200
