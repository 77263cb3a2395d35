"""HeldProfile: rejects all pods of a profile that can no longer be used, with the reason.

Replaces all plugins of such a profile (``worker.profiles``); no document can name it. No event
wakes the pods: they are tried again when the profile can be used again, or another configuration is
in force.
"""

import msgspec

from scheduling.framework.configuration import PluginUse as Use
from scheduling.framework.configuration import Profile
from scheduling.framework.interface import CycleState, PreFilterResult
from scheduling.framework.node_table import NodeTable
from scheduling.framework.status import Status, unresolvable
from scheduling.framework.types import PodInfo

NAME = "HeldProfile"


class HeldProfileArgs(msgspec.Struct, frozen=True, kw_only=True):
    """Why the profile cannot be used."""

    why: str


class HeldProfile:
    """PreFilter that rejects every pod."""

    name = NAME

    def __init__(self, args: HeldProfileArgs) -> None:
        self._why = args.why

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable
    ) -> tuple[PreFilterResult | None, Status]:
        """Reject the pod on every node."""
        return None, unresolvable(self._why)


def held_profile(scheduler_name: str, why: str) -> Profile:
    """Return a profile of this name that rejects every pod with the message ``why``."""
    return Profile(
        scheduler_name=scheduler_name,
        points={
            "queueSort": (Use("PrioritySort"),),
            "preFilter": (Use(NAME),),
            "bind": (Use("DefaultBinder"),),
        },
        args={NAME: HeldProfileArgs(why=f"profile {scheduler_name!r} cannot be used: {why}")},
    )


def why_held(profile: Profile) -> str:
    """Return why a profile rejects all its pods, empty if it does not."""
    args = profile.args.get(NAME)
    return args.why if isinstance(args, HeldProfileArgs) else ""
