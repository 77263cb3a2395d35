"""Commands of this machine: the service, what needs its database, what needs no service at all."""

import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, NoReturn

import click
import httpx

import stowage
from stowage import _product
from stowage.cli import output
from stowage.client import connections

_ANYTHING: Final[dict[str, Any]] = {
    "allow_extra_args": True,
    "allow_interspersed_args": False,
    "ignore_unknown_options": True,
    "help_option_names": [],
}
_ROOM: Final = 1 << 30


def _manage(shown: str, *arguments: str) -> NoReturn:
    """Replace this process by a command of ``manage.py``, which calls itself ``shown``."""
    program = [sys.executable, str(_product.ROOT / "manage.py"), *arguments]
    sys.stdout.flush()
    os.environ["STOWAGE_PROGRAM"] = shown
    os.execv(sys.executable, program)  # noqa: S606  # our own program, as this user


def _passed_on(name: str, text: str, *command: str) -> click.Command:
    """Return a command that runs one of ``manage.py`` and passes all options on."""

    @click.command(name, context_settings=_ANYTHING, help=text, short_help=text)
    @click.pass_context
    def passing(context: click.Context) -> None:
        program = str(context.find_root().info_name)
        _manage(program if command == (name,) else f"{program} manage", *command, *context.args)

    return passing


tokens = click.Group("tokens", help="Make, list and revoke API tokens of this machine's service.")
for _name, _command, _text in (
    ("create", "createtoken", "Make a token for a user and print it; it cannot be shown again."),
    ("list", "listtokens", "List tokens: their users and when they expire."),
    ("revoke", "revoketoken", "Revoke tokens."),
    ("rotate", "rotatetoken", "Replace the administrator's token in the state directory."),
):
    tokens.add_command(_passed_on(_name, _text, _command))


@click.command()
@output.option
def doctor(form: str) -> None:
    """Say what is wrong with this installation, and what to do about it."""
    found = list(_checks())
    rows = [
        {"check": name, "state": "ok" if ok else "PROBLEM", "what": text}
        for name, ok, text in found
    ]
    output.show(form, rows, rows, columns=("check", "state", "what"))
    if not all(ok for _, ok, _ in found):
        sys.exit(1)


Check = tuple[str, bool, str]


def _checks() -> Iterator[Check]:
    kind = "wheel" if _product.IS_WHEEL else "checkout"
    yield "version", True, f"Stowage {stowage.__version__}, {kind} at {_product.ROOT}"
    supported = (3, 11) <= sys.version_info[:2] <= (3, 14)
    yield "Python", supported, f"{sys.version.split()[0]}; 3.11 to 3.14 are supported"
    yield _variables()
    places = _product.module("clusterstate.local.places")
    yield from _binary("PostgreSQL", "DATABASE_URL", places.postgres_binaries)
    yield from _binary("Redis", "REDIS_URL", places.redis_binary)
    state = connections.state_directory(os.environ)
    yield from _state(state)
    try:
        kept = _product.module("scheduling.engine.deciding").is_kept()
    except Exception as error:  # noqa: BLE001  # whatever is wrong with Numba here is the finding
        yield "compiled loops", False, f"cannot be loaded: {error}"
    else:
        later = "are compiled at the first start, in half a minute; until then decisions are slower"
        yield "compiled loops", True, "are compiled and stored" if kept else later
    plugins = sorted(one.name for one in entry_points(group="stowage.plugins"))
    for name in plugins:
        try:
            next(iter(entry_points(group="stowage.plugins", name=name))).load()
        except Exception as error:  # noqa: BLE001  # somebody else's package
            yield f"plugin {name}", False, f"{type(error).__name__}: {error}"
    yield "plugins", True, ", ".join(plugins) or "none is installed"
    yield from _service(state)


def _variables() -> Check:
    environment = _product.module("clusterstate.environment")
    try:
        _product.module("clusterstate.settings")  # which reads all of them
    except environment.BadSetting as error:
        return "variables", False, str(error)
    unknown = environment.unknown()
    return "variables", not unknown, "; ".join(unknown) or "each STOWAGE_* is a known setting"


def _binary(title: str, variable: str, find: Callable[[], Path]) -> Iterator[Check]:
    if os.environ.get(variable):
        yield title, True, f"the server of {variable}"
        return
    try:
        yield title, True, str(find())
    except RuntimeError as error:
        yield title, False, str(error)


def _state(state: Path) -> Iterator[Check]:
    if not state.exists():
        yield "state", True, f"{state} will be made by the first `stowage up`"
        return
    if not os.access(state, os.W_OK):
        yield "state", False, f"{state} cannot be written: set STOWAGE_STATE to a folder of yours"
        return
    free = shutil.disk_usage(state).free
    text = f"{state}, {free / (1 << 30):.1f} GiB free"
    yield (
        "state",
        free > _ROOM,
        text
        if free > _ROOM
        else f"{text}: little space is left; when the disk is full, nothing can be written",
    )
    if (token := state / "token").exists():
        private = not token.stat().st_mode & 0o077
        text = "only its owner reads them" if private else f"others may read {token}: chmod 600"
        yield "secrets", private, text


def _service(state: Path) -> Iterator[Check]:
    try:
        found, port = _readiness(state)
    except connections.NoConnection as error:
        yield "service", False, str(error)
        return
    except httpx.ConnectError as error:
        port = error.request.url.port
        yield "service", True, f"nothing answers on port {port}: `stowage up` starts it"
        return
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        yield "service", False, f"the program on the service's port does not answer: {error}"
        return
    lines = found.text.splitlines()
    wrong = [line for line in lines if line.startswith("[-]")]
    if found.is_success:
        yield "service", True, f"ready on port {port} of {socket.gethostname()}"
    elif not wrong:
        yield "service", False, f"another program uses port {port}: set STOWAGE_HTTP_PORT"
    else:
        yield "service", False, f"{'; '.join(wrong)}; its log is {state / 'stowage.log'}"


def _readiness(state: Path) -> tuple[httpx.Response, int | None]:
    """Ask the service for its health: at STOWAGE_HTTP_PORT, else where its kubeconfig says."""
    port, kubeconfig = os.environ.get("STOWAGE_HTTP_PORT"), state / "kubeconfig"
    at = connections.Connection(server=f"http://127.0.0.1:{port or 8080}")
    if not port and kubeconfig.exists():
        at = connections.from_kubeconfig([kubeconfig])
    found = httpx.get(f"{at.server}/readyz?verbose", timeout=5, trust_env=False, verify=at.tls())
    return found, found.url.port


COMMANDS: Final = (
    _passed_on("up", "Run the whole service here; Ctrl-C stops it, the data stays.", "up"),
    _passed_on("manage", "Run any management command: `stowage manage help` lists them."),
    _passed_on(
        "simulate", "Say where pods of files would be placed, without a service.", "simulate"
    ),
    _passed_on("replay", "Replay a trace or the recent past under other configurations.", "replay"),
    _passed_on("pack", "Pack pods into as few nodes as possible, and print a lower bound.", "pack"),
    _passed_on("backup", "Save everything that the database holds to a file.", "backup"),
    _passed_on("restore", "Replace everything that the database holds by a backup.", "restore"),
    tokens,
    doctor,
)
