"""MCP at /mcp of the HTTP server: the same keys, the same scopes."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from server_support import check_problem, open_memories, running

from zeromem.keys import Keys

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
