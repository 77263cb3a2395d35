"""The MCP server, asked by the official SDK's client: over stdio, and over HTTP with tokens."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from stowage.client import Client, Connection
from tests.live import ROOT, Service, free_ports, node, pod
from tests.waiting import until

mcp = pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

pytestmark = [pytest.mark.db, pytest.mark.slow, pytest.mark.real_clock]

READING = {
    "why", "waiting", "headroom", "what_if", "plan", "decisions", "history", "pack",
}  # fmt: skip


@pytest.fixture
def world(live: Service) -> Iterator[Service]:
    for number in range(2):
        live.request("POST", "/api/v1/nodes", node(f"mcp-{number}", cpu="4", zone="a"))
    connection = Connection(server=f"http://127.0.0.1:{live.http_port}", token=live.token)
    with Client(connection) as client:
        list(client.place([pod("asked", cpu="1"), pod("too-large", cpu="99")], timeout=5))
        yield live
        for name in ("asked", "too-large"):
            # At once: the next test's pods have the same names.
            client.delete(f"/api/v1/namespaces/default/pods/{name}", gracePeriodSeconds=0)


def environment(live: Service) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "KUBECONFIG": str(live.state / "kubeconfig"),
        "STOWAGE_STATE": str(live.state),
        "HOME": str(live.state.parent),
    }


@asynccontextmanager
async def agent(live: Service, *options: str) -> AsyncIterator[Any]:
    """A client whose server runs over stdio."""
    from mcp.client.stdio import StdioServerParameters

    started = StdioServerParameters(
        command=sys.executable, args=["-m", "stowage", "mcp", *options], env=environment(live)
    )
    async with mcp.Client(started) as client:
        yield client


async def asked(client: Any, tool: str, **arguments: Any) -> dict[str, Any]:
    answer = await client.call_tool(tool, arguments)
    text: str = answer.content[0].text
    assert text.startswith("{"), text
    assert len(text) <= 16_000
    found: dict[str, Any] = json.loads(text)
    return found


def run(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 120))  # type: ignore[arg-type]


def test_an_agents_questions_are_answered(world: Service) -> None:
    async def work() -> None:
        async with agent(world) as client:
            tools = {one.name: one for one in (await client.list_tools()).tools}
            assert set(tools) == READING
            assert all(one.description and one.annotations.read_only_hint for one in tools.values())
            waits = await asked(client, "why", pod="too-large")
            assert waits["status"]["state"] == "Waiting"
            assert waits["status"]["remedies"]
            assert waits["link"].endswith("/namespaces/default/pods/too-large/why")
            assert (await asked(client, "why", pod="asked"))["spec"]["nodeName"]
            groups = (await asked(client, "waiting"))["items"]
            assert 1 in [group["status"]["pods"] for group in groups]
            assert (await asked(client, "headroom", cpu="1", memory="1Gi"))["fits"] == 7
            assert (await asked(client, "headroom"))["items"]
            new = node("new", cpu="128")
            placed = await asked(client, "what_if", pods=[pod("t", cpu="99")], add=[new])
            assert placed["results"][0]["nodeName"] == "new"
            drained = await asked(client, "plan", drain=["mcp-0", "mcp-1"])
            assert {one["pod"] for one in drained["staying"]} == {"default/asked"}
            decided = await asked(client, "decisions", pod="asked")
            assert decided["items"][0]["outcome"] == "scheduled"
            assert (await asked(client, "history", kind="Pod", name="asked"))["items"]
            assert (await asked(client, "history", kind="Node", name="mcp-0", at="0s"))["metadata"]

    run(work)


@pytest.mark.long
def test_pods_are_packed_without_the_cluster(world: Service) -> None:
    pytest.importorskip("ortools")

    async def work() -> None:
        async with agent(world) as client:
            nodes = [node(f"n{number}", cpu="4") for number in range(2)]
            pods = [pod(f"p{number}", cpu=cpu) for number, cpu in enumerate("11331")]
            found = await asked(client, "pack", pods=pods[:4], nodes=nodes)
            assert (found["placed"], found["of"]) == (4, 4)

    run(work)


@pytest.mark.long
def test_long_answers_are_cut_and_wrong_questions_are_answers(world: Service) -> None:
    async def work() -> None:
        async with agent(world) as client:
            many = [pod(f"many-{number}") for number in range(400)]
            found = await asked(client, "what_if", pods=many)
            assert re.fullmatch(r"\.\.\. \d+ more", found["results"][-1])
            assert (await asked(client, "why", pod="nobody"))["code"] == 404
            assert "error" in await asked(client, "plan", changes=[{"fly": {}}])

    run(work)


def test_nothing_is_changed_unless_the_server_is_told(world: Service) -> None:
    async def work() -> None:
        async with agent(world, "--write") as client:
            tools = {one.name: one for one in (await client.list_tools()).tools}
            assert set(tools) == READING | {"submit", "apply_plan"}
            assert not tools["submit"].annotations.read_only_hint
            # Not told, a list of pods of one namespace would be one of all pods.
            wrong = await client.call_tool("waiting", {"namespaces": "shop"})
            assert wrong.is_error
            assert "waiting has no argument 'namespaces'; it has namespace" in wrong.content[0].text
            placed = await asked(client, "submit", pods=[pod("by-agent")], seconds=20)
            assert placed["items"][0]["state"] == "Placed"
            applied = await asked(client, "apply_plan", changes=[{"cordon": {"nodes": ["mcp-1"]}}])
            assert applied["operation"]["state"] in ("Running", "Done")
        world.request("DELETE", "/api/v1/namespaces/default/pods/by-agent")

    run(work)


def test_over_http_the_token_decides(world: Service, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "stowage", "mcp", "--http", str(port)],
            cwd=tmp_path, env=environment(world), stdout=log, stderr=log,
        )  # fmt: skip
    url = f"http://127.0.0.1:{port}/mcp"
    hello = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    takes = {"Accept": "application/json, text/event-stream"}

    def answers() -> bool:
        try:
            return httpx.post(url, json=hello, headers=takes, timeout=60).status_code == 401
        except httpx.TransportError:
            assert process.poll() is None, (tmp_path / "log").read_text()
            return False

    try:
        until(answers, seconds=60, what="who shows no token is refused")
        wrong = {**takes, "Authorization": "Bearer nobody's"}
        assert httpx.post(url, json=hello, headers=wrong, timeout=60).status_code == 401

        async def work() -> None:
            import httpx2
            from mcp.client.streamable_http import streamable_http_client

            shown = {"Authorization": f"Bearer {world.token}"}
            async with (
                httpx2.AsyncClient(headers=shown, timeout=30) as http,
                mcp.Client(streamable_http_client(url, http_client=http)) as client,
            ):
                assert (await asked(client, "why", pod="asked"))["spec"]["nodeName"]

        run(work)
    finally:
        process.terminate()
        process.wait(20)
