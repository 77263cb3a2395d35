"""Area schedulevolumes: the whole default profile over worlds with volumes."""

from tests import harness
from tests.conformance.area_schedule import compare
from tests.conformance.cluster_cases import Case

UNREAD = {"kind"}
"""How many nodes are feasible."""


def check(case: Case) -> str | None:
    """Return what differs, None if nothing does."""
    return (
        "; ".join(compare(case, harness.run_schedule_case(case, harness.whole_framework()))) or None
    )
