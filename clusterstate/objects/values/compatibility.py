"""Which version of Kubernetes this service decides like, where versions differ.

``compatibility`` in the scheduler's configuration; the newest one unless it says otherwise. It
holds for admission, quotas and controllers as well. docs/compatibility.md lists what differs.
"""

from enum import IntEnum


class Compatibility(IntEnum):
    """A version of Kubernetes; a later one is greater."""

    V1_36 = 36
    V1_37 = 37
    V1_38 = 38

    @property
    def text(self) -> str:
        """The version as the configuration writes it."""
        return f"1.{self.value}"


NEWEST = max(Compatibility)


def parse(text: object) -> Compatibility | None:
    """Return the version that a configuration names, ``None`` if it is not one of them.

    YAML reads an unquoted ``1.36`` as a number.
    """
    return next((one for one in Compatibility if one.text == str(text)), None)
