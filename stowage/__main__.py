"""The command ``stowage``; ``python -m stowage`` in a checkout."""

import os
import sys
from typing import NoReturn

import click

import stowage
from stowage import _product

_ANYTHING = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def _manage(*arguments: str) -> NoReturn:
    """Become the service's management command of that name."""
    program = [sys.executable, str(_product.ROOT / "manage.py"), *arguments]
    os.execv(sys.executable, program)  # noqa: S606  # our own program, as this user


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(stowage.__version__, message="Stowage %(version)s")
def main() -> None:
    """Decide like Kubernetes' scheduler; keep and explain every decision."""


@main.command()
def up() -> None:
    """Run the whole service on this machine; Ctrl-C stops it, the data stays."""
    _manage("up")


@main.command(context_settings=_ANYTHING)
@click.pass_context
def manage(context: click.Context) -> None:
    """Run one of the service's management commands; `stowage manage help` lists them."""
    _manage(*context.args)


if __name__ == "__main__":
    main()
