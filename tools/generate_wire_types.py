"""Write ``wire_types.json`` and ``texts.json``: ``python -m tools.generate_wire_types``.

The first has the fields of Kubernetes' types, the second what each type and each field is for.

The definitions come with the development dependency ``kubernetes-validate`` (Apache-2.0; Kubernetes
OpenAPI, v1.37). The output is committed and a test checks that regenerating gives the same bytes,
so nothing of this runs in production.

Every field is optional in the generated types: whether something required is missing is a question
of validation (422, with all causes), not of decoding.
"""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

Schema = dict[str, Any]

VERSION: Final = "v1.37.0"
OLDER: Final = {"io.k8s.api.scheduling.v1alpha2.": "v1.36.0"}
"""Packages that are served and that the version above no longer has: their last version."""
TARGET: Final = Path(__file__).parents[1] / "clusterstate/objects/registry/wire_types.json"
TEXTS: Final = Path(__file__).parents[1] / "api/description/texts.json"
ROOTS: Final = (
    "io.k8s.api.core.v1.Pod",
    "io.k8s.api.core.v1.Node",
    "io.k8s.api.core.v1.Namespace",
    "io.k8s.api.core.v1.Binding",
    "io.k8s.api.core.v1.Event",
    "io.k8s.api.core.v1.Service",
    "io.k8s.api.core.v1.ReplicationController",
    "io.k8s.api.core.v1.ResourceQuota",
    "io.k8s.api.core.v1.LimitRange",
    "io.k8s.api.core.v1.ConfigMap",
    "io.k8s.api.core.v1.Secret",
    "io.k8s.api.core.v1.ServiceAccount",
    "io.k8s.api.core.v1.PodTemplate",
    "io.k8s.api.core.v1.PersistentVolume",
    "io.k8s.api.core.v1.PersistentVolumeClaim",
    "io.k8s.api.node.v1.RuntimeClass",
    "io.k8s.api.scheduling.v1.PriorityClass",
    "io.k8s.api.scheduling.v1beta1.PodGroup",
    "io.k8s.api.scheduling.v1beta1.Workload",
    "io.k8s.api.scheduling.v1alpha3.PodGroup",
    "io.k8s.api.scheduling.v1alpha3.Workload",
    "io.k8s.api.scheduling.v1alpha2.PodGroup",
    "io.k8s.api.scheduling.v1alpha2.Workload",
    "io.k8s.api.policy.v1.PodDisruptionBudget",
    "io.k8s.api.policy.v1.Eviction",
    "io.k8s.api.coordination.v1.Lease",
    "io.k8s.api.apps.v1.ReplicaSet",
    "io.k8s.api.apps.v1.StatefulSet",
    "io.k8s.api.apps.v1.DaemonSet",
    "io.k8s.api.apps.v1.Deployment",
    "io.k8s.api.apps.v1.ControllerRevision",
    "io.k8s.api.batch.v1.Job",
    "io.k8s.api.batch.v1.CronJob",
    "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler",
    "io.k8s.api.autoscaling.v1.HorizontalPodAutoscaler",
    "io.k8s.api.certificates.v1.CertificateSigningRequest",
    "io.k8s.api.discovery.v1.EndpointSlice",
    "io.k8s.api.core.v1.Endpoints",
    "io.k8s.api.events.v1.Event",
    "io.k8s.api.networking.v1.IPAddress",
    "io.k8s.api.networking.v1.Ingress",
    "io.k8s.api.networking.v1.IngressClass",
    "io.k8s.api.networking.v1.NetworkPolicy",
    "io.k8s.api.networking.v1.ServiceCIDR",
    "io.k8s.api.resource.v1.DeviceClass",
    "io.k8s.api.resource.v1.DeviceTaintRule",
    "io.k8s.api.resource.v1.ResourceClaim",
    "io.k8s.api.resource.v1.ResourceClaimTemplate",
    "io.k8s.api.resource.v1.ResourceSlice",
    "io.k8s.api.storage.v1.CSIDriver",
    "io.k8s.api.storage.v1.CSINode",
    "io.k8s.api.storage.v1.CSIStorageCapacity",
    "io.k8s.api.storage.v1.StorageClass",
    "io.k8s.api.storage.v1.VolumeAttachment",
    "io.k8s.api.storage.v1.VolumeAttributesClass",
    "io.k8s.api.autoscaling.v1.Scale",
    "io.k8s.api.authentication.v1.SelfSubjectReview",
    "io.k8s.api.authentication.v1.TokenRequest",
    "io.k8s.api.authentication.v1.TokenReview",
    "io.k8s.api.authorization.v1.LocalSubjectAccessReview",
    "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
    "io.k8s.api.authorization.v1.SelfSubjectRulesReview",
    "io.k8s.api.authorization.v1.SubjectAccessReview",
    "io.k8s.api.rbac.v1.ClusterRole",
    "io.k8s.api.rbac.v1.ClusterRoleBinding",
    "io.k8s.api.rbac.v1.Role",
    "io.k8s.api.rbac.v1.RoleBinding",
    "io.k8s.api.flowcontrol.v1.FlowSchema",
    "io.k8s.api.flowcontrol.v1.PriorityLevelConfiguration",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Status",
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
)
ADDITIONS: Final[dict[str, Schema]] = {
    # Announced in the node affinity design and never shipped upstream (R1-R3, ruling C5).
    "NodeAffinity": {
        "requiredDuringSchedulingRequiredDuringExecution": {
            "$ref": "#/$defs/io.k8s.api.core.v1.NodeSelector",
            "description": "Stowage's own: if the requirements are not met, the pod is not"
            " scheduled onto the node, and if they cease to be met later, it is evicted.",
        }
    },
    # The design puts the requirements beside the weight; accepted as an alias (R19, ruling C2).
    "PreferredSchedulingTerm": {
        field: {
            "type": "array",
            "items": {"$ref": "#/$defs/io.k8s.api.core.v1.NodeSelectorRequirement"},
            "description": f"Stowage's own: stands for {field} of preference.",
        }
        for field in ("matchExpressions", "matchFields")
    },
}
SPECIAL: Final = {
    "Quantity": "Quantity",
    "IntOrString": "IntOrString",
    "Time": "Time",
    "MicroTime": "MicroTime",
    "FieldsV1": "dict[str, Any]",
    "RawExtension": "dict[str, Any]",
}


def definitions() -> dict[str, Schema]:
    """Return the definitions by full name, with our additions."""
    spec = find_spec("kubernetes_validate")
    assert spec is not None, "kubernetes-validate is a development dependency"
    assert spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0])

    def of(version: str) -> dict[str, Schema]:
        path = folder / f"kubernetes-json-schema/{version}-local/_definitions.json"
        read = json.loads(path.read_text())
        return read["$defs"] if "$defs" in read else read["definitions"]

    found = of(VERSION)
    for package, version in OLDER.items():
        found |= {name: one for name, one in of(version).items() if name.startswith(package)}
    for version in ("v1beta1", "v1alpha3"):
        # A template may have templates. They are refused at the first level already, and everything
        # that goes through types would have to be prepared for a circle.
        template = found[f"io.k8s.api.scheduling.{version}.CompositePodGroupTemplate"]
        template["properties"].pop("compositePodGroupTemplates")
    for name, properties in ADDITIONS.items():
        found[f"io.k8s.api.core.v1.{name}"]["properties"].update(properties)
    return found


def _referenced(schema: Schema) -> list[str]:
    """Return the definitions that a property names, itself, as items or as map values."""
    inner = [schema, schema.get("items", {}), schema.get("additionalProperties", {})]
    return [s["$ref"].split("/")[-1] for s in inner if isinstance(s, dict) and "$ref" in s]


def _reachable(known: dict[str, Schema]) -> list[str]:
    """Return the definitions that the roots need, each after those it uses."""
    order: list[str] = []
    seen: set[str] = set()

    def walk(name: str) -> None:
        if name in seen or name.rsplit(".", 1)[-1] in SPECIAL:
            return
        seen.add(name)
        for schema in known[name].get("properties", {}).values():
            for reference in _referenced(schema):
                walk(reference)
        order.append(name)

    for root in ROOTS:
        walk(root)
    return order


def _python_names(order: list[str]) -> dict[str, str]:
    """Return the name of each definition's class: its own, without the package.

    Where two packages have one of the same name, a root keeps it, the first root before others; the
    class of the other is called after its package as well (``CoreV1ResourceClaim``).
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    for full_name in (*ROOTS, *order):
        if full_name in names:
            continue
        *_, group, version, name = full_name.split(".")
        if name in taken:
            name = f"{group.title()}{version.title()}{name}"
        taken.add(name)
        names[full_name] = name
    return names


def _type(schema: Schema, names: dict[str, str]) -> str:
    if "$ref" in schema:
        full_name: str = schema["$ref"].rsplit("/", 1)[-1]
        return SPECIAL.get(full_name.rsplit(".", 1)[-1], names.get(full_name, ""))
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next(name for name in kind if name != "null")
    if kind == "array":
        return f"list[{_type(schema['items'], names)}]"
    if kind == "object":
        values = schema.get("additionalProperties")
        return (
            f"dict[str, {_type(values, names)}]"
            if isinstance(values, dict) and values
            else "dict[str, Any]"
        )
    if schema.get("format") == "byte":
        return "Base64"
    if kind == "integer":
        return "Int64" if schema.get("format") == "int64" else "Int32"
    return {"string": "str", "boolean": "bool", "number": "float"}.get(kind or "", "Any")


def generate() -> str:
    """Return the text of ``wire_types.json``: a line for each type, as ``wire_types`` reads it."""
    known = definitions()
    order = _reachable(known)
    names = _python_names(order)
    lines = []
    for full_name in order:
        definition = known[full_name]
        properties = sorted(definition.get("properties", {}).items())
        written: dict[str, Any] = {
            "definition": full_name,
            "fields": {field: _type(schema, names) for field, schema in properties},
            "patch": {
                field: [schema.get("x-kubernetes-patch-merge-key", ""), strategy]
                for field, schema in properties
                if (strategy := schema.get("x-kubernetes-patch-strategy"))
            },
            "lists": {
                field: schema.get("x-kubernetes-list-map-keys", [])
                for field, schema in properties
                if schema.get("x-kubernetes-list-type", "atomic") != "atomic"
            },
            "atomic": definition.get("x-kubernetes-map-type") == "atomic",
        }
        for map_type in ("atomic", "granular"):
            written[f"{map_type}_fields"] = [
                field
                for field, schema in properties
                if schema.get("x-kubernetes-map-type") == map_type
            ]
        said = {key: value for key, value in written.items() if value or key == "fields"}
        lines.append(f"{json.dumps(names[full_name])}: {json.dumps(said)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def texts() -> str:
    """Return the text of ``texts.json``: by type, what it is for (``""``) and each field is for."""
    known = definitions()
    order = _reachable(known)
    names = _python_names(order)
    lines = []
    for full_name in sorted(order, key=lambda one: names[one]):
        schema = known[full_name]
        described = {"": schema, **schema.get("properties", {})}
        found = {
            field: text for field, one in described.items() if (text := one.get("description"))
        }
        lines.append(f"{json.dumps(names[full_name])}: {json.dumps(found, sort_keys=True)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    TARGET.write_text(generate())
    TEXTS.write_text(texts())
