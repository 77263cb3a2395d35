"""The score of an allocation: how early the chosen alternatives of requests are.

Rules: kube-scheduler ``dynamicresources.go`` ``computeScore`` and ``NormalizeScore``, v1.36.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from clusterstate.objects.dra.resourceclaim import requests_of
from clusterstate.objects.values.meta import Manifest

MOST_ALTERNATIVES: Final = 8
"""Subrequests that one request can have (resource/v1 ``FirstAvailableDeviceRequestMaxSize``)."""


def allocation_score(claims: Sequence[Manifest], allocations: Sequence[Manifest]) -> int:
    """Return the score of allocations: 8 for each first choice, 1 for each eighth."""
    total = 0
    for claim, allocation in zip(claims, allocations, strict=True):
        results = (allocation.get("devices") or {}).get("results") or ()
        used = {result["request"] for result in results}
        for request in requests_of(claim):
            for place, sub in enumerate(request.get("firstAvailable") or ()):
                if f"{request['name']}/{sub['name']}" in used:
                    total += MOST_ALTERNATIVES - place
                    break
    return total


def normalize(scores: Mapping[str, int]) -> dict[str, int]:
    """Return scores from 0 to 100; where nothing was scored all stay 0."""
    most = max(scores.values(), default=0)
    return {name: score * 100 // most if most else score for name, score in scores.items()}
