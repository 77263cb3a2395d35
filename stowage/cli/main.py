"""The command line: options of all commands, exit codes, errors in a sentence.

Exit codes: 0 done; 1 refused or failed; 2 the command line is wrong; 3 no service is known or none
answers; 4 not all pods have a node.
"""

from typing import Any, Final

import click

import stowage
from stowage.cli import cluster, machine, policies
from stowage.client import APIError, NoConnection, Unreachable

UNAUTHORIZED: Final = 401
_EPILOG: Final = (
    "Exit codes: 0 done; 1 refused or failed; 2 wrong command line; 3 no service is known or none"
    " answers; 4 not all pods have a node. The service is found by STOWAGE_SERVER, STOWAGE_TOKEN"
    " and STOWAGE_CA, by KUBECONFIG, by `stowage up` on this machine, or in ~/.kube/config."
)


class _NotReached(click.ClickException):
    exit_code = 3


class _Group(click.Group):
    """Prints a sentence for wrong files and for errors of requests to a service."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except stowage.Invalid as error:
            raise click.ClickException(str(error)) from error
        except APIError as error:
            text = str(error)
            if error.code == UNAUTHORIZED:
                text += ": no token was sent, or the token is unknown, revoked or expired"
            raise click.ClickException(text) from error
        except (NoConnection, Unreachable) as error:
            raise _NotReached(str(error)) from error


@click.group(cls=_Group, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(stowage.__version__, message="Stowage %(version)s")
@click.option("--kubeconfig", default="", metavar="FILE", help="The kubeconfig to use.")
@click.option("--context", "context_name", default="", metavar="NAME", help="One of its contexts.")
@click.pass_context
def main(context: click.Context, kubeconfig: str, context_name: str) -> None:
    """Decide like Kubernetes' scheduler; keep and explain every decision."""
    context.obj = cluster.ServiceOptions(kubeconfig=kubeconfig, context=context_name)


for _command in (*cluster.COMMANDS, *policies.COMMANDS, *machine.COMMANDS):
    main.add_command(_command)


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the shell's completion of commands: eval "$(stowage completion bash)"."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(main, {}, "stowage", "_STOWAGE_COMPLETE").source())


def kubectl() -> None:
    """Run as kubectl's plugin: `kubectl stowage why POD`."""
    main(prog_name="kubectl stowage")
