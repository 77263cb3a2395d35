"""The MCP server, asked by the official SDK's client: over stdio, and over HTTP with tokens."""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import httpx
import pytest

from stowage.client import Client, Connection
from tests.clients.agent_questions import (
    HELLO,
    TAKES,
    Prepared,
    ask,
    costs,
    over_http,
    over_stdio,
    served,
)
from tests.live import ROOT, Service, node, pod

mcp = pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

pytestmark = [pytest.mark.db, pytest.mark.slow, pytest.mark.real_clock]

READING = {
    "why", "waiting", "nodes", "headroom", "what_if", "plan", "decisions", "history", "pack",
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


def run(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 120))  # type: ignore[arg-type]


def test_an_agents_questions_are_answered_by_two_calls_at_most(live: Service) -> None:
    connection = Connection(server=f"http://127.0.0.1:{live.http_port}", token=live.token)
    with Client(connection) as client:
        world = Prepared(client, nodes=16, pods=80)
        try:
            run(lambda: answered(live, connection, world))
        finally:
            world.remove()


async def answered(live: Service, connection: Connection, world: Prepared) -> None:
    async with over_stdio(environment(live)) as client:
        tools = {one.name: one for one in (await client.list_tools()).tools}
        assert set(tools) == READING
        assert all(one.description and one.annotations.read_only_hint for one in tools.values())
        assert len(await costs(client, connection, world)) == 20
        assert "`history` says" in (await ask(client, "why", pod=world.evicted))["error"]
        packed = await ask(client, "pack")
        assert packed["placed"] < packed["of"]


@pytest.mark.long
def test_pods_are_packed_without_the_cluster(world: Service) -> None:
    pytest.importorskip("ortools")

    async def work() -> None:
        async with over_stdio(environment(world)) as client:
            nodes = [node(f"n{number}", cpu="4") for number in range(2)]
            pods = [pod(f"p{number}", cpu=cpu) for number, cpu in enumerate("11331")]
            found = await ask(client, "pack", pods=pods[:4], nodes=nodes)
            assert (found["placed"], found["of"]) == (4, 4)

    run(work)


@pytest.mark.long
def test_long_answers_are_cut_and_wrong_questions_are_answers(world: Service) -> None:
    async def work() -> None:
        async with over_stdio(environment(world)) as client:
            many = [pod(f"many-{number}") for number in range(400)]
            found = await ask(client, "what_if", pods=many)
            assert re.fullmatch(r"\.\.\. \d+ more", found["results"][-1])
            assert (await ask(client, "why", pod="nobody"))["code"] == 404
            assert "error" in await ask(client, "plan", changes=[{"fly": {}}])

    run(work)


def test_nothing_is_changed_unless_the_server_is_told(world: Service) -> None:
    async def work() -> None:
        async with over_stdio(environment(world), "--write") as client:
            tools = {one.name: one for one in (await client.list_tools()).tools}
            assert set(tools) == READING | {"submit", "apply_plan"}
            assert not tools["submit"].annotations.read_only_hint
            # Not told, a list of pods of one namespace would be one of all pods.
            wrong = await client.call_tool("waiting", {"namespaces": "shop"})
            assert wrong.is_error
            assert "waiting has no argument 'namespaces'; it has namespace" in wrong.content[0].text
            placed = await ask(client, "submit", pods=[pod("by-agent")], seconds=20)
            assert placed["items"][0]["state"] == "Placed"
            applied = await ask(client, "apply_plan", changes=[{"cordon": {"nodes": ["mcp-1"]}}])
            assert applied["operation"]["state"] in ("Running", "Done")
        world.request("DELETE", "/api/v1/namespaces/default/pods/by-agent")

    run(work)


def test_over_http_the_token_decides(world: Service, tmp_path: Path) -> None:
    with served(environment(world), tmp_path / "log") as url:
        wrong = {**TAKES, "Authorization": "Bearer nobody's"}
        assert httpx.post(url, json=HELLO, headers=wrong, timeout=60).status_code == 401

        async def work() -> None:
            async with over_http(url, world.token) as client:
                assert (await ask(client, "why", pod="asked"))["spec"]["nodeName"]

        run(work)
