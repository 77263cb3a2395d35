#!/usr/bin/env python3
"""Run a management command: ``manage.py up``, ``manage.py migrate``, ``manage.py help``."""

import os
import sys

from django.core.management import execute_from_command_line


def main() -> None:
    """Run the command named on the command line with the project's settings."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "clusterstate.settings")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
