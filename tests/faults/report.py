"""The table of a soak: what was done, and a column for each thing that must not happen."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from tests.faults.checkers import COLUMNS
from tests.faults.living import Outcome


def _row(cells: Iterable[Any]) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _by_kind(done: Counter[str]) -> str:
    return ", ".join(f"{title} {count}" for title, count in sorted(done.items())) or "none"


def _highest(values: Sequence[float]) -> str:
    return f"{max(values):.1f}" if values else "-"


def markdown(outcomes: Sequence[Outcome]) -> str:
    """Return two tables: what each life met, and what must be zero."""
    lines = [
        _row(["seed", "topology", "minutes", "rounds", "faults", "operations", "pods", "binds",
              "evictions", "preemptions", "watch events", "relists", "full",
              "ready after (s, most)", "easy pod (s, most)"]),
        _row(["---"] * 15),
    ]  # fmt: skip
    for one in outcomes:
        full = f"{min(one.fullness):.0%}-{max(one.fullness):.0%}" if one.fullness else "-"
        lines.append(_row([
            one.life.seed, one.life.topology, f"{one.seconds / 60:.1f}", one.rounds,
            sum(one.done.values()), sum(one.operations.values()), one.pods, one.binds,
            one.evictions, one.preemptions, one.watch_events, one.relists, full,
            _highest(one.ready_after), _highest(one.easy_after),
        ]))  # fmt: skip
    lines += ["", _row(["seed", *COLUMNS]), _row(["---"] * (len(COLUMNS) + 1))]
    for one in outcomes:
        counts = Counter(violation.column for _, violation in one.violations)
        lines.append(_row([one.life.seed, *(counts[column] for column in COLUMNS)]))
    done: Counter[str] = sum((one.done for one in outcomes), Counter())
    outcomes_of: Counter[str] = sum((one.operations for one in outcomes), Counter())
    lines += ["", f"Faults by kind: {_by_kind(done)}.", f"Operations: {_by_kind(outcomes_of)}."]
    for note in sorted({note for one in outcomes for note in one.notes}):
        lines.append(f"Note: {note}.")
    for one in outcomes:
        for number, violation in one.violations:
            lines.append(f"* {one.life.seed}, round {number}: {violation.column}: {violation.text}")
    return "\n".join(lines) + "\n"


def as_json(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Return the same for programs."""
    return [
        asdict(one) | {"done": dict(one.done), "skipped": dict(one.skipped),
                       "operations": dict(one.operations)}
        for one in outcomes
    ]  # fmt: skip
