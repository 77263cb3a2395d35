"""Counts the ended pods of a Job, each once."""

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from clusterstate.actions import objects
from clusterstate.objects.values.errors import NotFound
from clusterstate.objects.values.meta import Manifest


def count_pods(
    namespace: str,
    name: str,
    uid: str,
    status: Manifest,
    pods: Sequence[tuple[str, str]],
    *,
    finalizer: str,
    now: datetime,
) -> None:
    """Write a Job's status and release the pods (name, uid) that it counts, in one transaction.

    The finalizer marks a pod as not counted yet, so that a crash in between counts none twice.
    """
    with transaction.atomic():

        def changed(manifest: Manifest) -> Manifest:
            same = manifest["metadata"]["uid"] == uid
            return {**manifest, "status": status} if same else manifest

        try:
            objects.update("Job", namespace, name, changed, subresource="status", now=now)
        except NotFound:
            return
        for pod_name, pod_uid in pods:
            release_pod(namespace, pod_name, pod_uid, finalizer=finalizer, now=now)


def release_pod(namespace: str, name: str, uid: str, *, finalizer: str, now: datetime) -> None:
    """Remove a finalizer from a pod, if the pod exists and has it."""

    def released(manifest: Manifest) -> Manifest:
        metadata = dict(manifest["metadata"])
        if metadata["uid"] != uid:
            return manifest
        remaining = [one for one in metadata.pop("finalizers", None) or () if one != finalizer]
        if remaining:
            metadata["finalizers"] = remaining
        return {**manifest, "metadata": metadata}

    try:
        objects.update("Pod", namespace, name, released, now=now)
    except NotFound:
        return
