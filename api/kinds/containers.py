"""Requests that Kubernetes passes on to a kubelet: logs, exec, attach and port-forward.

No agent serves containers here, so each of these requests is refused with a sentence that says so;
a bare 404 would look as if the pod, or the path, were wrong. As in Kubernetes, the user's right and
the object are checked first. The refusals are not in discovery.
"""

from collections.abc import Iterable
from typing import NoReturn

from api.forms import errors
from api.kinds.views import StatusView
from api.requests import Request
from clusterstate.access.rules import Attributes
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.queries.objects import get_object

_NO_PROCESS = "there is no process to attach to"
_NO_PORT = "there is no port to connect to"
ABSENT = {
    "log": "there are no logs to read",
    "exec": _NO_PROCESS,
    "attach": _NO_PROCESS,
    "portforward": _NO_PORT,
    "proxy": _NO_PORT,
    "ephemeralcontainers": "no container can be added to a pod",
}
"""The reason of the refusal, by subresource."""
_IN_NAMESPACE = r"namespaces/(?P<namespace>[^/]+)"
PATHS = (
    *((f"{_IN_NAMESPACE}/pods", "pods", name, "") for name in ABSENT if name != "proxy"),
    *(
        (path, plural, "proxy", "(?:/.*)?")
        for path, plural in (
            (f"{_IN_NAMESPACE}/pods", "pods"),
            (f"{_IN_NAMESPACE}/services", "services"),
            ("nodes", "nodes"),
        )
    ),
)
"""For each path: the part before the name, the plural, the subresource, and the part after it."""
_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class ContainersView(StatusView):
    """``pods/NAME/log`` and the like: refused with the reason, whatever the method."""

    def wants(self, request: Request) -> Iterable[Attributes]:
        """Return the right to this request on the object in the path."""
        path = self.kwargs
        verb, plural = _VERBS[request.method], path["plural"]
        name = _named(path["name"], path["subresource"])
        namespace = path.get("namespace", "")
        return (Attributes(verb, "", plural, path["subresource"], namespace, name),)

    def get(
        self, request: Request, plural: str, name: str, subresource: str, namespace: str = ""
    ) -> NoReturn:
        """Refuse the request.

        Raises:
            NotFound: there is no such object.
            MethodNotAllowed: in every other case.
        """
        name = _named(name, subresource)
        get_object(KINDS["", plural], namespace, name)
        raise errors.MethodNotAllowed(
            f"{plural} {name!r}: this service decides where pods belong and runs no containers, "
            f"so {ABSENT[subresource]}".replace("'", '"')
        )

    post = put = patch = delete = get


def _named(name: str, subresource: str) -> str:
    """Return the name of the object; a proxy's name may end in a port, as in ``web:80``."""
    return name.partition(":")[0] if subresource == "proxy" else name
