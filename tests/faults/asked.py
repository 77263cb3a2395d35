"""What is asked of the advisor and of the console after a fault, and what they must answer.

The advisor is asked how many more pods of a shape fit on a node; how many that is follows from the
manifests by arithmetic. The console is asked for its page of nodes by somebody who signs in, and
the page must have every node. While a fault lasts both may say 503.
"""

import contextlib
import http.client
import re
import time
import urllib.parse
from collections.abc import Callable, Mapping
from http.cookies import SimpleCookie
from types import MappingProxyType

from tests.faults import arithmetic, rules
from tests.faults.checkers import ADVICE, CONSOLE, Violation
from tests.faults.replay import State, finished, node_of
from tests.faults.wire import NoAnswer, Wire
from tests.faults.world import CANARY, HOST, SPACE, STEADY, Object

HEADROOM = "/apis/stowage.dev/v1/headroom"
NODES_PAGE = "/console/nodes/"
SIGN_IN = "/console/sign-in"
ANSWER_SECONDS = 20.0
"""Both have to answer within so long, whatever the answer is."""
_FORM_TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')
_NODE_LINK = re.compile(r'href="/console/nodes/([^/"]+)/"')


def shape(node: str) -> Object:
    """Return the pod that the advisor is asked about: it fits on one node only, whatever taints."""
    resources = {"requests": {"cpu": "30m", "memory": "40Mi"}}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asked", "namespace": SPACE},
        "spec": {
            "containers": [{"name": "main", "image": "busybox", "resources": resources}],
            "nodeSelector": {HOST: node}, "tolerations": [{"operator": "Exists"}],
        },
    }  # fmt: skip


def headroom(wire: Wire, node: str) -> tuple[int, int, str]:
    """Ask the advisor; return the status, how many more fit, and what was said if it is not 201.

    Raises:
        NoAnswer: none came in time.
    """
    status, answer = wire.call("POST", HEADROOM, shape(node))
    if status != http.HTTPStatus.CREATED:
        return status, -1, str(answer.get("message") if isinstance(answer, dict) else answer)[:200]
    return status, int(answer["status"]["fits"]), ""


def fits(state: State, node: Object) -> tuple[int, int]:
    """Return how many more pods of the shape fit on a node: at least, and at most.

    What waits with this node nominated may count as if it were there already.
    """
    name = node["metadata"]["name"]
    free = rules.free(state, node)
    nominated = dict(free)
    for pod in state.pods.values():
        told = (pod.get("status") or {}).get("nominatedNodeName")
        if told == name and not node_of(pod) and not finished(pod):
            arithmetic.add(nominated, arithmetic.requests(pod), -1)
    wanted = arithmetic.requests(shape(name))
    return _times(nominated, wanted), _times(free, wanted)


def _times(free: arithmetic.Amounts, wanted: arithmetic.Amounts) -> int:
    return max(0, min(free.get(name, 0) // value for name, value in wanted.items()))


def advice_violations(state: State, wire: Wire, nodes: list[str]) -> list[Violation]:
    """Compare what the advisor says of these nodes with arithmetic."""
    found = []
    for name in nodes:
        node = state.nodes.get(name)
        if node is None:
            continue
        try:
            status, count, told = headroom(wire, name)
        except NoAnswer as error:
            return [Violation(ADVICE, f"no answer about {name}: {error}")]
        least, most = fits(state, node)
        if status != http.HTTPStatus.CREATED:
            found.append(Violation(ADVICE, f"{status} about {name}: {told}"))
        elif not least <= count <= most:
            found.append(Violation(ADVICE, f"{count} more fit on {name}, not {least} to {most}"))
    return found


class Visitor:
    """Somebody at the console: signs in with the administrator's password, and reads a page."""

    def __init__(self, port: int, password: Callable[[], str]) -> None:
        self._port = port
        self._password = password
        self._cookies: dict[str, str] = {}

    def look(self) -> tuple[int, set[str]]:
        """Return the status of the page of nodes and the nodes on it; signs in where asked to.

        Raises:
            NoAnswer: none came in time.
        """
        status, text, _ = self.read(NODES_PAGE)
        return status, {urllib.parse.unquote(name) for name in _NODE_LINK.findall(text)}

    def read(self, path: str, *, is_part: bool = False) -> tuple[int, str, str]:
        """Return status and text of a page, and where a part leads; signs in where asked to.

        Raises:
            NoAnswer: none came in time.
        """
        headers = {"HX-Request": "true"} if is_part else {}
        status, text, leads_to = self._call("GET", path, headers=headers)
        if status == http.HTTPStatus.FOUND:
            self._sign_in()
            status, text, leads_to = self._call("GET", path)
        return status, text, leads_to

    def _sign_in(self) -> None:
        _, text, _ = self._call("GET", SIGN_IN)
        token = _FORM_TOKEN.search(text)
        form = {
            "csrfmiddlewaretoken": token[1] if token else "", "username": "admin",
            "password": self._password(), "next": NODES_PAGE,
        }  # fmt: skip
        self._call("POST", SIGN_IN, urllib.parse.urlencode(form).encode())

    def _call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[int, str, str]:
        headers = {
            **headers,
            "Accept": "text/html", "Origin": f"http://127.0.0.1:{self._port}",
            "Cookie": "; ".join(f"{name}={value}" for name, value in self._cookies.items()),
        }  # fmt: skip
        if body is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=ANSWER_SECONDS)
        with contextlib.closing(connection):
            try:
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
                text = answer.read().decode(errors="replace")
            except (OSError, http.client.HTTPException) as error:
                raise NoAnswer(f"{type(error).__name__}: {error}") from error
        for value in answer.headers.get_all("Set-Cookie", ()):
            self._cookies |= {name: one.value for name, one in SimpleCookie(value).items()}
        return answer.status, text, answer.headers.get("HX-Redirect", "")


def console_violations(state: State, visitor: Visitor) -> list[Violation]:
    """Compare the nodes on the console's page with those that there are."""
    try:
        status, shown = visitor.look()
    except NoAnswer as error:
        return [Violation(CONSOLE, f"no answer: {error}")]
    if status != http.HTTPStatus.OK:
        return [Violation(CONSOLE, f"{status} for the page of nodes")]
    if shown != set(state.nodes):
        told = ", ".join(sorted(shown ^ set(state.nodes)))
        return [Violation(CONSOLE, f"the page of nodes differs in {told}")]
    return []


class Asking:
    """Asks both, on connections of its own; ``wire`` must wait for ``ANSWER_SECONDS``."""

    def __init__(self, wire: Wire, visitor: Visitor) -> None:
        self._wire = wire
        self._visitor = visitor

    def advised(self) -> bool:
        """Return whether the advisor answers."""
        with contextlib.suppress(NoAnswer):
            return headroom(self._wire, CANARY)[0] == http.HTTPStatus.CREATED
        return False

    def shown(self) -> bool:
        """Return whether the console shows its page."""
        with contextlib.suppress(NoAnswer):
            return self._visitor.look()[0] == http.HTTPStatus.OK
        return False

    def silent(self, seconds: float) -> list[str]:
        """Wait until both answer, at most so long; return who did not."""
        found = []
        end = time.monotonic() + seconds
        for name, answers in (("advisor", self.advised), ("console", self.shown)):
            while not (heard := answers()) and time.monotonic() < end:
                time.sleep(0.3)
            if not heard:
                found.append(f"the {name} gave no answer within {seconds:.0f} s")
        return found

    def violations(self, state: State) -> list[Violation]:
        """Compare what both say with the cluster at rest."""
        nodes = [f"n{number}" for number in range(STEADY)]
        found = advice_violations(state, self._wire, nodes)
        return found + console_violations(state, self._visitor)
