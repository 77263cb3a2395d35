"""Shapes of pods in a line of text: ``small=cpu:500m memory:1Gi, large=cpu:8 memory:32Gi``."""

import re
from typing import Final

import msgspec

from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.quantity import QuantityError, milli_value, value

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
_MOST: Final = 50


class ShapeError(ValueError):
    """A text is not a list of shapes; the message names the error."""


class Shape(msgspec.Struct, frozen=True):
    """Amounts of resources under a name."""

    name: str
    requests: dict[str, str]

    def pod(self) -> Manifest:
        """Return a pod that requests these amounts and nothing else."""
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.name, "namespace": "default"},
            "spec": {
                "containers": [
                    {"name": "main", "image": "none", "resources": {"requests": self.requests}}
                ]
            },
        }


def parse(text: str) -> tuple[Shape, ...]:
    """Return the shapes of a text, none for an empty one.

    Raises:
        ShapeError: the text is wrong.
    """
    found: dict[str, Shape] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, sign, amounts = part.partition("=")
        if not sign or not _NAME.fullmatch(name):
            raise ShapeError(f"{part!r} does not begin with a name and =")
        if name in found:
            raise ShapeError(f"{name!r} is there twice")
        requests: dict[str, str] = {}
        for resource, amount in _amounts(amounts):
            try:
                milli_value(amount) if resource == "cpu" else value(amount)
            except QuantityError:
                raise ShapeError(f"{amount!r} of {resource!r} is not a quantity") from None
            requests[resource] = amount
        found[name] = Shape(name, requests)
    if len(found) > _MOST:
        raise ShapeError(f"there are {len(found)} shapes; at most {_MOST} are allowed")
    return tuple(found.values())


def _amounts(text: str) -> list[tuple[str, str]]:
    """Return resources and amounts of ``cpu:2 memory:1Gi example.com/gpu:1``."""
    found = []
    for part in text.split():
        resource, sign, amount = part.rpartition(":")
        if not sign or not resource or not amount:
            raise ShapeError(f"{part!r} is not of the form resource:amount")
        found.append((resource, amount))
    if not found:
        raise ShapeError("a shape requests no resources")
    return found
