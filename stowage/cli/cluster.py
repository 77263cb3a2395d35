"""Commands that ask a service about pods and nodes."""

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

import click
import msgspec
import rich
import rich.console
import rich.live
import rich.markup

from stowage import Invalid
from stowage.cli import output
from stowage.client import APIError, AsyncClient, Client, Connection, State
from stowage.client.exchange import NOT_FOUND, Manifest, metadata
from stowage.client.fleet import Fleet
from stowage.client.questions import OWN, nodes_of
from stowage.library import documents

NOT_PLACED: Final = 4


class ServiceOptions(msgspec.Struct, frozen=True):
    """Which service: the options of the whole command."""

    kubeconfig: str = ""
    context: str = ""

    def connection(self) -> Connection:
        """Return the connection to the service.

        Raises:
            NoConnection: none is known.
        """
        return Connection.find(kubeconfig=self.kubeconfig, context=self.context)

    def client(self) -> Client:
        """Return a client with little patience, as a person at a terminal waits for it."""
        return Client(self.connection(), patience=15.0)


namespaced = click.option(
    "-n", "--namespace", default="", help="Namespace; default: the kubeconfig's."
)


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@namespaced
@click.option("--wait", is_flag=True, help="Wait until each pod has a node.")
@click.option("--timeout", type=click.FloatRange(min=0), help="The most seconds that --wait waits.")
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
    found = documents(*files)
    if not all(isinstance(one, dict) and isinstance(one.get("kind"), str) for one in found):
        raise Invalid(f"{', '.join(files)}: a document has no kind")
    pods = [one for one in found if one["kind"] == "Pod"]
    others = [one for one in found if one["kind"] != "Pod"]
    with wanted.client() as client:
        kinds = _Kinds(client)
        space = namespace or wanted.connection().namespace
        for one in others:
            kinds.apply(one, space)
        try:
            placed = list(client.place(pods, timeout=timeout if wait else 0.0, namespace=space))
        except ValueError as error:
            raise Invalid(f"{', '.join(files)}: {error}") from error
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
    nothing = f"The files hold no pod; {len(others)} other objects are applied."
    output.show(form, rows, rows, columns=columns, nothing=nothing)
    states = Counter(one.state for one in placed)
    if states[State.REFUSED]:
        sys.exit(1)
    if wait and states[State.PLACED] < len(placed):
        sys.exit(NOT_PLACED)


class _Kinds:
    """Finds the paths of kinds by the service's discovery."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[str, dict[str, Manifest]] = {}

    def apply(self, manifest: Manifest, namespace: str) -> None:
        """Apply an object on the server (server-side apply), which may be repeated.

        Raises:
            APIError: it is refused.
            Invalid: there is no such kind, or it has no name.
        """
        kind, version = manifest["kind"], str(manifest.get("apiVersion") or "v1")
        prefix = f"/{'apis' if '/' in version else 'api'}/{quote(version)}"
        if version not in self._known:
            try:
                listed = self._client.get(prefix)["resources"]
            except APIError as error:
                if error.code != NOT_FOUND:
                    raise
                listed = []
            self._known[version] = {one["kind"]: one for one in listed if "/" not in one["name"]}
        resource = self._known[version].get(kind)
        if resource is None:
            raise Invalid(f"{version} has no kind {kind}")
        try:
            meta = metadata(manifest)
        except ValueError as error:
            raise Invalid(f"{kind}: {error}") from error
        if not meta.get("name"):
            raise Invalid(f"{kind}: metadata.name: Required value")
        scope = f"/namespaces/{quote(meta.get('namespace') or namespace, safe='')}"
        name = quote(meta["name"], safe="")
        path = f"{prefix}{scope if resource['namespaced'] else ''}/{resource['name']}/{name}"
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
        rows = nodes_of(found)
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
        ("Remedies that were tried", ("text", "opens", "frees"), status.get("remedies") or []),
        ("Nodes", ("node", "total", "rejected by", "reason"), nodes_of(found)),
    ]  # fmt: skip
    for title, columns, rows in tables:
        if rows:
            output.print_table(output.table(columns, rows, title))


@click.group()
def plan() -> None:
    """Say what a change will do before it is made."""


@plan.command()
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
@click.option("--force", is_flag=True, help="Evict pods without a controller, too.")
@click.option("--delete-emptydir-data", is_flag=True, help="Evict pods with emptyDir volumes, too.")
@output.option
@click.pass_obj
def drain(
    wanted: ServiceOptions, nodes: Sequence[str], force: bool, delete_emptydir_data: bool, form: str
) -> None:
    """Say which pods a drain would evict, and where each would land. Changes nothing."""
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
@click.option("--pod", default="", help="Only decisions about this pod.")
@click.option("--node", default="", help="Only decisions that chose this node.")
@click.option("--outcome", type=click.Choice(["scheduled", "unschedulable", "error", "stale"]))
@click.option("--reason", default="", help="Only decisions whose message has this text.")
@click.option("--since", default="", help="Only decisions since 2026-01-31T12:00:00Z or such.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    help="List so many of the newest decisions; 0: all.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, as -o csv does.")
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
        nothing="No stored decision matches.",
    )  # fmt: skip


@click.command()
@click.option("--once", is_flag=True, help="Print the table once and exit, as without a terminal.")
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Show so many nodes.",
)
@output.option
@click.pass_obj
def top(wanted: ServiceOptions, once: bool, rows: int, form: str) -> None:
    """Show, live, how much the fullest nodes have left, and how many pods wait."""
    fleet = Fleet()
    live = not once and form in ("table", "wide") and output.is_terminal()
    connection = wanted.connection()

    async def show() -> None:
        async with AsyncClient(connection, patience=120.0 if live else 15.0) as client:
            if not live:
                await fleet.read(client)
                return
            with rich.live.Live(auto_refresh=False, screen=True) as screen:
                await fleet.follow(client, lambda: _draw(screen, fleet, rows))

    asyncio.run(show())
    found = fleet.rows()
    output.show(form, found, found if form == "csv" else found[:rows], columns=_COLUMNS)
    if form in ("table", "wide"):
        click.echo(fleet.sentence())


_COLUMNS: Final = ("node", "state", "pods", "cpu", "cpu %", "memory", "memory %")


def _draw(screen: rich.live.Live, fleet: Fleet, rows: int) -> None:
    shown = output.table(_COLUMNS, fleet.rows()[:rows])
    screen.update(rich.console.Group(fleet.sentence(), shown), refresh=True)


@click.command()
@click.option("--http", "port", type=int, help="Serve streamable HTTP on this port.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address for --http.")
@click.option("--write", is_flag=True, help="Offer tools that submit pods and apply plans, too.")
@click.pass_obj
def mcp(wanted: ServiceOptions, port: int | None, host: str, write: bool) -> None:
    """Serve AI agents by the Model Context Protocol: over stdio, or over HTTP.

    Over HTTP each client shows a token of the service and has its rights.
    """
    try:
        from stowage import mcp_server
    except ImportError as error:
        text = f"this needs the extra `mcp` ({error}): pip install 'stowage[mcp]'"
        raise click.ClickException(text) from error
    connection = wanted.connection()
    if port is None:
        mcp_server.server(connection, write=write).run()
        return
    made = mcp_server.server(connection, write=write, url=f"http://{host}:{port}/mcp")
    made.run("streamable-http", host=host, port=port, stateless_http=True, json_response=True)


COMMANDS: Final = (submit, why, top, plan, decisions, mcp)
