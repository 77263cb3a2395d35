"""How long a token works, as a command's option says it: `90d`, `12h`, `30m`, or `never`."""

import argparse
import re
from datetime import timedelta

_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
_LONGEST = timedelta(days=36500)


def lifetime(text: str) -> timedelta | None:
    """Return the time, `None` for `never`.

    Raises:
        argparse.ArgumentTypeError: it is neither.
    """
    if text == "never":
        return None
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([dhms])", text, re.ASCII)
    if not found:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time like 90d, 12h, 30m or 45s, and not `never`"
        )
    time = timedelta(**{_UNITS[found[2]]: float(found[1])})
    if not timedelta(0) < time <= _LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r} must be more than 0 and at most 36500d")
    return time
