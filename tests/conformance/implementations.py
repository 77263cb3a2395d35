"""Every case is held against both implementations: the plain rules and the vectorised engine."""

from collections.abc import Callable

from tests.conformance.cluster_cases import Case, Outcome

Run = Callable[[Case], Outcome]


def check_all(
    case: Case, compare: Callable[[Case, Outcome], list[str]], *, reference: Run, engine: Run
) -> str | None:
    """Return what differs in either implementation, None if nothing does."""
    runs = {"reference": reference, "engine": engine}
    texts = [f"{name}: {text}" for name, run in runs.items() for text in compare(case, run(case))]
    return "; ".join(texts) or None
