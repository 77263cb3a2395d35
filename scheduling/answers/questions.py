"""Functions for the API: simulations, headroom, decisions, the scheduler's configuration.

The functions with a ``LiveWorld`` argument answer questions in an advisor (``registry``); the
others read rows and run in any process.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, cast

import msgspec
import structlog

from clusterstate.health import progress
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.rules.selections import admits
from clusterstate.objects.values.document import format_time
from clusterstate.objects.values.errors import (
    INVALID,
    BadRequest,
    FieldError,
    Invalid,
    NotFound,
)
from clusterstate.objects.values.labels import selector_from_set
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.numbers import natural
from clusterstate.objects.values.pod import Toleration
from clusterstate.processes import steady_clock
from clusterstate.queries import past
from clusterstate.queries.objects import decode_object, find_object, get_manifest, not_found
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.pods import find_pod_id, find_pods
from clusterstate.queries.scheduler import decision_checks, decisions
from scheduling import simulation
from scheduling.answers import replay
from scheduling.answers.live import LiveBase, LiveWorld, empty_base
from scheduling.framework.configuration import KubeSchedulerConfiguration
from scheduling.framework.configuration.documents import default_configuration, parse
from scheduling.framework.runtime import ConfigurationError
from scheduling.plugins.catalogue import build_framework, load_configuration
from scheduling.simulation import Base, Simulation
from scheduling.worker import profiles

logger = structlog.get_logger(__name__)

GROUP = "stowage.dev"


def configuration() -> KubeSchedulerConfiguration:
    """Return the configuration in force. Queries once."""
    return profiles.in_force()[1]


def _base(question: Simulation, world: LiveWorld) -> Base:
    return LiveBase(world) if question.live else empty_base(world)


def simulate(world: LiveWorld, document: object) -> Manifest:
    """Return the answer to a ``Simulation`` document; without ``spec.base`` the world is live.

    Raises:
        Invalid: with every wrong field.
        BadRequest: the document is nested too deeply.
    """
    question = simulation.read(document)
    return simulation.run(question, _base(question, world))


def headroom(world: LiveWorld, document: object) -> Manifest:
    """Return how many more pods like one fit, and what rejects the next (a ``Headroom`` document).

    Raises:
        Invalid: with every wrong field.
        Forbidden, NotFound, Conflict, BadRequest: the pod is not admitted.
    """
    question = simulation.read_headroom(document)
    return simulation.run_headroom(question, _base(question.simulation, world))


def runtime_class_nodes(name: str, at: int | None = None) -> tuple[list[bytes], int]:
    """Return the nodes that match a RuntimeClass's scheduling rules, as JSON, and the revision.

    ``at``: the revision of nodes and class; ``None``: now.

    A node matches when it has the labels of ``scheduling.nodeSelector`` (without one every node
    has) and the class tolerates the taints that keep pods off it. Taints for conditions of the node
    (``node.kubernetes.io/``) are ignored. R60. Queries three times, more often for the past.

    Raises:
        NotFound: there is no such RuntimeClass.
        Expired: the change log does not reach back to ``at``.
    """
    if at is None:
        runtime_class = get_manifest("RuntimeClass", "", name)
    else:
        body = past.find_at(KINDS["RuntimeClass"], "", name, at)
        if body is None:
            raise not_found("RuntimeClass", name)
        runtime_class = decode_object(body)
    scheduling = runtime_class.get("scheduling") or {}
    selector = selector_from_set(scheduling.get("nodeSelector") or {})
    tolerations = msgspec.convert(scheduling.get("tolerations") or [], tuple[Toleration, ...])
    page = list_page("Node", label_selector=selector, at=at)
    found = [item for item in page.items if admits(_decode_node(item).spec.taints, tolerations)]
    return found, page.revision


_decode_node = msgspec.json.Decoder(Node).decode


# --- landings ------------------------------------------------------------------------------------

_KEPT = ("name", "namespace", "labels", "annotations", "ownerReferences")


def landings(world: LiveWorld, keys: Sequence[tuple[str, str]]) -> list[Manifest]:
    """Return the nodes of pods (namespace, name) if they were deleted together and created again.

    Each entry has ``status``, and ``nodeName`` or the ``message`` why there is none. It simulates
    the live cluster; nothing is stored. The number of queries does not depend on the number of
    pods.

    Raises:
        NotFound: one of the pods does not exist.
    """
    manifests = []
    for (_, name), found in zip(keys, find_pods(keys), strict=True):
        if found is None:
            raise not_found("Pod", name)
        manifests.append(decode_object(found))
    document = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Simulation",
        "spec": {
            "base": "live",
            "delete": [{"kind": "Pod", "namespace": space, "name": name} for space, name in keys],
            "pods": [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {
                        key: pod["metadata"][key] for key in _KEPT if key in pod["metadata"]
                    },
                    "spec": {key: value for key, value in pod["spec"].items() if key != "nodeName"},
                }
                for pod in manifests
            ],
        },
    }
    landings_ = []
    for result in simulate(world, document)["status"]["results"]:
        landing = {key: result.get(key) for key in ("status", "nodeName", "message")}
        landings_.append({key: value for key, value in landing.items() if value})
    return landings_


def landings_of(world: LiveWorld, document: object) -> list[Manifest]:
    """Return ``landings`` of the pods in the document: ``[[namespace, name], ...]``."""
    return landings(world, msgspec.convert(document, list[tuple[str, str]]))


# --- decisions -----------------------------------------------------------------------------------


def decisions_of(
    namespace: str,
    name: str,
    *,
    limit: int,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[Manifest]:
    """Return the decisions about pods of this name between two moments, the latest first.

    Queries twice, more often for the past.

    Raises:
        NotFound: there was no such pod, and no decision about one.
        Expired: the history does not reach back to ``until``.
    """
    records = decisions.of_pod(namespace, name, limit=limit, since=since, until=until)
    if not records and not _was_there(namespace, name, until):
        raise not_found("Pod", name)
    return [replay.describe(record) for record in records]


def _was_there(namespace: str, name: str, moment: datetime | None) -> bool:
    if moment is None:
        return find_pod_id(namespace, name) is not None
    revision = past.revision_at(moment, now=max(moment, steady_clock.now()))
    return past.find_at(KINDS["Pod"], namespace, name, revision) is not None


def require_decided(
    decision_id: int, *, since: datetime | None = None, until: datetime | None = None
) -> None:
    """Check that a decision was made between two moments. Queries once.

    Raises:
        NotFound: there is no decision with this id at that time.
    """
    record = decisions.find(decision_id)
    if (
        record is None
        or (since is not None and record.at < since)
        or (until is not None and record.at > until)
    ):
        raise _no_decision(decision_id)


def _no_decision(decision_id: int) -> NotFound:
    text = f'decisions.{GROUP} "{decision_id}" not found'
    return NotFound(text, {"name": str(decision_id), "kind": "decisions", "group": GROUP})


def decision(namespace: str, name: str, decision_id: int, *, full: bool) -> Manifest:
    """Return one decision about a pod; ``full``: with every node by every plugin.

    Raises:
        NotFound: there is no such decision about the pod.
        Expired: the full table can no longer be computed again.
    """
    record = decisions.find(decision_id)
    if record is None or (record.namespace, record.name) != (namespace, name):
        raise _no_decision(decision_id)
    return replay.explain(record) if full else replay.describe(record)


def decision_explained(world: LiveWorld, document: object) -> Manifest:
    """Return ``decision`` with its table, for a document with ``namespace``, ``name``, ``id``."""
    question = msgspec.convert(document, _Decision)
    return decision(question.namespace, question.name, question.id, full=True)


class _Decision(msgspec.Struct, forbid_unknown_fields=True):
    namespace: str
    name: str
    id: int


def decision_table(found: Manifest) -> str:
    """Return a decision as a text table."""
    return replay.as_table(found)


# --- configuration -------------------------------------------------------------------------------

_CONFIGURATION_NAME = "default"


def stored_configuration(at: datetime | None = None) -> Manifest:
    """Return the ``KubeSchedulerConfiguration`` in force now or at a moment.

    Revision 0 is the default one, in force since the creation of ``kube-system``.

    Raises:
        Expired: that revision is no longer stored.
    """
    stored = decisions.configuration() if at is None else decisions.configuration_at(at)
    metadata: Manifest = {"name": _CONFIGURATION_NAME, "resourceVersion": "0"}
    if stored is None:
        if (first := find_object("Namespace", "", "kube-system")) is not None:
            metadata["creationTimestamp"] = decode_object(first)["metadata"]["creationTimestamp"]
        return _as_configuration(default_configuration().document, metadata)
    metadata["resourceVersion"] = str(stored.revision)
    metadata["creationTimestamp"] = format_time(stored.at)
    if stored.by:
        metadata["annotations"] = {f"{GROUP}/stored-by": stored.by}
    return _as_configuration(msgspec.json.decode(stored.document), metadata)


def configuration_status() -> Manifest:
    """Return the ``status`` of the configuration: whether the scheduler can use it.

    ``inForce``: the revision in use. The condition ``Usable`` is False if a profile places no pods,
    or another revision is in use. ``DecisionsVerified`` is False if a stored decision came out
    differently when it was repeated. Queries five times.
    """
    use, newest = progress.configuration_use(), decisions.configuration_revision()
    if use is None:
        return {"conditions": []}
    condition = {"type": "Usable", "status": "True", "reason": "InForce", "message": ""}
    if use.problems:
        reason = "ProfilesHoldPods" if use.stored == use.revision else "EarlierInForce"
        condition |= {"status": "False", "reason": reason, "message": use.in_words}
    elif use.revision != newest:
        condition |= {"status": "Unknown", "reason": "NotSeenYet"}
    condition["lastTransitionTime"] = format_time(use.at)
    return {"inForce": str(use.revision), "conditions": [condition, *_verified()]}


def _verified() -> list[Manifest]:
    """Return the condition about checked decisions, none before the first check. Queries thrice."""
    problem = decision_checks.problem()
    at = decision_checks.latest("differs" if problem else "same")
    if at is None:
        return []
    same = f"{decision_checks.counts()['same']} checked decisions came out the same"
    return [
        {
            "type": "DecisionsVerified",
            "status": "False" if problem else "True",
            "reason": "DecisionsDiffer" if problem else "DecisionsAgree",
            "message": problem or same,
            "lastTransitionTime": format_time(at),
        }
    ]


def configurations(*, limit: int) -> list[decisions.StoredConfiguration]:
    """Return the stored configurations, the latest first. Queries once."""
    return decisions.configurations(limit=limit)


def configuration_of(revision: int) -> Manifest:
    """Return the document of a stored configuration. Queries once.

    Raises:
        NotFound: there is no such revision.
    """
    found = decisions.configuration(revision)
    if found is None:
        raise NotFound(f"there is no revision {revision} of the configuration")
    document: Manifest = msgspec.json.decode(found.document)
    return document


def _as_configuration(document: Manifest, metadata: Manifest) -> Manifest:
    head = {"apiVersion": document["apiVersion"], "kind": document["kind"], "metadata": metadata}
    return head | {key: value for key, value in document.items() if key not in head}


def replaced_version(document: object) -> int | None:
    """Return the ``resourceVersion`` in the document's metadata, ``None`` without one.

    Raises:
        BadRequest: the document or its ``metadata`` is not an object, or the version is malformed.
    """
    if not isinstance(document, dict):
        raise BadRequest("the body must be a KubeSchedulerConfiguration object")
    metadata = document.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise BadRequest("metadata must be an object")
    version = metadata.get("resourceVersion")
    if not version:
        return None
    replaces = natural(version) if isinstance(version, str) else None
    if replaces is None:
        raise BadRequest(f"metadata.resourceVersion is not valid: {version!r}")
    return replaces


def check_configuration(document: object) -> tuple[str, list[str]]:
    """Return a configuration as it would be stored, and a list of advice for the user.

    ``metadata`` and ``status`` are ignored.

    Raises:
        Invalid: with every wrong field.
    """
    parsed = parse(cast("Mapping[str, Any] | str", document))
    parsed.pop("metadata", None)
    parsed.pop("status", None)
    loaded = load_configuration(parsed)
    for number, profile in enumerate(loaded.profiles):
        try:
            build_framework(profile)
        except ConfigurationError as error:
            path = f"profiles[{number}]"
            errors = [FieldError(INVALID, path, profile.scheduler_name, str(error))]
            raise Invalid("KubeSchedulerConfiguration", "", errors) from error
    whole = {"apiVersion": loaded.API_VERSION, "kind": "KubeSchedulerConfiguration"}
    text = msgspec.json.encode(whole | loaded.document, order="sorted").decode()
    return text, list(loaded.warnings)
