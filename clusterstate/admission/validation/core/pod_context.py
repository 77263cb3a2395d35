"""The fields of a pod on which the validation of its containers depends.

Rules: pkg/apis/core/validation/validation.go, v1.36.
"""

from collections.abc import Collection
from typing import Final

from clusterstate.admission.validation.core.options import PodOptions
from clusterstate.objects.values.meta import Manifest

PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
"""The image pull policies of containers and of image volumes."""

Volumes = dict[str, Manifest]
"""The valid volumes by name."""


class PodContext:
    """The fields of a pod on which the validation of a container depends."""

    __slots__ = (
        "claim_names",
        "grace_period",
        "host_users",
        "options",
        "os",
        "restart_policy",
        "volumes",
    )

    def __init__(
        self, spec: Manifest, volumes: Volumes, claim_names: Collection[str], options: PodOptions
    ) -> None:
        self.volumes = volumes
        self.claim_names = claim_names
        self.options = options
        self.grace_period: int | None = spec.get("terminationGracePeriodSeconds")
        self.restart_policy: str = spec.get("restartPolicy") or ""
        self.os: str = (spec.get("os") or {}).get("name") or ""
        self.host_users: bool = spec.get("hostUsers") is not False
