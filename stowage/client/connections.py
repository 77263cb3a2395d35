"""Where the server is, and who asks.

In this order: ``STOWAGE_SERVER`` with ``STOWAGE_TOKEN`` or ``STOWAGE_TOKEN_FILE`` and
``STOWAGE_CA``; the files of ``KUBECONFIG``; the kubeconfig that ``stowage up`` has made in its
state directory; ``~/.kube/config``.
"""

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from stowage import _product

SERVER: Final = "STOWAGE_SERVER"


class NoConnection(Exception):
    """No server is known, or its entry in a kubeconfig cannot be used."""


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """A server, and the credentials that it gets.

    ``server``: ``https://host:port``. ``token_file`` is read for each request, since tokens are
    replaced. ``ca``: path or text (PEM) of the certificates that sign the server's; empty for those
    of the system. ``certificate``: paths of the client's own certificate and its key.
    """

    server: str
    token: str = ""
    token_file: str = ""
    ca: str = ""
    verify: bool = True
    certificate: tuple[str, str] | None = None
    namespace: str = "default"

    @staticmethod
    def find(
        *, context: str = "", kubeconfig: str = "", environment: Mapping[str, str] | None = None
    ) -> "Connection":
        """Return the connection that the environment names.

        Args:
            context: of the kubeconfig, in place of its ``current-context``.
            kubeconfig: its path, before all else.
            environment: in place of the process's own.

        Raises:
            NoConnection: there is none; the message says what to set.
        """
        known = os.environ if environment is None else environment
        if not kubeconfig and not context and (server := known.get(SERVER)):
            return Connection(
                server=server.rstrip("/"),
                token=known.get("STOWAGE_TOKEN", ""),
                token_file=known.get("STOWAGE_TOKEN_FILE", ""),
                ca=known.get("STOWAGE_CA", ""),
                namespace=known.get("STOWAGE_NAMESPACE", "default"),
            )
        given = kubeconfig or known.get("KUBECONFIG", "")
        own = state_directory(known) / "kubeconfig"
        files = [Path(one).expanduser() for one in given.split(os.pathsep) if one] or [
            one for one in (own, Path.home() / ".kube/config") if one.exists()
        ][:1]
        if not files:
            raise NoConnection(
                f"No server is known: set {SERVER} and STOWAGE_TOKEN, or KUBECONFIG, or start one"
                " here with `stowage up`."
            )
        return from_kubeconfig(files, context=context)

    def tls(self) -> ssl.SSLContext | bool:
        """Return the settings for checking the server's certificate, False if it is not HTTPS.

        Raises:
            NoConnection: the server is no such URL, or a certificate cannot be used.
        """
        scheme, _, place = self.server.partition("://")
        if scheme not in ("http", "https") or not place:
            raise NoConnection(f"the server {self.server!r} is not a URL such as https://host:8443")
        if scheme == "http":
            return False  # there is none; else each client would load the system's certificates
        if not self.verify:
            context = ssl._create_unverified_context()  # noqa: S323  # the kubeconfig says so
        else:
            is_text = "-----BEGIN" in self.ca
            try:
                context = ssl.create_default_context(
                    cafile=None if is_text or not self.ca else self.ca,
                    cadata=self.ca if is_text else None,
                )
            except OSError as error:
                raise NoConnection(f"the certificates of {self.server}: {error}") from error
        if self.certificate is not None:
            try:
                context.load_cert_chain(*self.certificate)
            except OSError as error:
                files = " and ".join(self.certificate)
                raise NoConnection(f"the client's certificate, {files}: {error}") from error
        return context

    def authorization(self) -> dict[str, str]:
        """Return the header that names who asks; empty without a token.

        Raises:
            NoConnection: the token cannot be read, or has a character that no header has.
        """
        token = self.token
        if self.token_file:
            try:
                token = Path(self.token_file).read_text(errors="replace")
            except OSError as error:
                raise NoConnection(f"the token: {self.token_file}: {error.strerror}") from error
        token = token.strip()
        if not (token.isascii() and (token.isprintable() or not token)):
            place = self.token_file or "it"
            raise NoConnection(f"the token: {place} has characters that are not printable ASCII")
        return {"Authorization": f"Bearer {token}"} if token else {}


def state_directory(environment: Mapping[str, str]) -> Path:
    """Return the state directory of ``stowage up`` (rule: ``clusterstate.local.places``)."""
    if named := environment.get("STOWAGE_STATE"):
        return Path(named).expanduser()
    found = _product.module("clusterstate.local.places").default_state(_product.ROOT)
    assert isinstance(found, Path)
    return found


def from_kubeconfig(files: Iterable[Path], *, context: str = "") -> Connection:
    """Return the connection of kubeconfig files; an entry in several files counts in the first.

    Raises:
        NoConnection: naming the file, or the context, cluster or user that cannot be used.
    """
    documents = [(one, _read(one)) for one in files]
    chosen = context or next(
        (found["current-context"] for _, found in documents if found.get("current-context")), ""
    )
    if not chosen:
        raise NoConnection(
            f"{documents[0][0]}: the kubeconfig has no current-context; name a context"
        )
    _, about = _named(documents, "contexts", "context", chosen)
    home, cluster = _named(documents, "clusters", "cluster", about.get("cluster"))
    folder, user = _named(documents, "users", "user", about.get("user"))
    for method in ("exec", "auth-provider"):
        if method in user:
            raise NoConnection(
                f"{folder}: user {about.get('user')}: {method} is not supported by this client: set"
                " STOWAGE_TOKEN and STOWAGE_SERVER instead"
            )
    if not isinstance(server := cluster.get("server"), str):
        raise NoConnection(f"{home}: cluster {about.get('cluster')}: there is no server")
    certificate = None
    if "client-certificate" in user or "client-certificate-data" in user:
        certificate = (
            _path(user, "client-certificate", folder),
            _path(user, "client-key", folder),
        )
    ca = _text(cluster, "certificate-authority-data", home)
    return Connection(
        server=server.rstrip("/"),
        token=str(user.get("token") or ""),
        token_file=_beside(user.get("tokenFile"), folder) if "token" not in user else "",
        ca=ca or _beside(cluster.get("certificate-authority"), home),
        verify=not cluster.get("insecure-skip-tls-verify"),
        certificate=certificate,
        namespace=about.get("namespace") or "default",
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(path.read_text())
    except OSError as error:
        raise NoConnection(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise NoConnection(f"{path}: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict):
        raise NoConnection(f"{path}: is no kubeconfig")
    return found


def _named(
    documents: list[tuple[Path, dict[str, Any]]], plural: str, one: str, name: object
) -> tuple[Path, dict[str, Any]]:
    for path, document in documents:
        entries = document.get(plural)
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and entry.get("name") == name:
                found = entry.get(one) or {}
                if isinstance(found, dict):
                    return path, found
    raise NoConnection(f"{documents[0][0]}: there is no {one} {name}")


def _beside(value: object, file: Path) -> str:
    """Return a path in a kubeconfig, which is relative to its folder; empty if there is none."""
    return str(file.parent / str(value)) if value else ""


def _text(entry: Mapping[str, Any], field: str, file: Path) -> str:
    if not (given := entry.get(field)):
        return ""
    try:
        return base64.b64decode(given, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, TypeError) as error:
        raise NoConnection(f"{file}: {field}: {error}") from error


def _path(user: Mapping[str, Any], field: str, file: Path) -> str:
    """Return the path of a user's certificate or key; OpenSSL needs text in a private file.

    Raises:
        NoConnection: there is neither.
    """
    if text := _text(user, f"{field}-data", file):
        with tempfile.NamedTemporaryFile("w", prefix="stowage-", delete=False) as kept:
            kept.write(text)
        return kept.name
    if path := _beside(user.get(field), file):
        return path
    raise NoConnection(f"{file}: there is no {field}")
