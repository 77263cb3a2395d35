"""Conditions of many PodGroups at once, for the scheduler."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from django.db import transaction

from clusterstate.actions.writing.deadlocks import again_after_deadlock
from clusterstate.actions.writing.stored_rows import lock_rows, update_documents
from clusterstate.change_log import changes
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.document import encode
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod_group import GroupKey, with_condition

_KIND: Final = KINDS["PodGroup"]


def set_conditions(new_conditions: Mapping[GroupKey, tuple[Manifest, datetime]]) -> int:
    """Write a condition of each group, with its time, in one transaction; return how many changed.

    Missing groups are left out. Admission is skipped, since only the status changes.
    """

    def work() -> int:
        with transaction.atomic():
            versions = []
            for row in lock_rows(_KIND, list(new_conditions)):
                condition, at = new_conditions[row.namespace, row.name]
                manifest = row.manifest()
                status = manifest.get("status") or {}
                conditions = with_condition(
                    status.get("conditions") or (), condition, now=at,
                    generation=manifest["metadata"].get("generation") or 0,
                )  # fmt: skip
                if conditions is not None:
                    new = {**manifest, "status": {**status, "conditions": conditions}}
                    versions.append((row, new, encode(_KIND.name, new)[0]))
            if versions:
                latest = max(at for _, at in new_conditions.values())
                revisions = update_documents(_KIND, versions, now=latest)
                changes.announce(max(revisions), (_KIND.name,))
            return len(versions)

    return again_after_deadlock(work) if new_conditions else 0
