"""What a rule answers, and which questions it can be asked.

A ``Verdict`` is Kubernetes' ``framework.Status``: a code that says what happens next, and reasons
for people. ``Rule`` lists the extension points; a plugin overrides those it has. The state that
``pre_filter`` and ``pre_score`` return is handed to the later points unchanged, so that a rule
object itself holds only its arguments. Source: staging/src/k8s.io/kube-scheduler/framework/
interface.go, v1.36.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from clusterstate.objects.values.pod import Pod
from tests.reference.cluster import Cluster, PlacedNode
from tests.reference.helpers import default_normalize

SUCCESS = "Success"
SKIP = "Skip"
UNSCHEDULABLE = "Unschedulable"
"""Not here now; removing other pods may help."""
UNRESOLVABLE = "UnschedulableAndUnresolvable"
"""Not here, and removing other pods cannot help."""
ERROR = "Error"

MAX_NODE_SCORE = 100


class Verdict(msgspec.Struct, frozen=True):
    """A code and its reasons; ``plugin`` is filled in by the scheduler for the first that fails."""

    code: str = SUCCESS
    reasons: tuple[str, ...] = ()
    plugin: str = ""

    @property
    def success(self) -> bool:
        """True for Success alone."""
        return self.code == SUCCESS

    @property
    def message(self) -> str:
        """The reasons in one text, as ``Status.Message`` joins them."""
        return ", ".join(self.reasons)


PASS = Verdict()
SKIPPED = Verdict(SKIP)

S = TypeVar("S")
T = TypeVar("T")


class Begun(msgspec.Struct, Generic[S], frozen=True):
    """What ``pre_filter`` or ``pre_score`` found: a verdict, and a state for the later points.

    ``node_names`` restricts the search to these nodes; ``None`` means no restriction.
    """

    verdict: Verdict = PASS
    state: S | None = None
    node_names: frozenset[str] | None = None


class Rule(Generic[S, T]):
    """A plugin: ``S`` is its filter state, ``T`` its score state."""

    name: str = ""
    filters: bool = False
    scores: bool = False

    def pre_filter(self, pod: Pod, cluster: Cluster) -> Begun[S]:
        """Look at the whole cluster once. Skip means: no node needs to be filtered."""
        return Begun()

    def filter(self, state: S | None, pod: Pod, node: PlacedNode) -> Verdict:
        """Say whether ``pod`` may go to ``node``."""
        return PASS

    def copy(self, state: S) -> S:
        """Return the filter state as a value of its own; plugins that change it override this."""
        return state

    def add_pod(self, state: S, pod: Pod, other: Pod, node: PlacedNode, cluster: Cluster) -> None:
        """Change ``state`` as if ``other`` were placed on ``node`` too (preemption)."""

    def remove_pod(
        self, state: S, pod: Pod, other: Pod, node: PlacedNode, cluster: Cluster
    ) -> None:
        """Change ``state`` as if ``other`` were gone from ``node`` (preemption)."""

    def pre_score(self, pod: Pod, cluster: Cluster, candidates: Sequence[PlacedNode]) -> Begun[T]:
        """Look at the feasible nodes once. Skip means: the plugin gives every node 0."""
        return Begun()

    def score(self, state: T | None, pod: Pod, node: PlacedNode, cluster: Cluster) -> int:
        """Return the raw score of ``node``."""
        return 0

    def normalize(
        self, state: T | None, pod: Pod, scores: Mapping[str, int]
    ) -> dict[str, int] | None:
        """Return the scores by node name on the scale 0 to 100; ``None``: they are already."""
        return None


AnyRule = Rule[Any, Any]


def round_half_away(number: float) -> int:
    """Return the nearest integer, halves away from zero, as Go's ``math.Round``."""
    whole = math.trunc(number)
    if abs(number - whole) >= 0.5:
        whole += 1 if number > 0 else -1
    return whole


def normalize_by_highest(scores: Mapping[str, int], *, reverse: bool) -> dict[str, int]:
    """Return scores as whole percent of the highest; ``reverse`` prefers the lowest.

    All zero stays zero, or becomes 100 when reversed. Rule: plugins/helper/normalize_score.go.
    """
    values = default_normalize(list(scores.values()), MAX_NODE_SCORE, reverse=reverse)
    return dict(zip(scores, values, strict=True))
