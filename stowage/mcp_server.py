"""Answers for programs that reason: a Model Context Protocol server in front of a service.

Few tools, each described for who has not read the documentation. All of them read: nothing is
changed unless the server is started with ``--write``. Answers are bounded in size: long lists are
cut, with the number that was left out and a link to the whole. Over stdio the server asks as the
user of the kubeconfig; over HTTP each client shows a token of its own, which is passed on, so that
the service's rights decide what it is told.
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec
from mcp.server import MCPServer
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import AnyHttpUrl

import stowage
from stowage.client import APIError, AsyncClient, Connection, Unreachable
from stowage.client.exchange import Manifest
from stowage.client.fleet import Fleet
from stowage.client.questions import OWN, nodes_of

MOST_CHARACTERS: Final = 16_000
"""The longest answer in characters: some thousand tokens."""
_ITEMS: Final = (50, 20, 8, 3, 1)
"""Lists are cut to this many entries: the first number with which the answer is short enough."""
_LONGEST_TEXT: Final = 600
_MOST_NODES: Final = 10_000
_CONFIGURATION: Final = "kubescheduler.config.k8s.io/v1"
_LEFT_OUT: Final = frozenset({"managedFields", "selfLink"})
_INSTRUCTIONS: Final = (
    "Stowage places pods on nodes as Kubernetes' scheduler does, keeps every decision, and explains"
    " them. Ask `waiting` what does not fit, `why` about one pod, `nodes` how full they are,"
    " `headroom` what still fits, `what_if` and `plan` before a change is made, `pack` what fits if"
    " all pods are looked at together, `decisions` and `history` about the past and what is gone."
    " Answers are cut where they are long; `link` is the whole answer over the API."
)

Answer = dict[str, Any]


class _Verifier:
    """Checks a client's token by asking the service whose token it is."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the user's name with the token, ``None`` if the service does not know it."""
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        try:
            async with AsyncClient(_as(self._connection, token), patience=5.0) as client:
                found = await client.ask(path, review)
        except (APIError, Unreachable):
            return None
        user = found["status"]["userInfo"]["username"]
        return AccessToken(token=token, client_id=user, scopes=[], subject=user)


def _as(connection: Connection, token: str) -> Connection:
    return msgspec.structs.replace(connection, token=token, token_file="", certificate=None)


class _Server(MCPServer[Any]):
    """Refuses arguments that a tool does not have; the SDK's server would call it without them."""

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        for tool in await self.list_tools():
            has = tool.input_schema["properties"]
            unknown = sorted(arguments.keys() - has.keys())
            if tool.name == name and unknown:
                raise ToolError(f"{name} has no argument {unknown[0]!r}; it has {', '.join(has)}")
        return await super().call_tool(name, arguments, context)


def server(connection: Connection, *, write: bool = False, url: str = "") -> MCPServer[Any]:
    """Return the server.

    Args:
        connection: the service that is asked.
        write: whether there are tools that change something.
        url: where it is reached over HTTP; then each client has to show a token of the service,
            by which it asks. Empty: it asks as ``connection`` does (stdio).
    """
    made = _Server(
        name="stowage",
        version=stowage.__version__,
        instructions=_INSTRUCTIONS,
        website_url=connection.server,
        token_verifier=_Verifier(connection) if url else None,
        auth=AuthSettings(
            issuer_url=AnyHttpUrl(connection.server),
            resource_server_url=AnyHttpUrl(url),
            validate_token_resource=False,  # the service judges its tokens
        )
        if url
        else None,
        log_level="WARNING",
    )
    tools = _Tools(connection, by_token=bool(url))
    reading = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    for tool in (
        tools.why, tools.waiting, tools.nodes, tools.headroom, tools.what_if, tools.plan,
        tools.decisions, tools.history, tools.pack,
    ):  # fmt: skip
        made.add_tool(tool, annotations=reading, structured_output=False)
    if write:
        changing = ToolAnnotations(read_only_hint=False, destructive_hint=True)
        for change in (tools.submit, tools.apply_plan):
            made.add_tool(change, annotations=changing, structured_output=False)
    return made


class _Tools:
    """The tools: each docstring is what the program that asks is told."""

    def __init__(self, connection: Connection, *, by_token: bool) -> None:
        self._connection = connection
        self._by_token = by_token

    async def _answer(self, ask: Callable[[AsyncClient], Any], link: str, pick: Any = None) -> str:
        """Return a question's answer as bounded JSON, or what is wrong with the question."""
        connection = self._connection
        if self._by_token:
            token = get_access_token()
            if token is None:  # the server's middleware lets nobody without one come here
                return _bounded({"error": "no token was shown"}, link)
            connection = _as(connection, token.token)
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(AsyncClient(connection, patience=20.0))
            try:
                found = await ask(client)
            except (APIError, Unreachable) as error:
                code = getattr(error, "code", 503)
                return _bounded({"error": str(error), "code": code}, connection.server + link)
        return _bounded(pick(found) if pick else found, connection.server + link)

    def _in(self, namespace: str) -> str:
        return quote(namespace or self._connection.namespace, safe="")

    async def why(self, pod: str, namespace: str = "", node: str = "") -> str:
        """Why is this pod on its node, or why does it wait? With remedies that were tried.

        `funnel` tells how many nodes each filter left, `blockers` what stands in the way on how
        many nodes, `remedies` what would let the pod in, `podGroup` and `shortages` what its group
        and its claims lack, `choice` why its node won. `nodes` are the best ten, or the pod's own
        and the one that is asked about by `node`: scores of each plugin, or what rejects it.
        """
        path = f"{OWN}/namespaces/{self._in(namespace)}/pods/{quote(pod, safe='')}/why"

        async def explained(client: AsyncClient) -> Any:
            try:
                found = await client.get(path, limit=_MOST_NODES if node else 10)
            except APIError as error:
                if error.code == 404:
                    error.args = (f"{error}; `history` says what became of it",)
                raise
            rows = nodes_of(found)
            if node:
                own = found["spec"].get("nodeName")
                rows = [one for one in rows if one["node"] in (node, own)]
            found["status"].pop("table", None)
            found["status"]["nodes"] = rows
            return found

        return await self._answer(explained, path)

    async def waiting(self, namespace: str = "", remedies: bool = False) -> str:  # noqa: FBT001
        """Which pods wait? Grouped by what stands in their way, the largest group first.

        `remedies` adds what would help each group, which takes longer.
        """
        scope = f"/namespaces/{self._in(namespace)}" if namespace else ""
        path = f"{OWN}{scope}/waitinggroups"
        return await self._answer(
            lambda client: client.get(path, remedies=remedies or None), path, lambda f: f["items"]
        )

    async def nodes(self, labels: str = "") -> str:
        """How full are the nodes, the fullest first: what pods ask for, of what there is.

        `labels`: of some nodes only, such as topology.kubernetes.io/zone=a.
        """

        async def read(client: AsyncClient) -> Any:
            fleet = Fleet()
            await fleet.read(client, labels)
            return {"summary": fleet.sentence(), "items": fleet.rows()}

        return await self._answer(read, f"/api/v1/nodes?{urlencode({'labelSelector': labels})}")

    async def headroom(
        self, cpu: str = "", memory: str = "", pod: dict[str, Any] | None = None
    ) -> str:
        """How many more pods fit, and what blocks the next one?

        Of a pod that asks for `cpu` and `memory` (quantities such as 500m and 2Gi), or of the
        manifest `pod`; without any of them, of the usual shapes.
        """
        path = f"{OWN}/headroom"
        if not (cpu or memory or pod):
            return await self._answer(lambda client: client.get(path), path, lambda f: f["items"])
        asked = pod or stowage.pod("headroom", cpu=cpu, memory=memory)
        return await self._answer(lambda client: client.headroom(asked), path, _status)

    async def what_if(
        self,
        pods: list[dict[str, Any]],
        add: list[dict[str, Any]] | None = None,
        delete: list[dict[str, Any]] | None = None,
        configuration: dict[str, Any] | None = None,
    ) -> str:
        """Where would these pods (manifests) go in the cluster as it is now? Nothing is changed.

        `add`: objects that are added first, such as nodes; `delete`: objects that are taken away
        first ({"kind": "Node", "name": "node-1"}); `configuration`: a KubeSchedulerConfiguration in
        place of the one in force.
        """
        spec: Manifest = {"pods": pods, "objects": add or [], "delete": delete or []}
        if configuration:
            known = {"apiVersion": _CONFIGURATION, "kind": "KubeSchedulerConfiguration"}
            spec["configuration"] = {**known, **configuration}
        spec["explain"] = "summary" if len(pods) == 1 else "none"
        return await self._answer(
            lambda client: client.simulate(spec), f"{OWN}/simulations", _status
        )

    async def plan(
        self, drain: list[str] | None = None, changes: list[dict[str, Any]] | None = None
    ) -> str:
        """What would a change do: who leaves, where does each pod land, who is stuck?

        `drain`: names of nodes. `changes`: of any kind, such as {"cordon": {"nodes": ["a"]}},
        {"taint": {"selector": "zone=a", "taints": [{"key": "k", "effect": "NoExecute"}]}},
        {"scale": {"kind": "Deployment", "namespace": "default", "name": "web", "replicas": 5}},
        {"delete": {"nodes": ["a"]}}, {"configuration": {...}}. Nothing is changed.
        """
        whole = [*([{"drain": {"nodes": drain}}] if drain else []), *(changes or [])]
        return await self._answer(lambda client: client.plan(*whole), f"{OWN}/plans", _status)

    async def decisions(
        self,
        pod: str = "",
        namespace: str = "",
        node: str = "",
        outcome: str = "",
        reason: str = "",
        since: str = "",
        limit: int = 20,
    ) -> str:
        """What did the scheduler decide, the newest first?

        Filters: a pod's name, a namespace, the node that was chosen, the outcome (scheduled,
        unschedulable, error, stale), a text in the message, a time (2026-01-31T12:00:00Z).
        """
        asked = {
            "name": pod, "namespace": namespace, "node": node, "outcome": outcome,
            "reason": reason, "since": since, "limit": max(1, min(limit, 100)),
        }  # fmt: skip
        kept = {name: value for name, value in asked.items() if value}
        return await self._answer(
            lambda client: client.get(f"{OWN}/decisions", **kept),
            f"{OWN}/decisions?{urlencode(kept)}",
            lambda found: found["items"],
        )

    async def history(self, kind: str, name: str, namespace: str = "", at: str = "") -> str:
        """What changed of an object, when and by whom? `kind` such as Pod or Node.

        With `at`, a time or how long ago (2h, 30m), the object as it was then; of pods and nodes.
        """
        if at:
            plurals = {"pod": "pods", "node": "nodes"}
            plural = plurals.get(kind.lower().removesuffix("s"), kind.lower())
            scope = f"/namespaces/{self._in(namespace)}" if plural == "pods" else ""
            path = f"/api/v1{scope}/{quote(plural, safe='')}/{quote(name, safe='')}"
            return await self._answer(lambda client: client.get(path, at=at), f"{path}?at={at}")
        asked = {"kind": kind, "name": name, "limit": 20}
        if namespace or kind.lower() == "pod":
            asked["namespace"] = namespace or self._connection.namespace
        path = f"{OWN}/changes"
        return await self._answer(
            lambda client: client.get(path, **asked), f"{path}?{urlencode(asked)}"
        )

    async def pack(
        self,
        pods: list[dict[str, Any]] | None = None,
        nodes: list[dict[str, Any]] | None = None,
        move: bool = False,  # noqa: FBT001
    ) -> str:
        """Where do pods go if all of them are looked at together, with a bound that none exceeds?

        Without `nodes` the pods that wait in the cluster, and `pods` (manifests) beside them; with
        `nodes` (manifests) `pods` on these alone. `move`: pods that run and have an owner may move
        as well, so that nodes are emptied. Nothing is changed.
        """
        if nodes is None:
            spec = {"pods": pods or [], "move": "ToEmptyNodes" if move else "Never"}
            path = f"{OWN}/packings"
            document = {"apiVersion": "stowage.dev/v1", "kind": "Packing", "spec": spec}
            return await self._answer(lambda client: client.ask(path, document), path, _status)
        cluster = stowage.Cluster(nodes)
        try:
            found = await asyncio.to_thread(stowage.pack, cluster, pods or (), move=move)
        except stowage.Invalid as error:
            found = {"error": str(error)}
        return _bounded(found, "")

    async def submit(self, pods: list[dict[str, Any]], seconds: float = 30.0) -> str:
        """Create pods (manifests) and say where each was placed. This changes the cluster."""

        async def placing(client: AsyncClient) -> list[Answer]:
            return [
                msgspec.to_builtins(one)
                async for one in client.place(pods, timeout=max(0.0, min(seconds, 120.0)))
            ]

        return await self._answer(placing, "/api/v1/pods")

    async def apply_plan(self, changes: list[dict[str, Any]]) -> str:
        """Carry changes out, as `plan` predicts them. This changes the cluster.

        The plan is made again and applied at once; its name and state are the answer.
        """

        async def applying(client: AsyncClient) -> Any:
            document = {
                "apiVersion": "stowage.dev/v1", "kind": "Plan", "spec": {"changes": changes},
            }  # fmt: skip
            made = await client.request("POST", f"{OWN}/plans", body=document)
            name = made["metadata"]["name"]
            applied = await client.request("POST", f"{OWN}/plans/{name}/apply")
            return {"name": name, "operation": (applied.get("status") or {}).get("operation")}

        return await self._answer(applying, f"{OWN}/plans")


def _status(found: Answer) -> Any:
    return found.get("status", found)


def _bounded(answer: Any, link: str) -> str:
    """Return an answer as JSON of at most ``MOST_CHARACTERS``, with a link to the whole."""
    head = answer if isinstance(answer, dict) else {"items": answer}
    for most in _ITEMS:
        text = json.dumps({**_cut(head, most), "link": link}, ensure_ascii=False)
        if len(text) <= MOST_CHARACTERS:
            return text
    keys = list(head)[:_LONGEST_TEXT]
    return json.dumps({"error": "the answer is too long", "has": keys[:50], "link": link})


def _cut(value: Any, most: int) -> Any:
    """Return a value with ``most`` entries in each list, and how many more there were."""
    if isinstance(value, list):
        kept = [_cut(one, most) for one in value[:most]]
        return [*kept, f"... {len(value) - most} more"] if len(value) > most else kept
    if isinstance(value, dict):
        given = {name: one for name, one in value.items() if name not in _LEFT_OUT}
        # A map of nodes or pods is cut as a list is; documents have few fields.
        names = list(given)[: max(most, 30)]
        found = {name: _cut(given[name], most) for name in names}
        if len(given) > len(names):
            found["..."] = f"{len(given) - len(names)} more"
        return found
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return value[:_LONGEST_TEXT] + "..."
    return value
