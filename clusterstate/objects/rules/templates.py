"""Which pod templates are equal.

Templates stored by an earlier version lack newer defaults, and have amounts as they were sent and
fields that pods do not have. Treating such a template as changed would replace all pods of its
owner.
"""

from clusterstate.objects.registry import quantity_places, schema, wire_types
from clusterstate.objects.values.meta import Manifest


def same_template(one: Manifest, other: Manifest) -> bool:
    """Return whether two pod templates are equal once amounts and names are normalised.

    Rule: ``equality.Semantic``, apimachinery ``api/equality/semantic.go``, v1.36.
    """
    return one == other or _canonical(one) == _canonical(other)


def _canonical(template: Manifest) -> Manifest:
    canonical = quantity_places.of_template(template)
    schema.drop_unknown_of(canonical, wire_types.PodTemplateSpec)
    name_account(canonical.get("spec") or {})
    return canonical


def name_account(spec: Manifest) -> None:
    """Set both ``serviceAccountName`` and the deprecated ``serviceAccount``, if one is set.

    Rule: pkg/apis/core/v1/conversion.go, v1.36.
    """
    if name := spec.get("serviceAccountName") or spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"] = name
