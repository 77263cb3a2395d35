#!/bin/sh
# The official Python SDK of the Model Context Protocol, mcp 2.3.0.
# Guess: a tool that is called with an argument that it does not have answers with an error.
# Behaviour: the argument is dropped, and the tool runs with its default: a program that asks for the pods
# of `namespaces` (an s too many) is told about all namespaces, and cannot know. The schema that the server
# publishes does not forbid further arguments either.
# What the product does: its server refuses an unknown argument by name (stowage/mcp_server.py, _Server).
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "mcp==2.3.0"
"$folder/venv/bin/python" - <<'PYTHON'
import asyncio
import sys

from mcp.server import MCPServer

server = MCPServer("scheduler")


@server.tool()
def waiting(namespace: str = "") -> str:
    return f"the pods of {namespace or 'all namespaces'}"


async def seen():
    (tool,) = await server.list_tools()
    answer = await server.call_tool("waiting", {"namespaces": "shop"})
    return tool.input_schema.get("additionalProperties"), answer.is_error, answer.content[0].text


found = asyncio.run(seen())
print(f"additionalProperties: {found[0]}; is_error: {found[1]}; answer: {found[2]}")
sys.exit(0 if found == (None, False, "the pods of all namespaces") else 1)
PYTHON
