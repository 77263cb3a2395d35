"""The durable state of the cluster; the only user of the ORM.

Each importing only from those below it (checked by import-linter)::

    admin, management    screens and commands; formats: how the admin writes times
    local                what ``manage.py up`` needs on one machine
    actions              the only writers: one function for each thing that can happen
    access               who may do what: one function for all who ask
    catalogue, advice    what admission looks up; what a pod asks for that nothing offers
    admission            a manifest goes in, the one to store comes out, or what is wrong with it
    queries              reads: rows in, plain values out
    changes              the change log: taking revisions, reading what came after one
    models               tables and constraints
    objects              plain values: what Kubernetes objects mean, without any storage

Around the log: ``lineage`` (what a revision promises), ``wake`` (hints that something was
committed), ``actors`` (who made a change), ``pod_log`` (changes of pods in columns), ``blocks``
(changes packed for the past). Reads beside the queries: ``decisions``, ``dependents``,
``reservations``, ``bulk`` (a million rows as NumPy columns).

How the parts of the service see one another: ``heartbeats``, ``progress`` (whether work is done),
``aside`` (objects that followers set aside), ``shards`` (names by a scheduler's number),
``sessions`` (ending those that hold up everybody), ``slowness`` (how long others wait for a slow
process), ``locks`` (every advisory lock),
``steady_clock`` (the time by which what is due is done), ``memory`` (what a process remembers of
rows), ``collector`` (garbage), ``priority`` (threads that yield processors), ``troubles`` (telling
what lasts in few lines).

``schema`` tells whether the database has the tables of this version.

Technique: ``settings``, ``environment``, ``apps``, ``middleware``, ``logs``, ``metrics``,
``tracing``, ``postgres`` (sessions that notice a silent server), ``sql`` (prepared statements),
``archive`` (backups), ``arrow`` (columns for others), ``private_files`` (files that hold secrets),
``browser_sessions`` (signed keys of sessions).
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
