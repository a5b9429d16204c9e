"""A memory as an MCP server: tools and resources for any client of the Model Context Protocol."""

from __future__ import annotations

from importlib.util import find_spec

from zeromem.errors import ZeroMemError

# Imports are absolute: ``import mcp`` in this package reaches the official SDK.
if find_spec("mcp") is None:
    raise ZeroMemError("the MCP server needs the MCP SDK: pip install 'zeromem[mcp]'")
