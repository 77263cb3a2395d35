"""Which objects a question or a plan names; the user needs the right to get each.

The service looks these objects up with rights that the user may not have. So each right is checked
before anything is looked up, and the refusal is the same whether the object exists or not.
Admission's errors about a posted pod (limits and quotas of a namespace, a name in use) are shown
only to users who may create pods there.
"""

from collections.abc import Iterator
from typing import Any, Final

from api.access import auth
from clusterstate.access import authorizer
from clusterstate.access.rules import Attributes
from clusterstate.admission.request import User
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.errors import Forbidden, StatusError
from clusterstate.objects.values.meta import Manifest

_UNTOLD: Final = "the pod would not be admitted; users who may create pods there can see why"
_OF_ADMISSION: Final = frozenset({"Forbidden", "NotFound", "Conflict", "AlreadyExists"})
_TAKEN: Final = ("FieldValueDuplicate", "metadata.name")
_SCALED: Final = "Deployment"


def require(user: User, document: object) -> None:
    """Refuse a question that names objects which the user may not get. May query.

    For a simulation, or a question about headroom, these are the objects to delete; for a plan the
    pods to evict or to make room for, and the workload to scale. The answer about a posted pod
    shows whether one of that name exists, so the user must have the right to create pods there, or
    to get that one. Parts that cannot be parsed are left to the document's reader.

    Raises:
        AccessDenied: the user may not get one of them.
    """
    spec = document.get("spec") if isinstance(document, dict) else None
    if not isinstance(spec, dict):
        return
    for wants in dict.fromkeys([*_deleted(spec), *_of_changes(spec)]):
        auth.require(user, wants)
    if spec.get("base") == "empty":
        return
    for wants in dict.fromkeys(_posted(spec)):
        if not _may_create(user, wants.namespace):
            auth.require(user, wants)


def _get(kind_name: Any, namespace: Any, name: Any) -> Iterator[Attributes]:
    kind = KINDS.get(kind_name) if isinstance(kind_name, str) else None
    if kind is not None and isinstance(name, str) and isinstance(namespace, str | None):
        space = (namespace or "default") if kind.namespaced else ""
        if kind.name == "Namespace":
            space = name
        yield Attributes("get", kind.group, kind.plural, namespace=space, name=name)


def _listed(manifest: Any, name: str) -> list[Any]:
    found = manifest.get(name) if isinstance(manifest, dict) else None
    return found if isinstance(found, list) else []


def _posted(spec: Manifest) -> Iterator[Attributes]:
    for pod in _listed(spec, "pods"):
        metadata = pod.get("metadata") if isinstance(pod, dict) else None
        if isinstance(metadata, dict) and metadata.get("name"):
            yield from _get("Pod", metadata.get("namespace"), metadata["name"])


def _deleted(spec: Manifest) -> Iterator[Attributes]:
    for one in _listed(spec, "delete"):
        if isinstance(one, dict):
            yield from _get(one.get("kind"), one.get("namespace"), one.get("name"))


def _of_changes(spec: Manifest) -> Iterator[Attributes]:
    for change in _listed(spec, "changes"):
        if not isinstance(change, dict):
            continue
        for title in _listed(change.get("evict"), "pods"):
            yield from _of_title(title)
        rebalanced = change.get("rebalance")
        if isinstance(rebalanced, dict):
            yield from _of_title(rebalanced.get("roomFor"))
        scaled = change.get("scale")
        if isinstance(scaled, dict):
            kind = scaled.get("kind", _SCALED)
            yield from _get(kind, scaled.get("namespace"), scaled.get("name"))


def _of_title(title: Any) -> Iterator[Attributes]:
    if isinstance(title, str):
        namespace, _, name = title.partition("/")
        if namespace and name:
            yield from _get("Pod", namespace, name)


# What admission says ------------------------------------------------------------------------------


def _may_create(user: User, namespace: str) -> bool:
    wants = Attributes("create", resource="pods", namespace=namespace)
    return authorizer.decide(user, wants).allowed


def visible_results(user: User, answer: Manifest) -> Manifest:
    """Return a simulation's answer; only users who may create a pod see admission's errors."""
    for result in answer["status"]["results"]:
        namespace = result["pod"].partition("/")[0]
        if result["status"] != "invalid" or _may_create(user, namespace):
            continue
        errors = result["errors"]
        if any(
            one.get("type") in _OF_ADMISSION or (one.get("type"), one.get("field")) == _TAKEN
            for one in errors
        ):
            result |= {"message": _UNTOLD, "errors": []}
    return answer


def visible_refusal(user: User, document: object, error: StatusError) -> StatusError:
    """Return admission's error about a posted pod, without reasons that the user may not see."""
    spec = document.get("spec") if isinstance(document, dict) else None
    pod = spec.get("pod") if isinstance(spec, dict) else None
    metadata = pod.get("metadata") if isinstance(pod, dict) else None
    namespace = (metadata.get("namespace") if isinstance(metadata, dict) else "") or "default"
    if error.reason not in _OF_ADMISSION or _may_create(user, str(namespace)):
        return error
    return Forbidden(_UNTOLD)


# The spec of a plan -------------------------------------------------------------------------------


def visible_spec(user: User, spec: Manifest) -> Manifest:
    """Return the spec of a plan without names and objects that the user may not get.

    These are counted: ``otherPods``, ``otherNodes``, ``otherObjects``; a workload has no name. A
    configuration is shown to users who may get the one in force. May query.
    """

    def may(wants: Iterator[Attributes]) -> bool:
        found = list(wants)
        return bool(found) and all(authorizer.decide(user, one).allowed for one in found)

    def change(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {what: body(what, one) for what, one in value.items()}

    def body(what: str, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if what == "configuration":
            wants = Attributes("get", "stowage.dev", "schedulerconfiguration")
            return value if authorizer.decide(user, wants).allowed else {}
        if what == "scale":
            if may(_get(value.get("kind", _SCALED), value.get("namespace"), value.get("name"))):
                return value
            return {key: one for key, one in value.items() if key not in ("namespace", "name")}
        found = dict(value)
        if "roomFor" in found and not may(_of_title(found["roomFor"])):
            del found["roomFor"]
            found["otherPods"] = 1
        for key, count, rights in (
            ("pods", "otherPods", _of_title),
            ("nodes", "otherNodes", _of_node),
            ("objects", "otherObjects", _of_object),
        ):
            every = found.get(key)
            if isinstance(every, list):
                visible = [one for one in every if may(rights(one))]
                if len(visible) < len(every):
                    found |= {key: visible, count: len(every) - len(visible)}
        return found

    return {**spec, "changes": [change(one) for one in _listed(spec, "changes")]}


def _of_node(name: Any) -> Iterator[Attributes]:
    return _get("Node", None, name)


def _of_object(manifest: Any) -> Iterator[Attributes]:
    if isinstance(manifest, dict):
        metadata = manifest.get("metadata")
        if isinstance(metadata, dict):
            kind = manifest.get("kind") or ""
            yield from _get(kind, metadata.get("namespace"), metadata.get("name") or "")
