"""How many more pods of several usual sizes fit now, and what rejects the next one of each.

The answer is cached until the cluster changes, so that scrapes of ``/metrics``, pages and commands
share it.
"""

import msgspec
from django.conf import settings

from clusterstate.admission.defaults import set_defaults
from clusterstate.objects.values.errors import StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import Pod
from scheduling.answers.live import LiveWorld
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.copying import copy_snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.outcomes import PluginFailed
from scheduling.plugins.catalogue import build_framework
from scheduling.simulation.document import API_VERSION
from scheduling.simulation.headroom import KIND, headroom_of
from scheduling.worker import profiles


def room_left(world: LiveWorld, document: object) -> Manifest:
    """Return ``items``, a Headroom for each shape in the settings, and the ``revision``.

    ``document`` is not read. Queries five times at most.
    """
    snapshot = world.snapshot()
    items = world.keep("room", lambda: _counted(snapshot, world))
    return {"items": items, "revision": world.revision}


def _counted(snapshot: Snapshot, world: LiveWorld) -> list[Manifest]:
    items = []
    configuration = profiles.in_force()[1]
    for shape in settings.HEADROOM_SHAPES:
        world.go_on()
        manifest = shape.pod()
        set_defaults("Pod", manifest)
        info = from_pod(msgspec.convert(manifest, Pod))
        profile = configuration.profile(info.scheduler_name)
        if profile is None:
            continue
        # Pods of such a shape are counted, and nothing of it stays, where no plugin of another
        # package filters; then they are placed.
        framework = build_framework(profile)
        own = copy_snapshot(snapshot) if framework.filters_by_itself else snapshot
        try:
            status = headroom_of(own, framework, own.intern(info), go_on=world.go_on)
        except PluginFailed as failure:
            raise StatusError(failure.status.message) from failure
        nodes = status.pop("nodes")
        items.append(
            {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "metadata": {"name": shape.name},
                "spec": {"requests": shape.requests},
                "status": {**status, "nodeCount": len(nodes)},
            }
        )
    return items
