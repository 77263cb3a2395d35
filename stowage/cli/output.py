"""What a command prints: a table for people, or a document for programs."""

import csv
import io
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import click
import msgspec
import rich.box
import rich.console
import rich.markup
import rich.table
import yaml

_PIPE_WIDTH: Final = 10_000
FORMS: Final = ("table", "wide", "json", "yaml", "csv")
Row = Mapping[str, object]
_Command = TypeVar("_Command", bound=Callable[..., Any])


def option(command: _Command) -> _Command:
    """Give a command the option ``-o``."""
    return click.option(
        "-o", "--output", "form", type=click.Choice(FORMS), default="table", show_default=True,
        help="Output format; csv has the columns of wide.",
    )(command)  # fmt: skip


def show(
    form: str,
    document: object,
    rows: Iterable[Row],
    *,
    columns: Sequence[str],
    wide: Sequence[str] = (),
    nothing: str = "",
) -> None:
    """Print a document in JSON or YAML, or rows that the caller made of it as a table.

    Args:
        form: one of ``FORMS``.
        document: what ``json`` and ``yaml`` print.
        rows: each with a value for each column.
        columns: the columns in every form of table.
        wide: further columns in the forms ``wide`` and ``csv``.
        nothing: the text in place of a table without rows.
    """
    if form == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))
        return
    if form == "yaml":
        builtin = msgspec.to_builtins(document)
        click.echo(yaml.safe_dump(builtin, sort_keys=False, allow_unicode=True), nl=False)
        return
    names = [*columns, *(wide if form != "table" else ())]
    if form == "csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _text(row.get(name)) for name in names} for row in rows)
        click.echo(text.getvalue(), nl=False)
        return
    found = table(names, rows)
    if not found.row_count and nothing:
        click.echo(nothing, err=True)
        return
    print_table(found)


def print_table(found: rich.table.Table) -> None:
    """Print a table: to a terminal as wide as that is, else with each row on one line."""
    width = None if is_terminal() else _PIPE_WIDTH
    rich.console.Console(width=width).print(found)


def table(names: Sequence[str], rows: Iterable[Row], title: str = "") -> rich.table.Table:
    """Return rows as a table; numbers stand to the right."""
    kept = [[row.get(name) for name in names] for row in rows]
    found = rich.table.Table(box=rich.box.SIMPLE_HEAD, title=title or None, title_justify="left")
    for place, name in enumerate(names):
        numbers = all(isinstance(row[place], int | float) for row in kept)
        found.add_column(
            name.upper(), justify="right" if numbers and kept else "left", overflow="fold"
        )
    for row in kept:
        found.add_row(*(rich.markup.escape(_text(value)) for value in row))
    return found


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def is_terminal() -> bool:
    """Return whether a person looks at what is printed."""
    return sys.stdout.isatty()
