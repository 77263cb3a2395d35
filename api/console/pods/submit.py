"""A new pod: by a form, by YAML, by example, or as a copy of a pod; checked, then created."""

import time
from typing import Any, Final

import msgspec
import yaml
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import reverse

from api import clock
from api.console.page import layout
from api.console.page.yaml_input import problems_of, read_yaml
from api.forms import bodies, pages, wire
from api.kinds import foretelling
from clusterstate import advice
from clusterstate.actions import objects
from clusterstate.actions.writing import transactions
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.errors import BadRequest, StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import get_manifest

_POD: Final = KINDS["Pod"]
_KEPT: Final = ("name", "namespace", "labels", "annotations")
_GIVEN_BY_SERVER: Final = ("nodeName", "priority", "preemptionPolicy", "overhead")
_PATHS: Final = {
    "metadata.name": "name",
    "metadata.namespace": "namespace",
    "spec.containers[0].image": "image",
    "spec.containers[0].resources.requests[cpu]": "cpu",
    "spec.containers[0].resources.requests.cpu": "cpu",
    "spec.containers[0].resources.requests[memory]": "memory",
    "spec.containers[0].resources.requests.memory": "memory",
    "spec.runtimeClassName": "runtime",
    "spec.priorityClassName": "priority",
    "spec.nodeSelector": "selector",
    "spec.tolerations": "tolerates",
    "spec.schedulingGates": "gate",
    "spec.schedulerName": "scheduler",
}


class Input(msgspec.Struct, frozen=True):
    """A field of the form: name, label, an example, its value and its error."""

    name: str
    label: str
    hint: str
    value: str = ""
    errors: tuple[str, ...] = ()
    needed: bool = False


_INPUTS: Final = (
    Input("namespace", "Namespace", "default", "default", needed=True),
    Input("name", "Name", "web-1", needed=True),
    Input("image", "Image", "nginx", "nginx", needed=True),
    Input("cpu", "CPU", "500m, or 2 cores", "100m"),
    Input("memory", "Memory", "512Mi", "64Mi"),
    Input("runtime", "RuntimeClass", ""),
    Input("priority", "PriorityClass", ""),
    Input("selector", "Node labels", "disktype=ssd, zone=a"),
    Input("tolerates", "Tolerated taints", "dedicated, upgrade"),
    Input("gate", "Scheduling gate", "example.com/approved"),
    Input("scheduler", "Scheduler", "default-scheduler"),
)


def _example(name: str, **spec: Any) -> Manifest:
    container = {
        "name": "main",
        "image": "nginx",
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {"containers": [{**container, **spec.pop("container", {})}], **spec},
    }


EXAMPLES: Final[dict[str, tuple[str, Manifest]]] = {
    "small": ("a small pod", _example("small")),
    "gpu": (
        "one GPU",
        _example("gpu", container={"resources": {"limits": {"nvidia.com/gpu": "1"}}}),
    ),
    "spread": (
        "spread over zones",
        _example(
            "spread",
            topologySpreadConstraints=[
                {
                    "maxSkew": 1,
                    "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": "spread"}},
                }
            ],
        ),
    ),
    "alone": (
        "alone on its node",
        _example(
            "alone",
            affinity={
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "labelSelector": {"matchLabels": {"app": "alone"}},
                            "topologyKey": "kubernetes.io/hostname",
                        }
                    ]
                }
            },
        ),
    ),
    "tainted": (
        "on a tainted node",
        _example("tainted", tolerations=[{"key": "dedicated", "operator": "Exists"}]),
    ),
    "gated": (
        "behind a gate",
        _example("gated", schedulingGates=[{"name": "example.com/approved"}]),
    ),
}


@layout.shown
def page(request: HttpRequest) -> HttpResponse:
    """Show the form or the text; check a pod, or create it and redirect to its page.

    On an error the form keeps all values, and shows each error at its field.
    """
    by = "yaml" if request.GET.get("by") == "yaml" else "form"
    form: QueryDict = request.POST if request.method == "POST" else QueryDict()
    text, problems, status = "", list[tuple[str, str]](), 200
    outcome: Manifest = {}
    if request.method != "POST":
        layout.require(request, "create", "pods", namespace=request.GET.get("namespace", "default"))
        text = _start(request) if by == "yaml" else ""
    else:
        text = form.get("text", "").replace("\r\n", "\n")
        try:
            manifest = _read(text) if by == "yaml" else _from_form(form)
            namespace, name, outcome = _try(request, manifest, dry_run=form.get("do") == "check")
        except StatusError as error:
            problems, status = problems_of(error), error.code
        else:
            if not outcome:
                return HttpResponseRedirect(reverse("console:pod", args=(namespace, name)))
    inputs, others = _filled(form, problems, start=request.method != "POST")
    context = {
        "by": by,
        "text": text,
        "rows": max(18, min(40, text.count("\n") + 2)),
        "inputs": inputs,
        "problems": problems if by == "yaml" else others,
        "wrong": bool(problems),
        "examples": [(key, title) for key, (title, _) in EXAMPLES.items()],
        "said": outcome,
    }
    return layout.page(request, "submit.html", "New pod", context, status=status)


def _start(request: HttpRequest) -> str:
    """Return the text to start from: an example, or a copy of a pod without node and status.

    Raises:
        BadRequest: there is no such example. NotFound: there is no such pod.
    """
    copied = request.GET.get("from", "")
    if copied:
        namespace, _, name = copied.partition("/")
        layout.require(request, "get", "pods", namespace=namespace, name=name)
        return pages.as_yaml(_again(get_manifest("Pod", namespace, name)))
    chosen = request.GET.get("example", "small")
    if chosen not in EXAMPLES:
        raise BadRequest(f"example: must be one of {', '.join(EXAMPLES)}")
    return yaml.safe_dump(EXAMPLES[chosen][1], sort_keys=False, allow_unicode=True)


def _again(pod: Manifest) -> Manifest:
    """Return a pod as a manifest to create, with another name."""
    metadata = {key: pod["metadata"][key] for key in _KEPT if pod["metadata"].get(key)}
    metadata["name"] = f"{metadata['name'][:240]}-again"
    spec = {key: value for key, value in pod["spec"].items() if key not in _GIVEN_BY_SERVER}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _read(text: str) -> Manifest:
    manifest, unknown = wire.manifest(read_yaml(text), _POD)
    if unknown:
        raise BadRequest(", ".join(unknown))
    return manifest


def _from_form(form: QueryDict) -> Manifest:
    """Return the pod that the form describes."""
    has = {one.name: form.get(one.name, "").strip() for one in _INPUTS}
    requests = {key: has[key] for key in ("cpu", "memory") if has[key]}
    spec: Manifest = {
        "containers": [
            {"name": "main", "image": has["image"], "resources": {"requests": requests}}
        ],
    }
    if has["selector"]:
        pairs = [one.partition("=") for one in _words(has["selector"])]
        spec["nodeSelector"] = {key.strip(): value.strip() for key, _, value in pairs}
    if has["tolerates"]:
        spec["tolerations"] = [
            {"key": key, "operator": "Exists"} for key in _words(has["tolerates"])
        ]
    if has["gate"]:
        spec["schedulingGates"] = [{"name": one} for one in _words(has["gate"])]
    named = {"runtime": "runtimeClassName", "priority": "priorityClassName"}
    for field, key in {**named, "scheduler": "schedulerName"}.items():
        if has[field]:
            spec[key] = has[field]
    metadata = {"name": has["name"], "namespace": has["namespace"] or "default"}
    return _read(msgspec.json.encode({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
                                      "spec": spec}).decode())  # fmt: skip


def _words(text: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()]


def _try(request: HttpRequest, manifest: Manifest, *, dry_run: bool) -> tuple[str, str, Manifest]:
    """Create the pod, or only predict; return its namespace, name, and the predicted outcome."""
    metadata = bodies.metadata_of(manifest)
    namespace = str(metadata.get("namespace") or "default")
    layout.require(request, "create", "pods", namespace=namespace)
    bodies.put_namespace(metadata, namespace)
    warnings = advice.about("Pod", manifest, time.monotonic())
    user = layout.user_of(request)
    with transactions.work(dry_run=dry_run):
        stored = objects.create(_POD, namespace, manifest, now=clock.now(), user=user)
    name = msgspec.json.decode(stored.manifest)["metadata"]["name"]
    if not dry_run:
        return namespace, name, {}

    def may_read(space: str) -> bool:
        return layout.may(request, "list", "pods", namespace=space)

    all_warnings = [*warnings, *stored.warnings]
    pod = msgspec.json.decode(foretelling.placed(stored.manifest, all_warnings, may_read=may_read))
    gates = [one["name"] for one in pod["spec"].get("schedulingGates") or ()]
    return (
        namespace,
        name,
        {
            "node": pod["spec"].get("nodeName", ""),
            "gates": gates,
            "warnings": [one.removeprefix("dry run: ") for one in all_warnings],
        },
    )


def _filled(
    form: QueryDict, problems: list[tuple[str, str]], *, start: bool
) -> tuple[list[Input], list[tuple[str, str]]]:
    """Return the form's fields with values and problems, and the problems that have no field."""
    errors: dict[str, list[str]] = {}
    others = []
    for path, message in problems:
        name = next((one for begin, one in _PATHS.items() if path.startswith(begin)), "")
        if name:
            errors.setdefault(name, []).append(message)
        else:
            others.append((path, message))
    inputs = [
        msgspec.structs.replace(
            one,
            value=one.value if start else form.get(one.name, ""),
            errors=tuple(errors.get(one.name, ())),
        )
        for one in _INPUTS
    ]
    return inputs, others
