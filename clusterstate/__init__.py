"""The durable state of the cluster; the only user of the ORM.

Each importing only from those below it (checked by import-linter)::

    admin, management    screens and commands; formats: how the admin writes times
    local                what ``manage.py up`` needs on one machine
    actions              the only writers: one function for each thing that can happen
    access               who may do what: one function for all who ask
    catalogue, advice    what admission looks up; what a pod asks for that nothing offers
    admission            a manifest goes in, the one to store comes out, or what is wrong with it
    queries              reads: rows in, plain values out
    health               how the processes of the service see one another
    change_log           the order of all changes: revisions, followers, wake-ups
    processes            what every long-lived process needs
    database             PostgreSQL: statements, locks, sessions
    telemetry            logs, metrics, traces
    models               tables and constraints
    objects              plain values: what Kubernetes objects mean, without any storage

Beside them: ``settings`` and ``environment`` (typed settings), ``apps`` and ``middleware``
(Django), ``browser_sessions`` (signed keys of sessions).
"""

import re
from pathlib import Path


def _version() -> str:
    """Return the newest version that CHANGELOG.md names; "0" where the file was not shipped."""
    changelog = Path(__file__).resolve().parent.parent / "CHANGELOG.md"
    try:
        found = re.search(r"^## (\d+\.\d+\.\d+)", changelog.read_text(), re.MULTILINE)
    except OSError:
        return "0"
    return found[1] if found else "0"


__version__ = _version()
