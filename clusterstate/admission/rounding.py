"""Amounts are stored in whole thousandths: finer ones are rounded up.

Rule: ``SetDefaults_ResourceList`` of pkg/apis/core/v1/defaults.go, which the generated
``zz_generated.defaults.go`` calls for every list of resources, v1.36.
"""

from typing import Any, Final

from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.quantity import Quantity, QuantityError

_FINE: Final = ("n", "u", ".", "e-", "E-")
"""An amount in which none of these stands is a multiple of a thousandth."""


def round_up(amounts: dict[str, Any]) -> None:
    """Round amounts up to whole thousandths, as the API server does on defaulting."""
    for name, value in amounts.items():
        if not any(sign in str(value) for sign in _FINE):
            continue
        try:
            rounded, exact = Quantity.parse(value).round_up(-3)
        except QuantityError:
            continue  # validation names the field
        if not exact:
            amounts[name] = str(rounded)


def round_up_requirements(resources: Manifest) -> None:
    """Round the limits and the requests of a container, a pod or a claim."""
    for field in ("limits", "requests"):
        if amounts := resources.get(field):
            round_up(amounts)
