"""Commands that ask a service about pods and nodes."""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import rich
import rich.console
import rich.live
import rich.markup
import yaml

from stowage import _product
from stowage.cli import output
from stowage.client import AsyncClient, Client, Connection, State
from stowage.client.exchange import Manifest
from stowage.client.questions import OWN

NOT_PLACED: Final = 4
_REFRESH_SECONDS: Final = 1.0
_NODES_SHOWN: Final = 20


class ServiceOptions(msgspec.Struct, frozen=True):
    """Which service: the options of the whole command."""

    kubeconfig: str = ""
    context: str = ""

    def connection(self) -> Connection:
        """Return where it is.

        Raises:
            NoConnection: none is known.
        """
        return Connection.find(kubeconfig=self.kubeconfig, context=self.context)

    def client(self) -> Client:
        """Return a client; a person at a terminal waits no two minutes for a dead server."""
        return Client(self.connection(), patience=15.0)


namespaced = click.option(
    "-n", "--namespace", default="", help="By default that of the kubeconfig."
)


def documents(file: str) -> list[Any]:
    """Return the YAML or JSON documents of a file, ``-`` for standard input.

    Raises:
        ClickException: it cannot be read.
    """
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
        return [one for one in yaml.load_all(text, yaml.CSafeLoader) if one is not None]
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{file}: {' '.join(str(error).split())}") from error


def _objects(found: Sequence[Any], file: str) -> Iterator[Manifest]:
    """Yield manifests, those of lists one by one."""
    for one in found:
        if not isinstance(one, dict) or not isinstance(one.get("kind"), str):
            raise click.ClickException(f"{file}: a document has no kind")
        kind = one["kind"]
        if kind.endswith("List") and isinstance(one.get("items"), list):
            of_items = {} if kind == "List" else {"kind": kind.removesuffix("List")}
            yield from _objects([{**of_items, **item} for item in one["items"]], file)
        else:
            yield one


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@namespaced
@click.option("--wait", is_flag=True, help="Until each pod has a node.")
@click.option("--timeout", type=float, help="Seconds to wait at most.")
@output.option
@click.pass_obj
def submit(
    wanted: ServiceOptions,
    files: Sequence[str],
    namespace: str,
    wait: bool,
    timeout: float | None,
    form: str,
) -> None:
    """Create the other objects of the files, then the pods; print where each pod is placed.

    Other objects are applied, so that a file may be submitted again. Without --wait it is said of
    each pod that it was created.
    """
    found = [one for file in files for one in _objects(documents(file), file)]
    pods = [one for one in found if one["kind"] == "Pod"]
    with wanted.client() as client:
        kinds = _Kinds(client)
        space = namespace or wanted.connection().namespace
        for one in found:
            if one["kind"] != "Pod":
                kinds.apply(one, space)
        placed = list(client.place(pods, timeout=timeout if wait else 0.0, namespace=space))
    rows = [
        {
            "namespace": one.namespace,
            "pod": one.name,
            "state": "Created" if not wait and one.state is State.WAITING else one.state.value,
            "node": one.node,
            "message": one.message,
        }
        for one in placed
    ]
    columns = ("namespace", "pod", "state", "node", "message")
    output.show(form, rows, rows, columns=columns)
    states = Counter(one.state for one in placed)
    if states[State.REFUSED]:
        sys.exit(1)
    if wait and states[State.PLACED] < len(placed):
        sys.exit(NOT_PLACED)


class _Kinds:
    """At which path objects of a kind are, by the service's own discovery."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[str, dict[str, Manifest]] = {}

    def apply(self, manifest: Manifest, namespace: str) -> None:
        """Apply an object on the server (server-side apply), which may be repeated.

        Raises:
            APIError: it is refused.
            ClickException: there is no such kind.
        """
        version = str(manifest.get("apiVersion") or "v1")
        prefix = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        if version not in self._known:
            listed = self._client.get(prefix)["resources"]
            self._known[version] = {one["kind"]: one for one in listed if "/" not in one["name"]}
        resource = self._known[version].get(manifest["kind"])
        if resource is None:
            raise click.ClickException(f"{version} has no kind {manifest['kind']}")
        meta = manifest.get("metadata") or {}
        if not meta.get("name"):
            raise click.ClickException(f"{manifest['kind']}: metadata.name: Required value")
        scope = f"/namespaces/{meta.get('namespace') or namespace}"
        path = (
            f"{prefix}{scope if resource['namespaced'] else ''}/{resource['name']}/{meta['name']}"
        )
        self._client.request(
            "PATCH", path, body={"apiVersion": version, **manifest},
            content_type="application/apply-patch+yaml", repeats=True, fieldManager="stowage",
            force=True,
        )  # fmt: skip


@click.command()
@click.argument("pod")
@namespaced
@output.option
@click.pass_obj
def why(wanted: ServiceOptions, pod: str, namespace: str, form: str) -> None:
    """Say why a pod is where it is, or why it waits and what would help."""
    space, _, name = pod.rpartition("/")
    with wanted.client() as client:
        found = client.why(name, space or namespace, limit=10 if form == "table" else 500)
    if form not in ("table", "wide"):
        rows = _nodes_of(found)
        output.show(form, found, rows, columns=("node", "total", "rejected by", "reason"))
        return
    status = found["status"]
    node = (found.get("spec") or {}).get("nodeName")
    head = f"{found['metadata']['namespace']}/{found['metadata']['name']}: {status['state']}"
    click.echo(f"{head} on {node}" if node else head)
    if status.get("message"):
        click.echo(status["message"])
    for text in status.get("shortages") or ():
        click.echo(text)
    tables: list[tuple[str, Sequence[str], list[Manifest]]] = [
        ("Filters, in order", ("plugin", "rejected", "left"), status.get("funnel") or []),
        ("What stands in the way", ("plugin", "reasons", "nodes", "alone"), [
            {**one, "reasons": "; ".join(one["reasons"])} for one in status.get("blockers") or []
        ]),
        ("What would help, tried", ("text", "opens", "frees"), status.get("remedies") or []),
        ("Nodes", ("node", "total", "rejected by", "reason"), _nodes_of(found)),
    ]  # fmt: skip
    for title, columns, rows in tables:
        if rows:
            rich.print(output.table(columns, rows, title))


def _nodes_of(found: Manifest) -> list[Manifest]:
    """Return the page of nodes of an Explanation as rows."""
    page = found["status"].get("table") or {}
    statuses = page.get("statuses") or []
    rows = []
    for place, name in enumerate(page.get("name") or ()):
        row: Manifest = {"node": name, "rejected by": "", "reason": ""}
        totals = page.get("total") or []
        row["total"] = totals[place] if place < len(totals) else None
        for plugin, verdicts in (page.get("verdicts") or {}).items():
            verdict = statuses[verdicts[place]] if verdicts[place] < len(statuses) else None
            reasons = (verdict or {}).get("reasons") if isinstance(verdict, dict) else None
            if reasons:
                row["rejected by"] = row["rejected by"] or plugin
                row["reason"] = row["reason"] or "; ".join(reasons)
        rows.append(row)
    return rows


@click.group()
def plan() -> None:
    """Say what a change will do before it is made."""


@plan.command()
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
@click.option("--force", is_flag=True, help="Also pods that no controller would make again.")
@click.option("--delete-emptydir-data", is_flag=True, help="Also pods with emptyDir volumes.")
@output.option
@click.pass_obj
def drain(
    wanted: ServiceOptions, nodes: Sequence[str], force: bool, delete_emptydir_data: bool, form: str
) -> None:
    """Say who leaves when nodes are drained, and where each pod lands. Changes nothing."""
    change = {"nodes": list(nodes), "force": force, "deleteEmptyDirData": delete_emptydir_data}
    with wanted.client() as client:
        found = client.plan({"drain": change})
    status = found["status"]
    rows = [
        {
            "pod": one["pod"],
            "from": one.get("nodeName"),
            "after": one.get("afterSeconds"),
            "lands on": (one.get("landing") or {}).get("nodeName") or "",
            "held by": ", ".join(map(str, one.get("blockedBy") or ())),
            "why": one.get("cause"),
        }
        for one in status.get("leaving") or ()
    ] + [
        {"pod": one["pod"], "from": one.get("nodeName"), "why": f"stays: {one.get('message')}"}
        for one in status.get("staying") or ()
    ]
    columns = ("pod", "from", "after", "lands on", "held by", "why")
    output.show(form, found, rows, columns=columns, nothing="No pod leaves.")
    if form in ("table", "wide"):
        click.echo(", ".join(f"{count} {what}" for what, count in status["summary"].items()))


@click.command()
@namespaced
@click.option("--pod", default="", help="Of this pod.")
@click.option("--node", default="", help="That chose this node.")
@click.option("--outcome", type=click.Choice(["scheduled", "unschedulable", "error", "stale"]))
@click.option("--reason", default="", help="Whose message has this text.")
@click.option("--since", default="", help="A time, such as 2026-01-31T12:00:00Z.")
@click.option("--limit", default=100, show_default=True, help="So many of the newest; 0 for all.")
@click.option("--csv", "as_csv", is_flag=True, help="The same as -o csv.")
@output.option
@click.pass_obj
def decisions(
    wanted: ServiceOptions, namespace: str, pod: str, node: str, outcome: str | None, reason: str,
    since: str, limit: int, as_csv: bool, form: str,
) -> None:  # fmt: skip
    """List what the scheduler decided, the newest first."""
    query = {
        "namespace": namespace, "name": pod, "node": node, "outcome": outcome, "reason": reason,
        "since": since,
    }  # fmt: skip
    items: list[Manifest] = []
    with wanted.client() as client:
        token = ""
        while not limit or len(items) < limit:
            most = min(1000, limit - len(items)) if limit else 1000
            page = client.get(f"{OWN}/decisions", limit=most, **{**query, "continue": token})
            items += page["items"]
            token = page["metadata"].get("continue") or ""
            if not token:
                break
    rows = [
        {
            "at": one["at"],
            "pod": f"{one['pod']['namespace']}/{one['pod']['name']}",
            "outcome": one["outcome"],
            "node": one.get("nodeName"),
            "message": one.get("message"),
            "id": one["id"],
            "total": one.get("total"),
            "margin": one.get("margin"),
            "feasible": (one.get("nodes") or {}).get("feasible"),
            "profile": (one.get("profile") or {}).get("schedulerName"),
        }
        for one in items
    ]
    output.show(
        "csv" if as_csv else form, items, rows,
        columns=("at", "pod", "outcome", "node", "message"),
        wide=("id", "total", "margin", "feasible", "profile"),
        nothing="No such decision is kept.",
    )  # fmt: skip


@click.command()
@click.option("--once", is_flag=True, help="Print once and end, as where nobody looks.")
@click.option("--rows", default=_NODES_SHOWN, show_default=True, help="Nodes that are shown.")
@output.option
@click.pass_obj
def top(wanted: ServiceOptions, once: bool, rows: int, form: str) -> None:
    """Show the fleet: what the fullest nodes have left, and how many pods wait. Live."""
    fleet = Fleet()
    live = not once and form in ("table", "wide") and output.is_terminal()
    connection = wanted.connection()
    if live:
        with rich.live.Live(auto_refresh=False, screen=True) as screen:
            asyncio.run(fleet.follow(connection, lambda: _draw(screen, fleet, rows)))
        return
    asyncio.run(fleet.read(connection))
    found = fleet.rows()
    output.show(form, found, found if form == "csv" else found[:rows], columns=_COLUMNS)
    if form in ("table", "wide"):
        click.echo(fleet.sentence())


_COLUMNS: Final = ("node", "state", "pods", "cpu", "cpu %", "memory", "memory %")


def _draw(screen: rich.live.Live, fleet: "Fleet", rows: int) -> None:
    shown = output.table(_COLUMNS, fleet.rows()[:rows])
    screen.update(rich.console.Group(fleet.sentence(), shown), refresh=True)


class Fleet:
    """Nodes, and what the pods on them ask for, kept up to date by watches."""

    def __init__(self) -> None:
        self._nodes: dict[str, Manifest] = {}
        self._pods: dict[tuple[str, str], tuple[str, dict[str, int]]] = {}
        resources = _product.module("clusterstate.objects.rules.resources")
        self._pod_type = _product.module("clusterstate.objects.values.pod").Pod
        self._requests: Callable[[Any], dict[str, int]] = resources.pod_request_ints
        quantity = _product.module("clusterstate.objects.values.quantity")
        self._milli: Callable[[str], int] = quantity.milli_value
        self._value: Callable[[str], int] = quantity.value

    async def read(self, connection: Connection) -> None:
        """Read all nodes and pods once."""
        async with AsyncClient(connection, patience=15.0) as client:
            for path in ("/api/v1/nodes", "/api/v1/pods"):
                items, _ = await client.list_all(path)
                for one in items:
                    self.take(path, "ADDED", one)

    async def follow(self, connection: Connection, show: Callable[[], None]) -> None:
        """Read all nodes and pods, then each change; calls ``show`` each second, for ever."""
        async with AsyncClient(connection) as client, asyncio.TaskGroup() as tasks:

            async def following(path: str) -> None:
                async for event in client.watch(path):
                    self.take(path, event.type, event.object)

            for path in ("/api/v1/nodes", "/api/v1/pods"):
                tasks.create_task(following(path))
            while True:
                show()
                await asyncio.sleep(_REFRESH_SECONDS)

    def take(self, path: str, kind: str, manifest: Manifest) -> None:
        """Apply a change of a node or a pod to this copy of the fleet."""
        meta = manifest["metadata"]
        place = meta.get("namespace") or "", meta["name"]
        if path.endswith("nodes"):
            self._nodes.pop(meta["name"], None)
            if kind != "DELETED":
                self._nodes[meta["name"]] = manifest
            return
        self._pods.pop(place, None)
        ended = (manifest.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        if kind != "DELETED" and not ended:
            pod = msgspec.convert(manifest, self._pod_type, strict=False)
            node = (manifest.get("spec") or {}).get("nodeName") or ""
            self._pods[place] = node, self._requests(pod)

    def rows(self) -> list[Manifest]:
        """Return the nodes as rows, the fullest first."""
        used: dict[str, Counter[str]] = {name: Counter() for name in self._nodes}
        for node, requests in self._pods.values():
            if node in used:
                used[node].update({**requests, "pods": 1})
        found = [self._row(name, used[name]) for name in self._nodes]
        return sorted(found, key=lambda row: (-max(row["cpu %"], row["memory %"]), row["node"]))

    def _row(self, name: str, used: Counter[str]) -> Manifest:
        node = self._nodes[name]
        offers = (node.get("status") or {}).get("allocatable") or {}
        cpu, memory = self._milli(offers.get("cpu", "0")), self._value(offers.get("memory", "0"))
        conditions = (node.get("status") or {}).get("conditions") or ()
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
        cordoned = (node.get("spec") or {}).get("unschedulable")
        return {
            "node": name,
            "state": ("Ready" if ready else "NotReady") + (",Cordoned" if cordoned else ""),
            "pods": used["pods"],
            "cpu": f"{used['cpu'] / 1000:g}/{cpu / 1000:g}",
            "cpu %": 100.0 * used["cpu"] / cpu if cpu else 0.0,
            "memory": f"{used['memory'] >> 20}/{memory >> 20}Mi",
            "memory %": 100.0 * used["memory"] / memory if memory else 0.0,
        }

    def sentence(self) -> str:
        """Return a line with the numbers of nodes, pods and waiting pods."""
        waiting = sum(not node for node, _ in self._pods.values())
        return f"{len(self._nodes)} nodes, {len(self._pods)} pods, {waiting} of them wait"


@click.command()
@click.option("--http", "port", type=int, help="Serve streamable HTTP on this port of loopback.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where --http listens.")
@click.option("--write", is_flag=True, help="Have tools that submit pods and apply plans, too.")
@click.pass_obj
def mcp(wanted: ServiceOptions, port: int | None, host: str, write: bool) -> None:
    """Serve AI agents by the Model Context Protocol: over stdio, or over HTTP.

    Over HTTP each client shows a token of the service and has its rights.
    """
    try:
        from stowage import mcp_server
    except ImportError as error:
        raise click.ClickException(f"this needs the extra `mcp` ({error})") from error
    connection = wanted.connection()
    if port is None:
        mcp_server.server(connection, write=write).run()
        return
    made = mcp_server.server(connection, write=write, url=f"http://{host}:{port}/mcp")
    made.run("streamable-http", host=host, port=port, stateless_http=True, json_response=True)


COMMANDS: Final = (submit, why, top, plan, decisions, mcp)
