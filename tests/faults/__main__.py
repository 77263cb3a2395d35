"""`python -m tests.faults`: run lives with faults until the minutes are over, and report.

Ends with 0 when every column of what must not happen is zero, with 1 otherwise; then the schedule
that failed is kept, shrunk to the shortest that still fails, and can be run again by --replay.
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

from tests import leftovers
from tests.faults import report, schedule
from tests.faults.living import Living, Outcome
from tests.faults.schedule import Life
from tests.faults.shrink import shrink


def say(line: str) -> None:
    """Print a line with the time before it."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stderr.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--minutes", type=float, default=90)
    parser.add_argument("--seed", default="", help="any text; by default drawn anew and told")
    parser.add_argument("--life", type=float, default=30, help="minutes until a new service")
    parser.add_argument("--rate", type=float, default=25, help="operations a second")
    parser.add_argument("--patience", type=float, default=1, help="factor on every time limit")
    parser.add_argument("--schedulers", type=int, default=1, help="how many work at a time")
    parser.add_argument("--topology", choices=("both", "own", "apart"), default="both")
    parser.add_argument("--replay", type=Path, help="run the life in this file")
    parser.add_argument("--shrink-minutes", type=float, default=30)
    parser.add_argument("--output", type=Path, default=Path("soak"), help="folder for the reports")
    return parser.parse_args()


def _live(life: Life, options: argparse.Namespace, folder: Path) -> Outcome:
    living = Living(
        life, say=say, folder=folder, patience=options.patience, rate=options.rate,
        schedulers=options.schedulers,
    )  # fmt: skip
    return living.run()


def _shrink(life: Life, column: str, options: argparse.Namespace) -> Life:
    """Return the shortest schedule for which the same column is not zero."""
    end = time.monotonic() + options.shrink_minutes * 60

    def fails(rounds: list[schedule.Round]) -> bool:
        if time.monotonic() > end:
            return False
        shorter = Life(life.seed, life.topology, rounds, life.minutes)
        say(f"shrinking: {len(rounds)} rounds")
        try:
            outcome = _live(shorter, options, options.output)
        except RuntimeError as error:
            say(f"shrinking: {error}")
            return False
        return any(violation.column == column for _, violation in outcome.violations)

    rounds = shrink(life.rounds, fails)
    return Life(life.seed, life.topology, rounds, life.minutes)


def main() -> int:
    """Run; return the exit code."""
    options = _arguments()
    leftovers.watch()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # as Ctrl-C: everything is removed
    options.output.mkdir(parents=True, exist_ok=True)
    seed = options.seed or os.urandom(4).hex()
    end = time.monotonic() + options.minutes * 60
    outcomes: list[Outcome] = []
    failed: list[tuple[Life, str]] = []
    lives = [Life.from_json(json.loads(options.replay.read_text()))] if options.replay else []
    number = 0
    say(f"seed {seed}, {options.minutes:g} minutes; reports go to {options.output}")
    while (left := (end - time.monotonic()) / 60) > 1 or (options.replay and number < len(lives)):
        if options.replay:
            if number == len(lives):
                break
            life = lives[number]
        else:
            index = number if options.topology == "both" else 2 * number
            index += options.topology == "apart"
            minutes = min(options.life, left)
            # Whoever may mount has a small disk to fill; whether the clock moves shows there too.
            life = schedule.life(seed, index, minutes, small_disk=os.geteuid() == 0, clock=True)
        number += 1
        outcome = _live(life, options, options.output)
        outcomes.append(outcome)
        if outcome.violations:
            last = max(count for count, _ in outcome.violations)
            column = outcome.violations[0][1].column
            shown = Life(life.seed, life.topology, life.rounds[:last], life.minutes)
            failed.append((shown, column))
            _save(options.output, shown, "failing")
        text = report.markdown(outcomes)
        (options.output / f"soak-{seed}.md").write_text(text)
        (options.output / f"soak-{seed}.json").write_text(
            json.dumps(report.as_json(outcomes), indent=1, default=str)
        )
    for life, column in failed[:1]:
        if options.shrink_minutes > 0 and not options.replay:
            shortest = _shrink(life, column, options)
            file = _save(options.output, shortest, "shortest")
            say(f"{column}: {len(shortest.rounds)} rounds still fail; --replay {file}")
    sys.stdout.write(report.markdown(outcomes))
    return 1 if failed else 0


def _save(folder: Path, life: Life, what: str) -> Path:
    file = folder / f"{what}-{life.seed.replace('/', '-')}.json"
    file.write_text(json.dumps(life.to_json(), indent=1))
    return file


if __name__ == "__main__":
    sys.exit(main())
