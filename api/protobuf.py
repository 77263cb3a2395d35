"""Bodies in Kubernetes' protobuf form, for the few objects that newer kubectl sends in it.

From 1.32 on kubectl's commands built on typed clients (``create namespace``, ``auth can-i``,
``drain --disable-eviction``) send protobuf and give up on a 415; they take JSON answers. A body is
the letters ``k8s`` and a NUL, then a ``runtime.Unknown`` around the object's own message. The
tables hold the field numbers of the messages that those commands fill in (``generated.proto`` of
k8s.io/apimachinery and k8s.io/api, v1.36). A field that no table names is an error, never dropped.

Go writes fields that are not pointers even when they are empty, so empty texts and messages, and
numbers and booleans not marked ``?``, count as absent when they are zero.
"""

import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from api.errors import UnsupportedMediaType
from clusterstate.objects.document import format_time
from clusterstate.objects.errors import BadRequest, TooLarge
from clusterstate.objects.meta import Manifest

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
MAX_BYTES = 3 << 20
"""kube-apiserver's limit for a body; it is read in Python, field by field."""
_MAGIC = b"k8s\x00"

# Message -> field number -> "name type". Types: text, int, bool, time, quantity, int-or-text,
# another message; "?" keeps zero, "[]" is a list, "{}" a map from text.
_MESSAGES: dict[str, dict[int, str]] = {
    "Unknown": {1: "typeMeta TypeMeta", 2: "raw bytes", 3: "e text", 4: "t text"},
    "TypeMeta": {1: "apiVersion text", 2: "kind text"},
    "ObjectMeta": {
        1: "name text",
        2: "generateName text",
        3: "namespace text",
        4: "selfLink text",
        5: "uid text",
        6: "resourceVersion text",
        7: "generation int",
        8: "creationTimestamp time",
        9: "deletionTimestamp time",
        10: "deletionGracePeriodSeconds int?",
        11: "labels text{}",
        12: "annotations text{}",
        13: "ownerReferences OwnerReference[]",
        14: "finalizers text[]",
    },
    "OwnerReference": {
        1: "kind text",
        3: "name text",
        4: "uid text",
        5: "apiVersion text",
        6: "controller bool?",
        7: "blockOwnerDeletion bool?",
    },
    "LabelSelector": {
        1: "matchLabels text{}",
        2: "matchExpressions LabelSelectorRequirement[]",
    },
    "LabelSelectorRequirement": {1: "key text", 2: "operator text", 3: "values text[]"},
    "Preconditions": {1: "uid text", 2: "resourceVersion text"},
    "DeleteOptions": {
        1: "gracePeriodSeconds int?",
        2: "preconditions Preconditions",
        3: "orphanDependents bool?",
        4: "propagationPolicy text",
        5: "dryRun text[]",
        6: "ignoreStoreReadErrorWithClusterBreakingPotential bool?",
    },
    "Eviction": {1: "metadata ObjectMeta", 2: "deleteOptions DeleteOptions"},
    "Namespace": {
        1: "metadata ObjectMeta",
        2: "spec NamespaceSpec",
        3: "status NamespaceStatus",
    },
    "NamespaceSpec": {1: "finalizers text[]"},
    "NamespaceStatus": {1: "phase text"},
    "PriorityClass": {
        1: "metadata ObjectMeta",
        2: "value int?",
        3: "globalDefault bool",
        4: "description text",
        5: "preemptionPolicy text",
    },
    "SelfSubjectAccessReview": {
        1: "metadata ObjectMeta",
        2: "spec SelfSubjectAccessReviewSpec",
        3: "status SubjectAccessReviewStatus",
    },
    "SelfSubjectAccessReviewSpec": {
        1: "resourceAttributes ResourceAttributes",
        2: "nonResourceAttributes NonResourceAttributes",
    },
    "SubjectAccessReviewStatus": {
        1: "allowed bool",
        2: "reason text",
        3: "evaluationError text",
        4: "denied bool",
    },
    "ResourceAttributes": {
        1: "namespace text",
        2: "verb text",
        3: "group text",
        4: "version text",
        5: "resource text",
        6: "subresource text",
        7: "name text",
    },
    "NonResourceAttributes": {1: "path text", 2: "verb text"},
    "PodDisruptionBudget": {
        1: "metadata ObjectMeta",
        2: "spec PodDisruptionBudgetSpec",
        3: "status PodDisruptionBudgetStatus",
    },
    "PodDisruptionBudgetSpec": {
        1: "minAvailable int-or-text",
        2: "selector LabelSelector",
        3: "maxUnavailable int-or-text",
        4: "unhealthyPodEvictionPolicy text",
    },
    "PodDisruptionBudgetStatus": {
        1: "observedGeneration int",
        3: "disruptionsAllowed int",
        4: "currentHealthy int",
        5: "desiredHealthy int",
        6: "expectedPods int",
    },
    "ResourceQuota": {
        1: "metadata ObjectMeta",
        2: "spec ResourceQuotaSpec",
        3: "status ResourceQuotaStatus",
    },
    "ResourceQuotaSpec": {1: "hard quantity{}", 2: "scopes text[]"},
    "ResourceQuotaStatus": {1: "hard quantity{}", 2: "used quantity{}"},
    "Deployment": {
        1: "metadata ObjectMeta",
        2: "spec DeploymentSpec",
        3: "status DeploymentStatus",
    },
    "DeploymentSpec": {
        1: "replicas int?",
        2: "selector LabelSelector",
        3: "template PodTemplateSpec",
        4: "strategy DeploymentStrategy",
        5: "minReadySeconds int",
        6: "revisionHistoryLimit int?",
        7: "paused bool",
        9: "progressDeadlineSeconds int?",
    },
    "DeploymentStrategy": {1: "type text"},
    "DeploymentStatus": {
        1: "observedGeneration int",
        2: "replicas int",
        3: "updatedReplicas int",
        4: "availableReplicas int",
        5: "unavailableReplicas int",
        7: "readyReplicas int",
    },
    "PodTemplateSpec": {1: "metadata ObjectMeta", 2: "spec PodSpec"},
    "PodSpec": {
        2: "containers Container[]",
        3: "restartPolicy text",
        4: "terminationGracePeriodSeconds int?",
        5: "activeDeadlineSeconds int?",
        6: "dnsPolicy text",
        7: "nodeSelector text{}",
        8: "serviceAccountName text",
        9: "serviceAccount text",
        10: "nodeName text",
        11: "hostNetwork bool",
        12: "hostPID bool",
        13: "hostIPC bool",
        16: "hostname text",
        17: "subdomain text",
        19: "schedulerName text",
        24: "priorityClassName text",
        25: "priority int?",
        29: "runtimeClassName text",
    },
    "Container": {
        1: "name text",
        2: "image text",
        3: "command text[]",
        4: "args text[]",
        5: "workingDir text",
        6: "ports ContainerPort[]",
        7: "env EnvVar[]",
        8: "resources ResourceRequirements",
        13: "terminationMessagePath text",
        14: "imagePullPolicy text",
        16: "stdin bool",
        17: "stdinOnce bool",
        18: "tty bool",
        20: "terminationMessagePolicy text",
    },
    "ContainerPort": {
        1: "name text",
        2: "hostPort int",
        3: "containerPort int",
        4: "protocol text",
        5: "hostIP text",
    },
    "EnvVar": {1: "name text", 2: "value text"},
    "ResourceRequirements": {1: "limits quantity{}", 2: "requests quantity{}"},
    "Quantity": {1: "string text"},
    "IntOrString": {1: "type int", 2: "intVal int", 3: "strVal text"},
    "Timestamp": {1: "seconds int", 2: "nanos int"},
}


class _Malformed(ValueError):
    """The bytes are not a protobuf message, or not one of the shape that the tables say."""


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and the place behind it."""
    number = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise _Malformed("a number is cut off")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return number, at
        shift += 7


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield field numbers with their values: numbers, or bytes for what has a length."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
        elif wire == 2:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise _Malformed("a field is cut off")
            yield number, data[at : at + size]
            at += size
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            if at + size > len(data):
                raise _Malformed("a field is cut off")
            (fixed,) = struct.unpack_from("<Q" if wire == 1 else "<I", data, at)
            yield number, fixed
            at += size
        else:
            raise _Malformed(f"wire type {wire} is not used by Kubernetes")


def _message(name: str, data: bytes) -> Manifest:
    """Return a message as JSON would have it."""
    table = _MESSAGES[name]
    result: Manifest = {}
    for number, raw in _fields(data):
        entry = table.get(number)
        if entry is None:
            if raw in (0, b""):
                continue  # empty: says nothing
            raise UnsupportedMediaType(
                f"field {number} of {name} is not read in protobuf: send JSON or YAML instead"
            )
        field, kind = entry.split(" ")
        if kind.endswith("[]"):
            result.setdefault(field, []).append(_value(kind[:-2], raw))
        elif kind.endswith("{}"):
            if not isinstance(raw, bytes):
                raise _Malformed(f"{field} is not a map")
            pair = dict(_fields(raw))
            key = _value("text", pair.get(1, b""))
            result.setdefault(field, {})[key] = _value(kind[:-2], pair.get(2, b""))
        else:
            value = _value(kind.rstrip("?"), raw)
            if value or kind.endswith("?") or kind in ("int-or-text", "bytes"):
                result[field] = value
    return result


def _value(kind: str, raw: int | bytes) -> Any:
    if kind in ("int", "bool"):
        if not isinstance(raw, int):
            raise _Malformed("a number has a length")
        if kind == "bool":
            return bool(raw)
        return raw - (1 << 64) if raw >> 63 else raw
    if not isinstance(raw, bytes):
        raise _Malformed("a text or message is a number")
    if kind == "bytes":
        return raw
    if kind == "text":
        if b"\0" in raw:
            raise _Malformed("a text holds a NUL character (U+0000)")
        return raw.decode()
    if kind == "quantity":
        return _message("Quantity", raw).get("string", "0")
    if kind == "int-or-text":
        parts = _message("IntOrString", raw)
        return parts.get("strVal", "") if parts.get("type") else parts.get("intVal", 0)
    if kind == "time":
        seconds = _message("Timestamp", raw).get("seconds")
        return format_time(datetime.fromtimestamp(seconds, UTC)) if seconds else None
    return _message(kind, raw)


def decode(raw: bytes) -> Manifest:
    """Return the object in a protobuf body, with ``kind`` and ``apiVersion``.

    Raises:
        UnsupportedMediaType: an object or a field that is not read in this form.
        BadRequest: the bytes are not such a body.
        TooLarge: it is larger than kubectl's ever are.
    """
    if len(raw) > MAX_BYTES:
        raise TooLarge(f"the body is larger than the limit of {MAX_BYTES} bytes")
    if not raw.startswith(_MAGIC):
        raise BadRequest("the body is not in Kubernetes' protobuf form")
    try:
        unknown = _message("Unknown", raw[len(_MAGIC) :])
        header = unknown.get("typeMeta", {})
        kind = header.get("kind", "")
        if kind not in _MESSAGES:
            raise UnsupportedMediaType(
                f"{kind or 'this object'} is not read in protobuf: send JSON or YAML instead"
            )
        return {**header, **_message(kind, unknown.get("raw", b""))}
    except (ValueError, OverflowError, OSError) as error:
        raise BadRequest(f"the body is not valid protobuf: {error}") from error
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None
