#!/bin/sh
# The official Python SDK of the Model Context Protocol, mcp 2.3.0.
# Guess: a tool that returns a list answers with one text, the list in JSON.
# Behaviour: each entry becomes a text of its own, and an empty list becomes no content at all: "no pod
# waits" reaches the program as an answer with nothing in it. (Structured output, where it is on, has the list.)
# What the product does: every tool returns one JSON object as a text (stowage/mcp_server.py).
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


@server.tool(structured_output=False)
def waiting(count: int) -> list[dict]:
    return [{"pod": f"web-{number}"} for number in range(count)]


async def blocks(count):
    return [block.text for block in (await server.call_tool("waiting", {"count": count})).content]


seen = [asyncio.run(blocks(count)) for count in (2, 0)]
print(f"two pods: {len(seen[0])} texts, the first {seen[0][0]!r}; no pod: {len(seen[1])} texts")
sys.exit(0 if [len(one) for one in seen] == [2, 0] else 1)
PYTHON
