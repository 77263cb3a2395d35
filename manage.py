#!/usr/bin/env python3
"""Run a management command: ``manage.py up``, ``manage.py migrate``, ``manage.py help``."""

import os
import sys

from clusterstate import __version__
from clusterstate.processes import collector


def main() -> None:
    """Run the command named on the command line with the project's settings."""
    # The command `stowage` runs this file; usage and errors then say what was typed.
    sys.argv[0] = os.environ.pop("STOWAGE_PROGRAM", sys.argv[0])
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"Stowage {__version__}\n")
        return
    if sys.argv[1:2] != ["up"]:  # the answer of a command is its output, not how it came about
        os.environ.setdefault("STOWAGE_LOG_LEVEL", "WARNING")
    collector.seldom()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "clusterstate.settings")
    from django.core.management import execute_from_command_line
    from django.db import Error as DatabaseError

    from clusterstate.environment import BadSetting

    try:
        execute_from_command_line(sys.argv)
    except BadSetting as error:
        sys.exit(f"error: {error}")
    except DatabaseError:
        from clusterstate.local import preparation

        # Any command may be typed before the service was started, or before `prepare`.
        if reason := preparation.what_is_wrong():
            sys.exit(f"error: {reason}")
        raise


if __name__ == "__main__":
    main()
