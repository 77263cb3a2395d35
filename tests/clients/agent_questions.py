"""Twenty questions that an operator's agent asks: by MCP tools alone, and by requests to the API.

``python -m tests.clients.agent_questions`` prepares a cluster in the service that the environment
names, which should be empty, asks by both transports, and prints the table of ``docs/mcp.md``.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec

from stowage.client import Client, Connection
from tests.live import ROOT, free_ports, node, pod
from tests.waiting import until

ZONE: Final = "topology.kubernetes.io/zone"
GPU: Final = "nvidia.com/gpu"
_CORE: Final = "/api/v1/namespaces/default"
_SETS_PATH: Final = "/apis/apps/v1/namespaces/default/replicasets"
_BUDGETS_PATH: Final = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
_CLAIMS_PATH: Final = f"{_CORE}/persistentvolumeclaims"
_GROUPS_PATH: Final = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
_SETS: Final = 4
_EVENTS: Final = f"{_CORE}/events?fieldSelector=involvedObject.name="
HELLO: Final = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
TAKES: Final = {"Accept": "application/json, text/event-stream"}
_ALL: Final = ("/api/v1/nodes", "/api/v1/pods")
Answer = dict[str, Any]
Call = tuple[str, dict[str, Any]]


class Prepared:
    """Names of what the questions are about."""

    def __init__(self, client: Client, nodes: int, pods: int) -> None:
        """Make a cluster whose every twelfth node has GPUs, and pods that wait for five causes."""
        self._client = client
        self.nodes = [f"ops-{number:03}" for number in range(nodes)]
        gpus = max(2, nodes // 12)
        self.gpu_nodes, self.plain = self.nodes[:gpus], self.nodes[gpus:]
        self.cordoned, self.tainted, self.drained = self.plain[0], self.plain[1], self.plain[2]
        for number, name in enumerate(self.nodes):
            made = node(name, cpu="16", memory="64Gi", **{ZONE: "abcd"[number % 4]})
            if name in self.gpu_nodes:
                made["status"]["capacity"][GPU] = "8"
                made["spec"] = {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}
            client.create("/api/v1/nodes", made)
        self._fill(pods)
        self._wait()
        self._happen()

    def _fill(self, pods: int) -> None:
        """Fill nodes with pods of ReplicaSets; a budget lets none of the first set's leave."""
        for number in range(_SETS):
            name = f"web-{number}"
            template = pod("", cpu="900m", memory="2Gi")["spec"]
            labels = {"app": name}
            self._client.create(
                _SETS_PATH,
                {
                    "metadata": {"name": name},
                    "spec": {
                        "replicas": pods // _SETS,
                        "selector": {"matchLabels": labels},
                        "template": {"metadata": {"labels": labels}, "spec": template},
                    },
                },
            )
        self._client.create(
            _BUDGETS_PATH,
            {
                "metadata": {"name": "web-0"},
                "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web-0"}}},
            },
        )

    def _wait(self) -> None:
        """Submit pods, of which most cannot be placed."""
        claim = {
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "fast",
                "resources": {"requests": {"storage": "10Gi"}},
            },
        }
        self._client.create(_CLAIMS_PATH, claim)
        group = {"metadata": {"name": "train"}, "spec": {
            "schedulingPolicy": {"gang": {"minCount": 3 * len(self.gpu_nodes)}}}}  # fmt: skip
        self._client.create(_GROUPS_PATH, group)
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
        waiting = [
            pod("report", cpu="40"),
            *(pod(f"index-{at}", nodeSelector={"disk": "ssd"}) for at in range(5)),
            *(_of_gpus(f"render-{at}", 1) for at in range(3)),
            pod("ledger", volumes=[volume]),
            *(
                _of_gpus(
                    f"train-{at}", 4,
                    tolerations=[{"key": "gpu", "operator": "Exists"}],
                    schedulingGroup={"podGroupName": "train"},
                )
                for at in range(3 * len(self.gpu_nodes))
            ),
            pod("checked", schedulingGates=[{"name": "example.com/checked"}]),
        ]  # fmt: skip
        list(self._client.place(waiting, timeout=1))
        (self.api,) = self._client.place([pod("api", cpu="1")])
        made = self._client.get(f"{_CORE}/pods/api")["metadata"]
        self.before: str = made["creationTimestamp"]
        """A second in which all nodes were there, and none was cordoned."""

    def remove(self) -> None:
        """Delete all but the nodes."""
        for path in (_SETS_PATH, _BUDGETS_PATH, _CLAIMS_PATH, _GROUPS_PATH, f"{_CORE}/pods"):
            self._client.delete(path, gracePeriodSeconds=0)

    def _happen(self) -> None:
        """Cordon a node, and have the pods of another one evicted."""
        self._client.patch(f"/api/v1/nodes/{self.cordoned}", {"spec": {"unschedulable": True}})
        self.evicted = next(
            one["metadata"]["name"]
            for one in self._client.list_all(f"{_CORE}/pods")[0]
            if one["spec"].get("nodeName") == self.tainted
        )
        taint = {"key": "example.com/broken", "effect": "NoExecute"}
        self._client.patch(f"/api/v1/nodes/{self.tainted}", {"spec": {"taints": [taint]}})


def _of_gpus(name: str, count: int, **spec: Any) -> dict[str, Any]:
    made = pod(name, **spec)
    made["spec"]["containers"][0]["resources"]["limits"] = {GPU: str(count)}
    return made


class Question(msgspec.Struct, frozen=True):
    """What is asked, and how.

    ``calls``: of tools. ``right``: whether their answers hold the true one, which follows from how
    the cluster was prepared. ``reads``: what somebody without Stowage's own API has to read at
    least. ``found``: whether the answer stands there.
    """

    text: str
    calls: tuple[Call, ...]
    right: Callable[..., Any]
    reads: tuple[str, ...]
    found: str = "no"


def questions(world: Prepared) -> list[Question]:
    """Return the twenty questions about a cluster."""
    api, drained, cordoned = world.api, world.drained, world.cordoned
    other = next(name for name in reversed(world.plain) if name != api.node)
    in_zone = f"{ZONE}=a"
    two = pod("next", cpu="2", memory="8Gi")
    several = [pod(f"next-{at}") for at in range(4)]
    most = {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}
    fit = {"name": "NodeResourcesFit", "args": {"scoringStrategy": most}}
    above_all = {"multiPoint": {"enabled": [{"name": "NodeResourcesFit", "weight": 100}]}}
    profile = {"schedulerName": "default-scheduler", "plugins": above_all, "pluginConfig": [fit]}
    packing = {"profiles": [profile]}
    members, room = 3 * len(world.gpu_nodes), 2 * len(world.gpu_nodes)
    of_drained = f"/api/v1/pods?fieldSelector=spec.nodeName={drained}"
    budgets = "/apis/policy/v1/poddisruptionbudgets"
    waiting = "/api/v1/pods?fieldSelector=spec.nodeName="
    return [
        Question(
            "Why does report wait?", (("why", {"pod": "report"}),),
            lambda why: why["status"]["blockers"][0]["reasons"] == ["Insufficient cpu"],
            (f"{_CORE}/pods/report",), "yes",
        ),
        Question(
            "What would let report in?", (("why", {"pod": "report"}),),
            lambda why: any(one["target"] == "Pod" for one in why["status"]["remedies"]),
            (f"{_CORE}/pods/report", *_ALL), "by reasoning",
        ),
        Question(
            "Why is api on its node and not on another one?",
            (("why", {"pod": "api", "node": other}),),
            lambda why: {one["node"] for one in why["status"]["nodes"]} == {api.node, other}
            and all(one["scores"] for one in why["status"]["nodes"]),
            (f"{_CORE}/pods/api", *_ALL),
        ),
        Question(
            "Why does the gang train not start, and how much does it lack?",
            (("why", {"pod": "train-0"}),),
            lambda why: f"{room} of {members} needed" in why["status"]["podGroup"]["message"],
            ("/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups/train", *_ALL),
            "by reasoning",
        ),
        Question(
            "What does the claim of ledger lack?", (("why", {"pod": "ledger"}),),
            lambda why: "claim default/data wants 10Gi of class fast: 0 volumes"
            in why["status"]["shortages"][0],
            (
                f"{_CORE}/pods/ledger", f"{_CORE}/persistentvolumeclaims/data",
                "/apis/storage.k8s.io/v1/storageclasses", "/api/v1/persistentvolumes",
            ),
            "yes",
        ),
        Question(
            "Which pods wait, for which reasons?", (("waiting", {}),),
            lambda found: sorted(
                one["status"]["pods"] for one in found["items"]
                if "default" in one["status"]["namespaces"]
            ) == [1, 1, 1, 3, 5, members],
            (waiting,), "yes",
        ),
        Question(
            "Which single change helps most of them?", (("waiting", {"remedies": True}),),
            lambda found: any(
                one["text"] == "drop disk from the node selector" and one["frees"] == 5
                for group in found["items"] for one in group["status"]["remedies"]
            ),
            _ALL,
        ),
        Question(
            "How many more pods of 2 CPU and 8 GiB fit, and what stops the next one?",
            (("headroom", {"cpu": "2", "memory": "8Gi"}),),
            lambda found: found["fits"] > 0 and found["blockers"],
            _ALL, "by reasoning",
        ),
        Question(
            "How full are the nodes of zone a?", (("nodes", {"labels": in_zone}),),
            lambda found: len(found["items"]) == (len(world.nodes) + 3) // 4
            and found["items"][0]["cpu %"] > 10,
            _ALL, "by reasoning",
        ),
        Question(
            "Where would a pod of 2 CPU go?", (("what_if", {"pods": [two]}),),
            lambda found: found["results"][0]["nodeName"] in world.plain,
            _ALL,
        ),
        Question(
            "Would a pod of 40 CPU fit if a larger node came?",
            (("what_if", {
                "pods": [pod("large", cpu="40")], "add": [node("larger", cpu="64")],
            }),),
            lambda found: found["results"][0]["nodeName"] == "larger",
            _ALL, "by reasoning",
        ),
        Question(
            "Would MostAllocated place four pods elsewhere?",
            (
                ("what_if", {"pods": several}),
                ("what_if", {"pods": several, "configuration": packing}),
            ),
            lambda now, then: len(_nodes(then)) < len(_nodes(now)),
            _ALL,
        ),
        Question(
            "Who leaves if a node is drained, and where to?", (("plan", {"drain": [drained]}),),
            lambda found: {one["nodeName"] for one in found["leaving"]} == {drained}
            and any(one["landing"]["nodeName"] for one in found["leaving"] if "landing" in one),
            (of_drained, budgets, *_ALL), "who leaves, not where to",
        ),
        Question(
            "Does a budget hold the drain up?", (("plan", {"drain": [drained]}),),
            lambda found: "default/web-0" in json.dumps(found["budgets"]),
            (of_drained, budgets), "yes",
        ),
        Question(
            "Zone a fails: who finds no room?",
            (("plan", {"changes": [{"delete": {"selector": in_zone}}]}),),
            lambda found: found["summary"]["leaving"] and "stuck" in found["summary"],
            (*_ALL, budgets), "by reasoning",
        ),
        Question(
            "Could nodes be emptied, and which?", (("plan", {"changes": [{"rebalance": {}}]}),),
            lambda found: found["summary"]["stuck"] == 0,
            (*_ALL, budgets), "by reasoning",
        ),
        Question(
            "What was decided about report so far?",
            (("decisions", {"pod": "report", "namespace": "default"}),),
            lambda found: {one["outcome"] for one in found["items"]} == {"unschedulable"},
            (f"{_EVENTS}report",), "while events are kept",
        ),
        Question(
            "Which pods were refused for a taint?",
            (("decisions", {"reason": "untolerated taint"}),),
            lambda found: {"render-0", "report"} & {
                one["pod"]["name"] for one in found["items"] if isinstance(one, dict)
            },
            (waiting,), "those that wait now",
        ),
        Question(
            "Who changed a node, and how was it before?",
            (
                ("history", {"kind": "Node", "name": cordoned}),
                ("history", {"kind": "Node", "name": cordoned, "at": world.before}),
            ),
            lambda changes, then: "spec.unschedulable" in changes["items"][0]["fields"]
            and changes["items"][0]["user"]["username"] == "admin"
            and "unschedulable" not in then["spec"],
            (f"/api/v1/nodes/{cordoned}",),
        ),
        Question(
            "Where has a pod gone, and why?",
            (("history", {"kind": "Pod", "name": world.evicted}),),
            lambda found: any(
                one.get("evictedFor", {}).get("taint", {}).get("key") == "example.com/broken"
                for one in found["items"]
            ),
            (f"{_EVENTS}{world.evicted}",), "while events are kept",
        ),
    ]  # fmt: skip


def _nodes(found: Answer) -> set[str]:
    return {one["nodeName"] for one in found["results"]}


class Cost(msgspec.Struct, frozen=True):
    """What a question took: calls of tools and requests, and the bytes of their answers."""

    question: Question
    calls: int
    call_bytes: int
    requests: int
    request_bytes: int


async def ask(client: Any, tool: str, **arguments: Any) -> Answer:
    """Return a tool's answer, which is JSON of bounded size."""
    answer = await client.call_tool(tool, arguments)
    text: str = answer.content[0].text
    assert text.startswith("{"), text
    assert len(text) <= 16_000
    found: Answer = json.loads(text)
    return found


async def costs(client: Any, service: Connection, world: Prepared) -> list[Cost]:
    """Ask all questions; an answer that is not right is an ``AssertionError`` with the question."""
    found = []
    headers = service.authorization()
    async with httpx.AsyncClient(base_url=service.server, headers=headers) as http:
        for one in questions(world):
            answers = [await ask(client, tool, **arguments) for tool, arguments in one.calls]
            assert one.right(*answers), (one.text, answers)
            assert len(answers) <= 2, one.text
            pages = [await http.get(path, timeout=60) for path in one.reads]
            assert all(page.is_success for page in pages), one.reads
            found.append(Cost(
                one, len(answers), sum(len(json.dumps(answer)) for answer in answers),
                len(pages), sum(len(page.content) for page in pages),
            ))  # fmt: skip
    return found


@asynccontextmanager
async def over_stdio(environment: Mapping[str, str], *options: str) -> AsyncIterator[Any]:
    """A client of the official SDK whose server runs over stdio."""
    import mcp
    from mcp.client.stdio import StdioServerParameters

    started = StdioServerParameters(
        command=sys.executable, args=["-m", "stowage", "mcp", *options], env=dict(environment)
    )
    async with mcp.Client(started) as client:
        yield client


@asynccontextmanager
async def over_http(url: str, token: str) -> AsyncIterator[Any]:
    """A client of the official SDK that shows a token."""
    import httpx2
    import mcp
    from mcp.client.streamable_http import streamable_http_client

    shown = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=shown, timeout=60) as http,
        mcp.Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


@contextmanager
def served(environment: Mapping[str, str], log: Path) -> Iterator[str]:
    """The URL of a server over streamable HTTP, which refuses whoever shows no token."""
    (port,) = free_ports(1)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "stowage", "mcp", "--http", str(port)],
            cwd=ROOT, env=dict(environment), stdout=output, stderr=output,
        )  # fmt: skip
    url = f"http://127.0.0.1:{port}/mcp"

    def refuses() -> bool:
        try:
            return httpx.post(url, json=HELLO, headers=TAKES, timeout=60).status_code == 401
        except httpx.TransportError:
            assert process.poll() is None, log.read_text()
            return False

    try:
        until(refuses, seconds=60, what="who shows no token is refused")
        yield url
    finally:
        process.terminate()
        process.wait(20)


def table(costs: list[Cost]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    yield "| | Question | Tool | Calls | kB | Requests | kB | Answer stands there |"
    yield "|---|---|---|---|---|---|---|---|"
    for number, one in enumerate(costs, 1):
        question = one.question
        tool = question.calls[0][0]
        sizes = (f"{size / 1000:.1f}" for size in (one.call_bytes, one.request_bytes))
        mine, others = sizes
        yield (
            f"| {number} | {question.text} | `{tool}` | {one.calls} | {mine} | {one.requests}"
            f" | {others} | {question.found} |"
        )
    yield (
        f"| | All | | {sum(one.calls for one in costs)}"
        f" | {sum(one.call_bytes for one in costs) / 1000:.0f}"
        f" | {sum(one.requests for one in costs)}"
        f" | {sum(one.request_bytes for one in costs) / 1000:.0f}"
        f" | {sum(one.question.found == 'yes' for one in costs)} of {len(costs)} |"
    )


async def _both(service: Connection, world: Prepared, log: Path) -> list[Cost]:
    environment = {
        **os.environ, "STOWAGE_SERVER": service.server, "STOWAGE_TOKEN": service.token,
    }  # fmt: skip
    async with over_stdio(environment) as client:
        tools = (await client.list_tools()).model_dump_json(exclude_none=True)
        found = await costs(client, service, world)
    with served(environment, log) as url:
        async with over_http(url, service.token) as client:
            again = await costs(client, service, world)
    assert [one.calls for one in again] == [one.calls for one in found]
    print(f"The descriptions of the tools have {len(tools)} characters.")
    return found


def main() -> None:
    """Prepare the cluster, ask, print the table."""
    service = Connection.find()
    with Client(service) as client, tempfile.TemporaryDirectory() as folder:
        world = Prepared(client, nodes=100, pods=1400)
        print(*table(asyncio.run(_both(service, world, Path(folder, "log")))), sep="\n")


if __name__ == "__main__":
    main()
