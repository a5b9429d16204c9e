"""MCP at /mcp of the HTTP server: the same keys, the same scopes."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from server_support import GatedEncoder, check_problem, open_memories, running

from zeromem.keys import Keys
from zeromem.server.settings import Settings

pytest.importorskip("mcp", reason="needs zeromem[mcp]")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "m.zm"
    keys = Keys(path)
    texts = {
        "ana": keys.create("ana")[1],
        "ben": keys.create("ben")[1],
        "reader": keys.create("ana", read_only=True)[1],
    }
    with running(open_memories(path), keys=keys, mcp=True) as server:
        yield server, texts


def call(server, key, use):
    """Run ``use(client)`` with the official client."""
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    async def run():
        headers = {"Authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(headers=headers, timeout=60) as http:
            transport = streamable_http_client(f"{server.url}/mcp", http_client=http)
            async with Client(transport) as client:
                return await use(client)

    return asyncio.run(run())


def test_each_key_has_its_tenants_memory(served):
    server, texts = served

    async def add(client):
        return await client.call_tool("add", {"text": "Miso is my kitten.", "id": "1"})

    async def search(client):
        return await client.call_tool("search", {"question": "What is Miso?"})

    assert call(server, texts["ana"], add).structured_content == {"id": "1", "created": True}
    (found,) = call(server, texts["ana"], search).structured_content["evidence"]
    assert found["text"] == "Miso is my kitten."
    assert call(server, texts["ben"], search).structured_content["evidence"] == []
    with server.client(key=texts["ana"]) as client:
        (trace,) = client.get("/v1/traces").json()["traces"]
    assert trace["text"] == "Miso is my kitten."


def test_a_read_only_key_cannot_write(served):
    server, texts = served

    async def add(client):
        from mcp import MCPError

        with pytest.raises(MCPError, match="there is no tool 'add'"):
            await client.call_tool("add", {"text": "Not to be."})
        return [tool.name for tool in (await client.list_tools()).tools]

    assert call(server, texts["reader"], add) == ["search", "open", "timeline"]
    with server.client(key=texts["ana"]) as client:
        assert "Not to be." not in client.get("/v1/export").text


def test_without_a_key_nothing_is_served(served):
    server, _ = served
    with server.client() as client:
        reply = client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert reply.status_code == 401
    assert reply.headers["www-authenticate"].startswith("Bearer")


def test_no_stream_stays_open_that_never_says_anything(served):
    server, texts = served
    with server.client(key=texts["ana"], timeout=5) as client:
        for reply in (client.get("/mcp"), client.delete("/mcp")):
            check_problem(reply, 405, "method-not-allowed")


def test_its_tools_share_batches_with_all_other_routes_and_are_refused_as_they_are(tmp_path):
    encoder, keys = GatedEncoder(), Keys(tmp_path / "m.zm")
    ana, ben = keys.create("ana")[1], keys.create("ben")[1]
    settings = Settings(max_waiting=4)
    memories = open_memories(tmp_path / "m.zm", encoder=encoder)
    with running(memories, settings, keys, mcp=True) as server:
        service = server.app.state.service

        async def add(client):
            return await client.call_tool("add", {"text": "Miso is my kitten."})

        assert not call(server, ana, add).is_error
        with server.client(key=ben) as client:
            client.post("/v1/traces", json={"text": "Rex barks."}).raise_for_status()
            for key, text in ((ana, "Who?"), (ben, "Who?")):
                headers = {"Authorization": f"Bearer {key}"}
                client.post("/v1/retrieve", json={"question": text}, headers=headers)
        before = service.measured().decode()

        async def search(client):
            return await client.call_tool("search", {"question": "What is Miso?"})

        async def many(client):
            gate = asyncio.create_task(client.call_tool("search", {"question": "gate"}))
            assert await asyncio.to_thread(encoder.entered.wait, 10)
            waiting = [asyncio.create_task(search(client)) for _ in range(3)]
            while service.batcher.n_waiting < 4:
                await asyncio.sleep(0.01)
            refused = await search(client)
            # Another tenant's question over HTTP would be refused as well: it is one queue.
            async with httpx.AsyncClient(headers={"Authorization": f"Bearer {ben}"}) as http:
                other = await http.post(f"{server.url}/v1/retrieve", json={"question": "Rex?"})
            encoder.open.set()
            return refused, other, await asyncio.gather(gate, *waiting)

        refused, other, found = call(server, ana, many)
        assert refused.is_error
        assert "full" in refused.content[0].text
        assert "Retry-After" not in refused.content[0].text
        check_problem(other, 429, "overloaded")
        assert all(f.structured_content["evidence"] for f in found)
        after = service.measured().decode()
        assert counted(after, "zeromem_batch_questions_sum") == 4 + counted(
            before, "zeromem_batch_questions_sum"
        )
        # The first alone, the three that waited together.
        assert counted(after, "zeromem_batch_questions_count") == 2 + counted(
            before, "zeromem_batch_questions_count"
        )

        async def forget(client):
            return await client.call_tool("forget", {"everything": True})

        assert call(server, ana, forget).structured_content == {"forgotten": 1}
        assert counted(service.measured().decode(), 'zeromem_traces_total{action="forgotten"}') == 1


def counted(metrics, name):
    (line,) = [line for line in metrics.splitlines() if line.startswith(name + " ")]
    return float(line.split()[-1])
