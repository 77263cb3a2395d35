"""The audit log: who requested what, from where, and the answer, in Kubernetes' format.

::

    request -> opened() -> record_user() (sets the level; refused if the log is full) -> work
            -> answered() -> queue -> one thread: lines -> file, table

The thread of a request only appends to a queue. One thread of the process makes the lines, Events
of audit.k8s.io/v1, and writes many at once. The queue is bounded by number and by bytes. Entries
that do not fit are counted and dropped, unless AUDIT_WHEN_FULL is ``refuse``: then requests that
would be written are refused with 503 until there is room. While the database does not answer, lines
wait, too.

Requests that are refused with 401 or 403 are written at Metadata at least, whatever the policy.
Secrets are never written (`clusterstate.objects.rules.audit_policy`): of the headers only the user
agent is read; forms and answers of pages are not.
"""

import contextlib
import random
import threading
import time
import uuid
from collections import deque
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

import msgspec
import structlog
from django.conf import settings
from django.db import connection

from api.server import audit_file, connections
from api.server.audit_events import LARGEST_BODY, AuditedRequest, line_of
from api.server.scopes import Scope, Send, raw_header
from clusterstate.access.policy import Policy as Roles
from clusterstate.access.rules import Attributes
from clusterstate.actions.loops.aside import is_an_objects_fault
from clusterstate.actions.past import audit_log
from clusterstate.actions.past.audit_log import AuditLine
from clusterstate.admission.request import User
from clusterstate.middleware import DID, SESSION_USER, SIGN_IN
from clusterstate.objects.rules import audit_policy
from clusterstate.objects.rules.audit_policy import (
    COMPLETE,
    METADATA,
    NONE,
    RECEIVED,
    REQUEST,
    REQUEST_RESPONSE,
    STARTED,
    Policy,
    Verdict,
)
from clusterstate.objects.values import causes
from clusterstate.objects.values.errors import ServiceUnavailable
from clusterstate.telemetry.metrics import audit as metrics

logger = structlog.get_logger(__name__)


_VARIANT: Final = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))
"""What the digit of a UUID's variant becomes (RFC 9562)."""
MOST: Final = 10_000
MOST_BYTES: Final = 64 << 20
"""How many entries, and bytes of bodies, may wait to be written."""
_AT_ONCE: Final = 2000
_EVERY_SECONDS: Final = 0.5
_REFUSALS: Final = frozenset({401, 403})
_AT_LEAST: Final = Verdict(METADATA, frozenset({RECEIVED}))
_OVERWRITE_SECONDS: Final = 60.0


class _Log:
    """The waiting lines, and the thread that writes them."""

    def __init__(self) -> None:
        self._queue: deque[AuditedRequest] = deque()
        self._lines: list[AuditLine] = []
        self._lines_of_file: list[AuditLine] = []
        self._bytes = 0
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._wake = threading.Event()
        self._ending = False
        self._thread: threading.Thread | None = None
        self._complained_at = 0.0
        self._file: audit_file.File | None = None
        self.policy: Policy = audit_policy.DEFAULT

    def start(self) -> None:
        """Read the settings and start the thread."""
        self.policy = configured_policy()
        self._file = audit_file.configured()
        self._ending = False
        self._thread = threading.Thread(target=self._live, name="audit", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write the waiting lines, and end the thread."""
        self._ending = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(5.0)
            self._thread = None

    def is_full(self) -> bool:
        """Return whether the queue has no room for another entry, by number or by bytes."""
        return len(self._queue) + self._unwritten() >= MOST or self._bytes >= MOST_BYTES

    def _unwritten(self) -> int:
        """Return how many lines wait for the table or for the file, whichever is further behind."""
        return max(len(self._lines), len(self._lines_of_file))

    def put(self, entry: AuditedRequest) -> None:
        """Queue an entry; drop it if the queue is full."""
        size = len(entry.request) + len(entry.response)
        with self._lock:
            if self.is_full():
                metrics.dropped.of("queue").add()
                return
            self._queue.append(entry)
            self._bytes += size

    def _live(self) -> None:
        while not self._ending:
            self._wake.wait(_EVERY_SECONDS)
            self._wake.clear()
            try:
                self.flush()
            except Exception:  # the thread must survive: it is the only writer
                logger.exception("audit_not_written")
        self.flush()
        connection.close()

    def flush(self) -> None:
        """Write the waiting lines; later ones wait for the next call.

        Queries for each few thousand lines.
        """
        with self._writing:
            for _ in range(0, len(self._queue) + self._unwritten(), _AT_ONCE):
                self._take()
                written = [self._append_to_file(), self._write()]
                if not all(written):
                    break

    def _take(self) -> None:
        new_lines: list[AuditLine] = []
        room = _AT_ONCE - self._unwritten()
        while self._queue and len(new_lines) < room:
            entry = self._queue.popleft()
            with self._lock:
                self._bytes -= len(entry.request) + len(entry.response)
            try:
                new_lines.append(line_of(entry))
            except Exception:
                logger.exception("audit_line_failed", audit_id=entry.id)
                metrics.dropped.of("error").add()
        if self._file is not None:
            self._lines_of_file += new_lines
        if settings.AUDIT_KEEP_HOURS:
            self._lines += new_lines

    def _append_to_file(self) -> bool:
        """Append the lines to the file; False if that must be retried.

        Lines that the disk refuses are dropped and counted, unless AUDIT_WHEN_FULL is ``refuse``.
        """
        lines = self._lines_of_file
        if self._file is None or not lines:
            return True
        try:
            self._file.append([line.text for line in lines])
            metrics.written.of("file").add(len(lines))
        except OSError as error:
            self._complain("audit_file_failed", error)
            if settings.AUDIT_WHEN_FULL == "refuse":
                return False
            metrics.dropped.of("file").add(len(lines))
        lines.clear()
        return True

    def _write(self) -> bool:
        """Write the lines to the table; False if that must be retried.

        A line that the table refuses is left out, so that later ones are written.
        """
        some = len(self._lines)
        while self._lines:
            tried = self._lines[:some]
            try:
                with connections.used():
                    audit_log.append(tried)
            except Exception as error:
                if not is_an_objects_fault(error):
                    self._complain("audit_table_failed", error)
                    return False
                if len(tried) > 1:
                    some = len(tried) // 2
                    continue
                logger.exception("audit_line_failed", audit_id=str(tried[0].audit_id))
                metrics.dropped.of("error").add()
            else:
                metrics.written.of("table").add(len(tried))
            del self._lines[: len(tried)]
            some = 2 * some
        return True

    def _complain(self, what: str, error: Exception) -> None:
        if time.monotonic() - self._complained_at > _OVERWRITE_SECONDS:
            self._complained_at = time.monotonic()
            logger.error(what, error=str(error).strip())


log = _Log()


def configured_policy() -> Policy:
    """Return the policy of AUDIT_POLICY_FILE, or the default.

    Raises:
        PolicyError, OSError: the file has no valid policy.
    """
    path = settings.AUDIT_POLICY_FILE
    if not path:
        return audit_policy.DEFAULT
    with open(path, encoding="utf-8") as file:
        return audit_policy.parse(file.read())


def opened(scope: Scope) -> AuditedRequest:
    """Return the entry of a new request.

    The entry refers to the scope. The scope must not refer to the entry: such a cycle would never
    be freed, because the garbage collector does not track entries.
    """
    return AuditedRequest(_audit_id(raw_header(scope, b"audit-id")), time.time(), scope)


def _audit_id(header: bytes) -> str:
    """Return the client's audit id, if it is a UUID, else a new one.

    It is no secret, so it comes from a pseudorandom generator, in a tenth of the time.
    """
    if header:
        with contextlib.suppress(ValueError):
            sent_id = uuid.UUID(header.decode("latin-1"))
            if not causes.is_reserved(sent_id):
                return str(sent_id)
    bits = f"{random.getrandbits(128):032x}"
    return f"{bits[:8]}-{bits[8:12]}-4{bits[13:16]}-{_VARIANT[bits[16]]}{bits[17:20]}-{bits[20:]}"


def is_on() -> bool:
    """Return whether anything is written anywhere."""
    return bool(settings.AUDIT_KEEP_HOURS or settings.AUDIT_LOG_FILE)


def record_user(entry: AuditedRequest, user: User, roles: Roles | None) -> None:
    """Record the user of a request, and decide how much of it is written to the audit log.

    Raises:
        ServiceUnavailable: the log is full, and AUDIT_WHEN_FULL is ``refuse``.
    """
    entry.user, entry.roles = user, roles
    sender = entry.sender
    if sender is None or not is_on():
        return
    verdict = log.policy.verdict(sender.name, sender.groups, entry.request_attributes())
    if verdict.level == NONE:
        return
    entry.verdict = verdict
    if settings.AUDIT_WHEN_FULL == "refuse" and log.is_full():
        raise ServiceUnavailable(
            "the audit log is full, and requests that cannot be recorded are refused"
            " (STOWAGE_AUDIT_WHEN_FULL)"
        )
    if RECEIVED not in entry.verdict.omitted:
        _put(entry, RECEIVED)


def page(entry: AuditedRequest, environ: Mapping[str, Any]) -> None:
    """Record a page's user, its action, and the outcome of a sign-in.

    A form that changes something is written as the API request with the same effect. The form's
    input is never written, whatever the policy.
    """
    entry.is_page = True
    did: Attributes | None = environ.get(DID)
    if did is not None:
        entry.does(did)
    if name := environ.get(SESSION_USER):
        entry.sender = User(name=name)
    entry.sign_in = environ.get(SIGN_IN)


def telling(entry: AuditedRequest, send: Send) -> Send:
    """Return ``send`` for a response without a view, with the audit id in a header.

    Records the beginning of the answer, unless it is a refusal.
    """

    async def tell(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (b"audit-id", id_of(entry))]
            entry.code = message["status"]
            refused = entry.code >= 400
            if not refused and entry.verdict.level != NONE and STARTED not in entry.verdict.omitted:
                _put(entry, STARTED)
        await send(message)

    return tell


def id_of(entry: AuditedRequest) -> bytes:
    """Return the audit id as a header value."""
    return entry.id.encode()


def answered(
    entry: AuditedRequest, code: int, *, request: bytes = b"", response: bytes = b""
) -> None:
    """Queue the entry of a request whose answer is complete or about to begin; never fails."""
    is_left_out = entry.user is not None and entry.verdict.level == NONE
    if (is_left_out and code not in _REFUSALS) or not is_on():
        return
    try:
        _answered(entry, code, request, response)
    except Exception:
        logger.exception("audit_failed", audit_id=entry.id)
        metrics.dropped.of("error").add()


def _answered(entry: AuditedRequest, code: int, request: bytes, response: bytes) -> None:
    entry.code = code
    if entry.user is None:  # a page, or an unauthenticated request
        name = entry.sender.name if entry.sender is not None else ""
        entry.verdict = log.policy.verdict(name, (), entry.request_attributes())
    if entry.is_page and entry.verdict.level in (REQUEST, REQUEST_RESPONSE):
        entry.verdict = Verdict(METADATA, entry.verdict.omitted)
    if entry.verdict.level == NONE:
        if code not in _REFUSALS:
            return
        entry.verdict = _AT_LEAST
    if COMPLETE in entry.verdict.omitted:
        return
    if entry.request_attributes().resource and not entry.is_page:
        if entry.verdict.level in (REQUEST, REQUEST_RESPONSE):
            entry.request = request
        # The answer has the object's name, so at least a small one is read.
        entry.response = response if len(response) <= LARGEST_BODY else b""
    _put(entry, COMPLETE)


def _put(entry: AuditedRequest, stage: str) -> None:
    if stage != COMPLETE:
        entry = msgspec.structs.replace(entry)
    entry.stage, entry.at = stage, time.time()
    log.put(entry)
