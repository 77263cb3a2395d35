"""Which implementations a case is held against: the plain rules, and the vectorised engine."""

import sys
from collections.abc import Callable
from functools import cache

from tests import harness
from tests.conformance.cluster_cases import Case, Outcome

Run = Callable[[Case], Outcome]


@cache
def implementations(reference: Run, engine: str) -> dict[str, Run]:
    """Return the functions to run; ``engine`` names one of ``tests.harness``.

    Without that harness the plain rules alone count, which is said on standard error.
    """
    run = getattr(harness, engine, None)
    if run is None:
        print(f"ONLY THE REFERENCE IS CHECKED: tests.harness lacks {engine}", file=sys.stderr)  # noqa: T201
        return {"reference": reference}
    return {"reference": reference, "engine": run}


def check_all(
    case: Case, compare: Callable[[Case, Outcome], list[str]], reference: Run, engine: str
) -> str | None:
    """Return what differs in any implementation, None if nothing does."""
    runs = implementations(reference, engine)
    texts = [f"{name}: {text}" for name, run in runs.items() for text in compare(case, run(case))]
    return "; ".join(texts) or None
