"""Choose the vectors that come along with the project: ``python -m tests.conformance.choose``.

Of all vectors in the folders that `runner` reads, those come to ``tests/conformance/vectors`` that
take a way through the product's code which no smaller choice takes. A way is three lines that are
run one after another in a function, once, twice, or more often, or a small value that a function
returns. Of each area vectors are chosen greedily, by the ways that are new for each byte. Two that
take the same ways catch the same broken branches. What no way shows are bounds and arithmetic on
whole columns: every twentieth vector comes as well. Long vectors and those that fail now do not.
"""

import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, Final

from tests.conformance import runner

_PRODUCT: Final = tuple(f"{runner.PROJECT / place}/" for place in ("clusterstate", "scheduling"))
_OFTEN: Final = 4
_EVERY: Final = 20
_MOST_BYTES: Final = 2500
_SMALL: Final = (None, False, True, -1, 0, 1, 2, "", ())


def ways_of(work: Callable[[], Any]) -> tuple[Any, set[Any]]:
    """Return what a function returns, and the ways it takes through the product's code."""
    taken: Counter[Any] = Counter()
    returned: set[Any] = set()

    def follow(frame: FrameType, event: str, _: object) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(_PRODUCT):
            return None
        before, last = 0, frame.f_lineno

        def line(frame: FrameType, event: str, value: Any) -> Any:
            nonlocal before, last
            if event == "line":
                taken[file, before, last, frame.f_lineno] += 1
                before, last = last, frame.f_lineno
            elif event == "return" and any(value is one for one in _SMALL):
                returned.add((file, frame.f_lineno, repr(value)))
            return line

        return line

    sys.settrace(follow)
    try:
        done = work()
    finally:
        sys.settrace(None)
    return done, returned | {
        (way, often) for way, count in taken.items() for often in range(min(count, _OFTEN))
    }


def chosen(ways: dict[str, set[Any]]) -> list[str]:
    """Return lines that together take every way that any takes; more for fewer bytes first."""
    left: set[Any] = set().union(*ways.values())
    found = []
    open_lines = dict(ways)
    while left:
        best = max(open_lines, key=lambda line: (len(open_lines[line] & left) / len(line), line))
        gained = open_lines.pop(best) & left
        if not gained:
            break
        found.append(best)
        left -= gained
        open_lines = {line: new for line, taken in open_lines.items() if (new := taken & left)}
    return found


def main(areas: list[str]) -> None:
    """Choose for each area, and print how many of how many."""
    runner.OWN_FOLDER.mkdir(exist_ok=True)
    recorded = [folder for folder in runner.folders() if folder != runner.OWN_FOLDER]
    for area, paths in runner.files(recorded).items():
        check = runner.load(area)
        if check is runner.not_judged or (areas and area not in areas):
            continue
        lines = [line for path in paths for line in path.read_text().splitlines() if line.strip()]
        for line in lines:  # what is remembered of one case would hide the ways of the next
            runner.judge(check, area, "", line)
        ways = {}
        for line in lines:
            outcome, taken = ways_of(partial(runner.judge, check, area, "", line))
            if outcome.verdict == "passed":
                ways[line] = taken
        kept = {*chosen(ways), *list(ways)[::_EVERY]}
        text = "".join(f"{one}\n" for one in lines if one in kept and len(one) <= _MOST_BYTES)
        (runner.OWN_FOLDER / f"{area}.chosen.jsonl").write_text(text)
        print(f"{area}: {text.count(chr(10))} of {len(lines)}, {len(text)} bytes", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
