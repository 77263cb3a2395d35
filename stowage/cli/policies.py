"""The scheduler's configuration: what is in force, what it comes to, another one on trial."""

import difflib
from pathlib import Path
from typing import Any, Final

import click
import yaml

from stowage import _product
from stowage.cli import output
from stowage.cli.cluster import ServiceOptions
from stowage.client.exchange import Manifest
from stowage.client.questions import OWN
from stowage.library import configuration_of, raising_invalid

_PATH: Final = f"{OWN}/schedulerconfiguration"
_CANARIES: Final = f"{OWN}/canaries"


@click.group()
def config() -> None:
    """Read and change the scheduler's configuration."""


@config.command("get")
@click.option("--at", default="", help="The configuration in force at a time, or so long ago (2h).")
@output.option
@click.pass_obj
def get(wanted: ServiceOptions, at: str, form: str) -> None:
    """Print the configuration in force."""
    with wanted.client() as client:
        found = client.get(_PATH, at=at)
    output.show("yaml" if form in ("table", "wide") else form, found, [found], columns=("kind",))


@config.command()
@click.argument("file", required=False)
@output.option
@click.pass_obj
def effective(wanted: ServiceOptions, file: str | None, form: str) -> None:
    """List plugins by extension point with weight and origin: of FILE, else of those in force."""
    profiles = _effective(configuration_of(file) if file else _in_force(wanted))
    rows = [
        {
            "profile": profile.name,
            "plugin": row.plugin,
            "points": ", ".join(use.point for use in row.uses if use and use.order),
            "weight": next((use.weight for use in row.uses if use and use.weight), None),
            "origin": row.origin,
            "arguments": "; ".join(row.arguments),
        }
        for profile in profiles
        for row in profile.rows
    ]
    columns = ("profile", "plugin", "points", "weight", "origin")
    output.show(form, profiles, rows, columns=columns, wide=("arguments",))


@config.command("set")
@click.argument("file")
@click.option("--dry-run", is_flag=True, help="Check FILE, and change nothing.")
@output.option
@click.pass_obj
def put(wanted: ServiceOptions, file: str, dry_run: bool, form: str) -> None:
    """Put the configuration of FILE in force; it takes effect within a second."""
    document = configuration_of(file)
    with wanted.client() as client:
        found = client.request(
            "PUT", _PATH, body=document, repeats=True, dryRun="All" if dry_run else None
        )
    text = "is valid" if dry_run else "is in force"
    row = {"revision": found["metadata"].get("resourceVersion"), "state": text}
    output.show(form, found, [row], columns=("revision", "state"))


@config.command()
@click.argument("file")
@output.option
@click.pass_obj
def diff(wanted: ServiceOptions, file: str, form: str) -> None:
    """Say which plugins would act differently if FILE were in force."""
    before, after = _in_force(wanted), configuration_of(file)
    found = _product.module("scheduling.answers.effective").differences(
        _effective(before), _effective(after)
    )
    names = ("profile", "plugin", "point", "now", "then")
    rows = [dict(zip(names, one, strict=True)) for one in found]
    output.show(form, rows, rows, columns=names, nothing="Both act alike.")
    if form == "wide":
        old, new = (yaml.safe_dump(one).splitlines() for one in (before, after))
        click.echo("\n".join(difflib.unified_diff(old, new, "in force", file, lineterm="")))


def _effective(document: Manifest) -> Any:
    with raising_invalid():
        return _product.module("scheduling.answers.effective").effective(document)


def _in_force(wanted: ServiceOptions) -> Manifest:
    with wanted.client() as client:
        found = client.configuration()
    return {name: value for name, value in found.items() if name not in ("metadata", "status")}


@config.group()
def canary() -> None:
    """Try another configuration beside the one in force, then switch."""


def _show(form: str, items: list[Manifest], document: object) -> None:
    rows = [
        {
            "name": one["metadata"]["name"],
            "state": one["status"]["state"],
            "guarded until": one["status"].get("guardedUntil"),
            "message": one["status"].get("message"),
        }
        for one in items
    ]
    columns = ("name", "state", "guarded until", "message")
    output.show(form, document, rows, columns=columns, nothing="There is no canary.")


@canary.command("list")
@output.option
@click.pass_obj
def list_canaries(wanted: ServiceOptions, form: str) -> None:
    """List all canaries."""
    with wanted.client() as client:
        found = client.get(_CANARIES)
    _show(form, found["items"], found)


@canary.command()
@click.argument("file")
@click.option("--name", default="", help="Name of the canary.")
@click.option("--guard", default=600, show_default=True, help="Seconds to watch it once switched.")
@output.option
@click.pass_obj
def create(wanted: ServiceOptions, file: str, name: str, guard: int, form: str) -> None:
    """Put the configuration of FILE on trial."""
    body = {
        "apiVersion": "stowage.dev/v1",
        "kind": "Canary",
        "metadata": {"name": name},
        "spec": {"configuration": configuration_of(file), "guardSeconds": guard},
    }
    with wanted.client() as client:
        found = client.request("POST", _CANARIES, body=body)
    _show(form, [found], found)


def _step(verb: str, text: str) -> click.Command:
    @click.command(verb, help=text)
    @click.argument("name")
    @output.option
    @click.pass_obj
    def step(wanted: ServiceOptions, name: str, form: str) -> None:
        with wanted.client() as client:
            found = client.request("POST", f"{_CANARIES}/{name}/{verb}")
        _show(form, [found], found)

    return step


for _verb, _text in (
    ("switch", "Put a canary in force; it is rolled back if plugins fail or get slow."),
    ("return", "Roll back to the former configuration."),
    ("cancel", "End the trial."),
):
    canary.add_command(_step(_verb, _text))


@canary.command()
@click.argument("name")
@click.option("--html", metavar="FILE", help="Write the report to this HTML page as well.")
@output.option
@click.pass_obj
def report(wanted: ServiceOptions, name: str, html: str | None, form: str) -> None:
    """Compare what a canary would have decided since it was made with what happened."""
    with wanted.client() as client:
        found = client.get(f"{_CANARIES}/{name}/report")
        if html:
            page = client.get(f"{_CANARIES}/{name}/report", html=True)
            text = page if isinstance(page, str) else page["status"].get("report", "")
            Path(html).write_text(text, encoding="utf-8")
    rows = [
        {"figure": one["name"], "values": ", ".join(map(str, one["values"]))}
        for one in found["status"].get("figures") or ()
    ]
    output.show(form, found, rows, columns=("figure", "values"), nothing="Nothing came since.")


COMMANDS: Final = (config,)
