"""A scheduling worker of parts: a mirror, a binder over it, and decisions without a loop."""

from scheduling.engine.queue.pending import Backoff
from scheduling.engine.reference.cycle import Options, PodToPlace, schedule_batch
from scheduling.engine.reference.decision import Decisions
from scheduling.framework.configuration.documents import default_configuration
from scheduling.framework.runtime import Framework
from scheduling.plugins.queueing_hints import registrations
from scheduling.worker.binder import Binder
from scheduling.worker.mirror import Mirror
from tests.clock import NOW
from tests.harness import kubernetes_framework

SECONDS = NOW.timestamp()


class Worker:
    """Decides what waits, and leaves to the test what becomes of the decisions."""

    def __init__(self) -> None:
        hints = registrations(default_configuration().profiles[0])
        self.mirror = Mirror({"default-scheduler": hints}, Backoff())
        self.mirror.load(SECONDS)
        self.framework: Framework = kubernetes_framework()
        self.binder = Binder(self.mirror, lambda name: self.framework)
        self.seed = 0

    def decide(self) -> Decisions:
        """Decide all pods that are ready, assuming those that find a node."""
        self.mirror.refresh(SECONDS)
        batch = self.mirror.queue.pop_batch(SECONDS, 1000)
        self.seed += 1
        snapshot = self.mirror.snapshot
        decisions = schedule_batch(
            snapshot,
            self.framework,
            [
                PodToPlace(
                    pod.pod_id,
                    self.mirror.info(pod.class_id),
                    snapshot.nominated_node_of(pod.pod_id),
                )
                for pod in batch
            ],
            Options(seed=self.seed),
        )
        self.binder.recorder.note(decisions, self.mirror.snapshot, profile_revision=0, now=SECONDS)
        return decisions
