"""The MCP server over streamable HTTP: a process of its own, and mounted with keys."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import signal
import socket
import threading
import time
from contextlib import contextmanager

import anyio
import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client, MCPError
from mcp_support import Vectors, over_http, run, served
from support import HashEncoder

import zeromem
from zeromem.mcp import http as serving
from zeromem.mcp.server import Grant, build
from zeromem.mcp.tools import TOOLS

HEADERS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
LIST = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})


@pytest.fixture(scope="module")
def vectors():
    server = Vectors()
    yield server
    server.close()


def memories(path=None, **options):
    return zeromem.Memories(
        path, encoder=HashEncoder(), annotator="rules", device="cpu", **options
    )  # fmt: skip


@contextmanager
def mounted(endpoint):
    """Serve an endpoint from a thread; give its URL."""
    with serving.listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        ready, ends = threading.Event(), []

        async def main():
            stop = anyio.Event()
            ends.append((asyncio.get_running_loop(), stop))
            server = serving.server(endpoint)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server.serve, [listening])
                ready.set()
                await stop.wait()
                server.stop()

        thread = threading.Thread(target=anyio.run, args=(main,))
        thread.start()
        ready.wait(30)
        try:
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            loop, stop = ends[0]
            loop.call_soon_threadsafe(stop.set)
            thread.join(30)


def post(url, body=LIST, **headers):
    """Send one request as it is; give the status and the body."""
    host, port = url.removeprefix("http://").removesuffix("/mcp").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request("POST", "/mcp", body, {**HEADERS, **more})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_two_clients_at_once(tmp_path, vectors, mode):
    async def main(url):
        async with over_http(url, mode=mode) as one, over_http(url, mode=mode) as other:

            async def add(client, name):
                for n in range(15):
                    text = f"{name} likes the number {n}."
                    done = await client.call_tool("add", {"text": text, "session": name})
                    assert done.structured_content["created"]
                    asked = {"question": f"What does {name} like?", "sessions": name, "k": 20}
                    found = (await client.call_tool("search", asked)).structured_content["evidence"]
                    assert len(found) == n + 1
                    assert {item["session"] for item in found} == {name}

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(add, one, "Ana")
                tasks.start_soon(add, other, "Ben")
            page = await one.call_tool("timeline", {"limit": 200})
            assert len(page.structured_content["traces"]) == 30
            session = (await other.read_resource("zeromem://sessions/Ana")).contents[0].text
            assert session.count("Ana likes the number") == 15
            bad = await one.call_tool("search", {"question": "x", "k": 0})
            assert bad.is_error
            with pytest.raises(MCPError, match="there is no tool"):
                await one.call_tool("sing", {})

    with served(tmp_path / "a.zm", vectors.model) as (url, process):
        run(lambda: main(url))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stdout.read() == ""
        assert process.stderr.read() == ""
    with zeromem.open(
        tmp_path / "a.zm", encoder=vectors.model, annotator="rules", device="cpu"
    ) as memory:
        assert memory.stats()["traces"] == 30


def test_it_says_when_it_is_up_and_opens_no_stream_that_never_says_anything(tmp_path, vectors):
    with served(tmp_path / "a.zm", vectors.model) as (url, _):
        base = url.removesuffix("/mcp")
        assert httpx2.get(f"{base}/healthz").text == "ok\n"
        reply = httpx2.get(url, timeout=5)
        assert (reply.status_code, reply.headers["allow"]) == (405, "POST")
        # The bounds of connections are those of the other server.
        with socket.create_connection(base.removeprefix("http://").split(":")) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nx-a: ")
            with pytest.raises(OSError, match="reset|pipe"):
                connection.sendall(b"a" * (64 << 20))


def test_replies_do_not_wait_for_acknowledgements(tmp_path, vectors):
    with served(tmp_path / "a.zm", vectors.model) as (url, _):
        host, port = url.removeprefix("http://").removesuffix("/mcp").split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        taken = []
        for _ in range(10):
            start = time.perf_counter()
            connection.request("POST", "/mcp", LIST, HEADERS)
            connection.getresponse().read()
            taken.append(time.perf_counter() - start)
        assert min(taken[1:]) < 0.035  # 40 ms where head and body are sent apart


def test_what_is_no_request_of_ours_is_refused(tmp_path, vectors):
    with served(tmp_path / "a.zm", vectors.model, "--allow-host", "memory.example:*") as (url, _):
        assert post(url)[0] == 200
        assert post(url, host="memory.example:80")[0] == 200
        assert post(url, host="evil.example:80")[0] == 421
        assert post(url, origin="http://evil.example")[0] == 403
        assert post(url, content_type="text/plain")[0] == 400
        assert post(url, body="nonsense")[0] == 400
        assert post(url, body="[" * 5000)[0] == 400
        assert post(url, body=b"\xff\xfe")[0] == 400
        half = LIST.replace("tools/list", "half \\ud83d")
        assert post(url, body=half)[0] == 400
        big = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "x" * (5 << 20)})
        assert post(url, body=big)[0] == 413
        assert post(url, accept="text/html")[0] == 406
        assert post(url, mcp_protocol_version="1999-01-01")[0] == 400
        status, body = post(url)
        assert status == 200
        assert "timeline" in body


def call(url, tool, arguments):
    """Call a tool as clients of 2026 do, with arguments that are JSON text; give the result."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = f'{{"name": "{tool}", "arguments": {arguments}, "_meta": {json.dumps(meta)}}}'
    status, body = post(
        url, f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {params}}}',
        mcp_protocol_version="2026-07-28", mcp_method="tools/call", mcp_name=tool,
    )  # fmt: skip
    assert status == 200, body
    return json.loads(body)["result"]


def test_json_that_python_alone_reads(tmp_path, vectors):
    deep = '{"a": ' * 400 + "1" + "}" * 400
    with served(tmp_path / "a.zm", vectors.model) as (url, process):
        for arguments, why in {
            '{"text": "half \\ud83d"}': "text: .*valid string",
            '{"text": "x", "speaker": "\\udc00"}': "speaker: .*valid string",
            '{"text": "x", "metadata": {"a": NaN}}': "metadata",
            '{"text": "x", "metadata": {"a": 1e999}}': "metadata",
            '{"text": "x", "\\ud83d": 1}': "arguments: .*valid string",
            f'{{"text": "x", "metadata": {deep}}}': "metadata",
        }.items():
            result = call(url, "add", arguments)
            assert result["isError"], arguments[:50]
            assert re.search(why, result["content"][0]["text"]), result
        odd = '{"text": "x", "metadata": {"\\ud83d": "\\ud83d"}}'
        assert not call(url, "add", odd)["isError"]
        shown = call(url, "timeline", "{}")["structuredContent"]["traces"]
        assert [trace["metadata"] for trace in shown] == [{"\ufffd": "\ufffd"}]
        process.terminate()
        assert process.wait(60) == 0
        assert "Traceback" not in process.stderr.read()


def keyed(headers):
    """Keys of the tests: each tenant's own, and one of Ana's that only reads."""
    return {
        "Bearer ana": Grant("ana"), "Bearer ben": Grant("ben"),
        "Bearer ana-reads": Grant("ana", read_only=True),
    }.get(headers.get("Authorization", ""))  # fmt: skip


def client_of(url, key):
    return over_http(url, httpx2.AsyncClient(headers={"authorization": f"Bearer {key}"}))


def test_each_key_reaches_its_own_scope(tmp_path):
    async def main(url):
        async with client_of(url, "ana") as ana, client_of(url, "ben") as ben:
            told = await ana.call_tool("add", {"text": "Ana's secret is tuna.", "session": "s1"})
            name = told.structured_content["id"]
            await ana.call_tool("add", {"text": "A second secret."})
            cursor = (await ana.call_tool("timeline", {"limit": 1})).structured_content["cursor"]
            await ben.call_tool("add", {"text": "Ben's own.", "session": "s2"})
            shown = [
                await ben.call_tool("search", {"question": "What is the secret?", "k": 100}),
                await ben.call_tool("timeline", {"cursor": cursor}),
                await ben.call_tool("timeline", {"sessions": "s1"}),
                await ben.call_tool("open", {"id": name}),
                await ben.call_tool("forget", {"ids": name}),
                await ben.call_tool("forget", {"session": "s1"}),
                await ben.list_resources(),
                await ben.read_resource("zeromem://sessions"),
            ]
            for result in shown:
                assert "secret" not in result.model_dump_json()
                assert "s1" not in result.model_dump_json()
            with pytest.raises(MCPError, match="there is no session 's1'"):
                await ben.read_resource("zeromem://sessions/s1")
            gone = await ben.call_tool("forget", {"everything": True})
            assert gone.structured_content == {"forgotten": 1}
            kept = await ana.call_tool("timeline", {})
            assert len(kept.structured_content["traces"]) == 2
        async with client_of(url, "ana-reads") as reader:
            names = [tool.name for tool in (await reader.list_tools()).tools]
            assert names == ["search", "open", "timeline"]
            with pytest.raises(MCPError, match="there is no tool 'forget'"):
                await reader.call_tool("forget", {"everything": True})
            assert len((await reader.call_tool("timeline", {})).structured_content["traces"]) == 2

    with memories(tmp_path / "a.zm") as many, mounted(
        serving.Endpoint(many, authorize=keyed)
    ) as url:  # fmt: skip
        run(lambda: main(url))
        assert post(url, authorization="Bearer ana", host="memory.example")[0] == 200
        for headers in ({}, {"authorization": "Bearer no"}, {"authorization": "ana"}):
            status, body = post(url, **headers)
            assert status == 401
            assert "API key" in body
            assert "tools" not in body


def test_faults_of_the_store_name_no_path(tmp_path, caplog):
    path = tmp_path / "secret-place.zm"
    memories(path).close()

    async def main(many):
        async with Client(build(many)) as client:
            full = await client.call_tool("add", {"text": "x"})
            many.close()
            closed = await client.call_tool("timeline", {})
            assert full.is_error
            assert closed.is_error
            with pytest.raises(MCPError) as error:
                await client.list_resources()
            return full.content[0].text, closed.content[0].text, str(error.value)

    messages = run(lambda: main(memories(path, read_only=True)))
    assert all(message.count("the store cannot be used now (") == 1 for message in messages)
    assert "secret-place" not in " ".join(messages)
    assert "secret-place" in caplog.text  # whoever runs the server is told


VALID = {
    "add": {"text": "Miso is a kitten."}, "search": {"question": "Who is Miso?"},
    "open": {"id": "x"}, "timeline": {}, "forget": {"ids": "x"},
}  # fmt: skip
texts = st.text(st.characters(exclude_categories=[]), min_size=1, max_size=20)  # surrogates too
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner,
                                                                max_size=3),
    max_leaves=5,
)  # fmt: skip


@st.composite
def calls(draw):
    tool = draw(st.sampled_from(TOOLS))
    names = [*tool.takes.model_fields, draw(st.text(max_size=5))]
    odd = draw(st.dictionaries(st.sampled_from(names), json_values | texts, max_size=3))
    return tool.name, VALID[tool.name] | odd


@pytest.fixture(scope="module")
def many():
    with memories() as opened:
        yield opened


@given(several=st.lists(calls(), min_size=1, max_size=5))
@settings(max_examples=150)
def test_any_arguments_get_a_result_or_an_error(many, several):
    async def main():
        async with Client(build(many)) as client:
            for name, arguments in several:
                result = await client.call_tool(name, arguments)
                text = result.content[0].text
                text.encode()  # UTF-8 carries it
                assert result.is_error == (result.structured_content is None)
                assert "internal error" not in text, (name, arguments)
                assert "Traceback" not in text

    run(main)
