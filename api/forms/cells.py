"""Cells of tables: shared by all printers, from durations in words to label selectors as text.

Rules: Kubernetes ``pkg/printers/internalversion/printers.go`` and its imports, v1.36. The clock is
an argument.
"""

from collections.abc import Callable, Container, Sequence
from datetime import datetime
from typing import Any

import msgspec

from clusterstate.objects.values import moments
from clusterstate.objects.values.meta import Manifest

Cells = list[Any]
NONE = "<none>"
UNKNOWN = "<unknown>"
UNSET = "<unset>"


class Column(msgspec.Struct, frozen=True):
    """A column: ``priority`` 0 is always shown, above 0 only with ``-o wide``."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0


NAME = Column("Name", format="name", description="Name must be unique within a namespace.")
AGE = Column("Age", description="Time since the object was created.")
CONTAINERS = Column("Containers", description="Names of each container.", priority=1)
IMAGES = Column("Images", description="Images referenced by each container.", priority=1)
SELECTOR = Column("Selector", description="Label selector for pods.", priority=1)
TEMPLATE = (CONTAINERS, IMAGES, SELECTOR)
"""The last columns of what makes pods by a template."""


def parse_time(text: Any) -> datetime | None:
    """Return RFC 3339 text as an aware time, None when absent or unreadable."""
    if not isinstance(text, str) or not text:
        return None
    try:
        return moments.parse(text)
    except ValueError:
        return None


def human_duration(seconds: float) -> str:
    """Return a duration in at most two units. Rule: apimachinery ``duration.go``, v1.36."""
    total = int(seconds)
    if total < -1:
        return "<invalid>"
    if total < 0:
        return "0s"
    if total < 120:
        return f"{total}s"
    minutes = total // 60
    if minutes < 10:
        rest = total % 60
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = total // 3600
    if hours < 8:
        rest = minutes % 60
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        rest = hours % 24
        return f"{hours // 24}d{rest}h" if rest else f"{hours // 24}d"
    if hours < 24 * 365 * 2:
        return f"{hours // 24}d"
    if hours < 24 * 365 * 8:
        days = hours // 24 % 365
        return f"{hours // 24 // 365}y{days}d" if days else f"{hours // 24 // 365}y"
    return f"{hours // 24 // 365}y"


def age_of(text: Any, now: datetime) -> str:
    """Return how long ago a time in RFC 3339 was."""
    time = parse_time(text)
    return UNKNOWN if time is None else human_duration((now - time).total_seconds())


def created(item: Manifest, now: datetime) -> str:
    """Return how old an object is."""
    return age_of(item["metadata"].get("creationTimestamp"), now)


def name_of(item: Manifest) -> str:
    """Return the name of an object."""
    return str(item["metadata"].get("name", ""))


def containers_of(spec: Manifest) -> tuple[str, str]:
    """Return the names and the images of a pod spec's containers."""
    containers = spec.get("containers") or []
    return (
        ",".join(c.get("name", "") for c in containers),
        ",".join(c.get("image", "") for c in containers),
    )


def format_selector(selector: Manifest | None) -> str:
    """Return a label selector as text. Rule: apimachinery ``meta/v1/helpers.go``, v1.36."""
    if selector is None:
        return NONE
    texts = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for requirement in selector.get("matchExpressions") or []:
        key, operator = requirement.get("key", ""), requirement.get("operator", "")
        values = ",".join(sorted(requirement.get("values") or []))
        text = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }.get(operator, "")
        texts.append((key, text))
    return ",".join(text for _, text in sorted(texts)) or NONE


def balancers_of(status: Manifest) -> list[str]:
    """Return the addresses of a load balancer, or host names in place of missing ones, each once.

    Rule: ``loadBalancerStatusStringer``.
    """
    ingresses = (status.get("loadBalancer") or {}).get("ingress") or ()
    return sorted({one.get("ip") or one.get("hostname") or "" for one in ingresses} - {""})


def joined(address: str, port: int) -> str:
    """Return an address with a port. Rule: Go's ``net.JoinHostPort``."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def condition_of(status: Manifest, name: str) -> str:
    """Return the status of a condition, empty where there is none."""
    for condition in status.get("conditions") or []:
        if condition.get("type") == name:
            return str(condition.get("status", ""))
    return ""


Filler = Callable[[Manifest, datetime], Cells]
"""Returns the cells of an object's row but those of ``NAME`` and ``AGE``, as a list of its own."""


class Printer(msgspec.Struct, frozen=True):
    """The columns of a kind and the function for their cells.

    ``name`` returns the cell of ``NAME``. ``conditions`` returns those of an object's row.
    ``defaults`` returns the names that ``(default)`` stands behind in a list of these objects.
    ``place`` returns what the rows of a list are sorted by, where they do not stand in the order of
    the list.
    """

    columns: list[Column]
    fill: Filler
    name: Callable[[Manifest], str] = name_of
    conditions: Callable[[Manifest], list[Manifest]] | None = None
    defaults: Callable[[Sequence[Manifest]], Container[str]] | None = None
    place: Callable[[Manifest], Any] | None = None

    def cells(self, item: Manifest, now: datetime, defaults: Container[str] = ()) -> Cells:
        """Return the row of an object: a cell for each column."""
        found = self.fill(item, now)
        for at, column in enumerate(self.columns):
            if column is NAME:
                mark = " (default)" if name_of(item) in defaults else ""
                found.insert(at, self.name(item) + mark)
            elif column is AGE:
                found.insert(at, created(item, now))
        return found


class Printers(dict[str, Printer]):
    """Printers by the name of their kind; ``of`` adds one."""

    def of(
        self,
        kind: str,
        *columns: Column | str,
        name: Callable[[Manifest], str] = name_of,
        conditions: Callable[[Manifest], list[Manifest]] | None = None,
        defaults: Callable[[Sequence[Manifest]], Container[str]] | None = None,
        place: Callable[[Manifest], Any] | None = None,
    ) -> Callable[[Filler], Filler]:
        """Return a decorator for the function that fills the columns of a kind.

        Columns may be given as one text: ``name``, ``name:type`` or ``name:type:priority`` each,
        joined by a comma and a space.
        """

        def add(fill: Filler) -> Filler:
            chosen: list[Column] = []
            for one in columns:
                chosen += [one] if isinstance(one, Column) else map(_column, one.split(", "))
            self[kind] = Printer(chosen, fill, name, conditions, defaults, place)
            return fill

        return add


def _column(text: str) -> Column:
    name, _, rest = text.partition(":")
    type_, _, priority = rest.partition(":")
    return Column(name, type=type_ or "string", priority=int(priority or 0))
