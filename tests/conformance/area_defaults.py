"""API defaulting: a manifest in, the defaulted manifest out."""

from __future__ import annotations

import copy
from typing import Any

from clusterstate.admission.defaults import default_pod_only, set_defaults
from tests.conformance.manifests import difference


def check(case: dict[str, Any]) -> str | None:
    manifest = copy.deepcopy(case["object"])
    if case["kind"] == "PodOnly":
        default_pod_only(manifest)
    else:
        set_defaults(case["kind"], manifest)
    return difference(case["result"], manifest)
