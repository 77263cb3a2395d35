"""Run the conformance vectors: ``python -m tests.conformance.runner [AREA ...]``.

Reads every ``*.jsonl`` of the folders that ``CONFORMANCE_VECTORS`` names (several are separated as
in PATH). The part of a file name before the first dot is the area; ``area_<name>.py`` beside this
module judges its cases. A field of cases that no judgement looks at counts as a failure, unless
``UNREAD`` of the area's module names it. Prints one row per area (``area passed failed skipped``)
and a total last; what went wrong goes to stderr. Exit status 1 if anything failed.
"""

import argparse
import importlib
import json
import os
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from tests.conformance import Skip

PROJECT = Path(__file__).resolve().parents[2]
OWN_FOLDER = Path(__file__).parent / "vectors"
DEFAULT_FOLDERS = [OWN_FOLDER, PROJECT / "../shared/vectors", PROJECT / "../shared/vectors-next"]
# Areas that are recorded and that nothing here can judge yet: their cases are skipped.
NOT_JUDGED_YET: set[str] = set()
Check = Callable[[dict[str, Any]], str | None]
_ALWAYS_UNREAD = frozenset({"id", "origin", "source"})
_WITH_SWITCHES = ("args", "context", "featureGates", "gates", "options", "world")
"""Fields whose members are switches and worlds, each of which has to be looked at, too."""


class Outcome(NamedTuple):
    """What became of one line of a file: ``passed``, ``failed`` or ``skipped``, and why."""

    area: str
    case: str
    verdict: str
    message: str = ""


class Looked(dict[str, Any]):
    """An object of a case that remembers which of its members were looked at.

    Whoever goes through all members looks at each.
    """

    def __init__(self, members: dict[str, Any]) -> None:
        super().__init__(members)
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a member, which was looked at also where it is not there."""
        self.names.add(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        self.names.update(super().keys())
        return super().__iter__()

    def items(self) -> Any:
        """Return all members, which are looked at herewith."""
        self.names.update(super().keys())
        return super().items()


def looked_at(case: dict[str, Any]) -> tuple[Looked, dict[str, Looked]]:
    """Return the case and its switches so that they remember what was looked at."""
    inner = {
        name: Looked(case[name]) for name in _WITH_SWITCHES if isinstance(case.get(name), dict)
    }
    return Looked({**case, **inner}), inner


class Unread:
    """Which fields the cases of an area have, and which of them nobody looked at.

    An empty field says nothing.
    """

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}
        self._read: set[str] = set()

    def note(self, label: str, case: Looked, inner: dict[str, Looked]) -> None:
        """Count in what was looked at in a case."""
        self._read |= case.names
        for name, value in dict.items(case):
            if value:
                self._seen.setdefault(name, label)
        for name, members in inner.items():
            self._read |= {f"{name}.{member}" for member in members.names}
            for member in dict.keys(members):
                self._seen.setdefault(f"{name}.{member}", label)

    def fields(self, known: frozenset[str]) -> dict[str, str]:
        """Return the fields that nobody looked at, and the first case that has each."""
        passed_over = self._read | known | _ALWAYS_UNREAD
        return {
            name: label for name, label in self._seen.items()
            if name not in passed_over and name.partition(".")[0] not in known
        }  # fmt: skip


def folders() -> list[Path]:
    """Return where the vectors are expected."""
    named = os.environ.get("CONFORMANCE_VECTORS")
    return [Path(name) for name in named.split(os.pathsep) if name] if named else DEFAULT_FOLDERS


def missing(where: list[Path]) -> str:
    """Return the message for folders that are not there."""
    names = ", ".join(map(str, where))
    return f"no vectors at {names}: set CONFORMANCE_VECTORS to the folder that holds *.jsonl files"


def files(where: list[Path]) -> dict[str, list[Path]]:
    """Return the files of each area in all folders, areas sorted; a missing folder has none."""
    found: dict[str, list[Path]] = {}
    for path in sorted(path for each in where for path in each.glob("*.jsonl")):
        found.setdefault(path.name.split(".", 1)[0], []).append(path)
    return dict(sorted(found.items()))


def not_judged(case: dict[str, Any]) -> str | None:
    """Skip a case of an area that is not judged yet."""
    raise Skip("this area is not judged yet")


def load(area: str) -> Check | str:
    """Return the function that judges an area's cases, or why there is none."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", area):
        return f"unknown area {area!r}"
    name = f"tests.conformance.area_{area}"
    try:
        check: Check = importlib.import_module(name).check
    except ModuleNotFoundError as error:
        if error.name == name and area in NOT_JUDGED_YET:
            return not_judged
        if error.name == name:
            return f"unknown area {area!r}: there is no {name}"
        return f"cannot load {name}: {error}"
    except Exception as error:  # noqa: BLE001  # a broken area must not hide the others
        return f"cannot load {name}: {type(error).__name__}: {error}"
    return check


def judge(check: Check | str, area: str, label: str, line: str, unread: Unread) -> Outcome:
    """Return the outcome of one line; ``unread`` is told what was looked at."""
    try:
        case = json.loads(line)
    except ValueError as error:
        return Outcome(area, label, "failed", f"not JSON: {error}")
    if not isinstance(case, dict):
        return Outcome(area, label, "failed", "not an object")
    label = str(case.get("id", label))
    if isinstance(check, str):
        return Outcome(area, label, "failed", check)
    case, inner = looked_at(case)
    try:
        difference = check(case)
        unread.note(label, case, inner)
    except Skip as reason:
        return Outcome(area, label, "skipped", str(reason))
    except Exception as error:  # noqa: BLE001  # any exception is a failed case
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}:{where.lineno}"
        return Outcome(area, label, "failed", f"{type(error).__name__}: {error} ({place})")
    if difference is None:
        return Outcome(area, label, "passed")
    return Outcome(area, label, "failed", difference)


def run_area(area: str, paths: list[Path]) -> Iterator[Outcome]:
    """Yield the outcome of every line of an area's files; blank lines are nothing."""
    check = load(area)
    module = sys.modules.get(f"tests.conformance.area_{area}")
    known: frozenset[str] = frozenset(getattr(module, "UNREAD", ()))
    unread = Unread()
    for path in paths:
        try:
            with path.open(encoding="utf-8") as lines:
                for number, line in enumerate(lines, 1):
                    if line.strip():
                        yield judge(check, area, f"{path.name}:{number}", line, unread)
        except (OSError, UnicodeDecodeError) as error:
            yield Outcome(area, path.name, "failed", f"cannot read: {error}")
    for field, label in unread.fields(known).items():
        yield Outcome(area, label, "failed", f"nobody looks at the field {field!r}")


def main(arguments: list[str], out: TextIO, log: TextIO) -> int:
    """Run and print; return the exit status."""
    parser = argparse.ArgumentParser(prog="tests.conformance.runner", description=__doc__)
    parser.add_argument("areas", nargs="*", help="run only these areas")
    parser.add_argument("-v", "--verbose", action="store_true", help="show every failure and skip")
    options = parser.parse_args(arguments)
    where = folders()
    if not any(each.is_dir() for each in where):
        print(f"skipped: {missing(where)}", file=log)
        print("0 passed, 0 failed, 0 skipped", file=out)
        return 0
    by_area = files(where)
    if options.areas:
        by_area = {area: by_area.get(area, []) for area in options.areas}
    width = max(map(len, by_area), default=0)
    total: Counter[str] = Counter()
    for area, paths in by_area.items():
        counts: Counter[str] = Counter()
        shown, last = 0, ""
        for outcome in run_area(area, paths):
            counts[outcome.verdict] += 1
            if outcome.verdict == "passed":
                continue
            if (options.verbose and outcome.message != last) or (
                outcome.verdict == "failed" and shown < 3
            ):
                shown += 1
                last = outcome.message
                message = outcome.message if options.verbose else outcome.message[:400]
                print(f"{outcome.verdict} {outcome.case}: {message}", file=log)
        print(
            f"{area:<{width}} {counts['passed']:>6} {counts['failed']:>6} {counts['skipped']:>6}",
            file=out,
            flush=True,
        )
        total += counts
    print(
        f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped", file=out
    )
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], sys.stdout, sys.stderr))
