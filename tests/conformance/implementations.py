"""Which implementations a case is held against: the plain rules, and the vectorised engine."""

import sys
from collections.abc import Callable
from functools import cache

from tests.conformance.cluster_cases import Case, Outcome

Run = Callable[[Case], Outcome]


@cache
def implementations(reference: Run, engine: str) -> dict[str, Run]:
    """Return the functions to run; ``engine`` names one of ``tests.harness``.

    Without that harness the plain rules alone count, which is said on standard error.
    """
    runs = {"reference": reference}
    try:
        from tests import harness
    except ImportError as error:
        print(  # noqa: T201
            f"ONLY THE REFERENCE IS CHECKED, not the engine: {error}", file=sys.stderr
        )
        return runs
    return {**runs, "engine": getattr(harness, engine)}


def check_all(
    case: Case, compare: Callable[[Case, Outcome], list[str]], reference: Run, engine: str
) -> str | None:
    """Return what differs in any implementation, None if nothing does."""
    runs = implementations(reference, engine)
    texts = [f"{name}: {text}" for name, run in runs.items() for text in compare(case, run(case))]
    return "; ".join(texts) or None
