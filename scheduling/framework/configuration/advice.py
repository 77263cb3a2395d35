"""Warnings about legal configurations that surprise users (R87, R179)."""

from collections.abc import Sequence

from clusterstate.objects.values.pod import NodeAffinity, NodeSelector, NodeSelectorTerm
from scheduling.framework.configuration import DEFAULT_SCHEDULER, Profile
from scheduling.framework.configuration.plugin_args import NodeAffinityArgs


def advise(profiles: Sequence[Profile], warnings: list[str]) -> None:
    """Warn about hidden node affinities (R87) and the lack of a default scheduler."""
    with_added: list[Profile] = []
    for i, profile in enumerate(profiles):
        args = profile.args.get("NodeAffinity")
        if not isinstance(args, NodeAffinityArgs) or args.added_affinity is None:
            continue
        with_added.append(profile)
        path = f"profiles[{i}].pluginConfig: addedAffinity"
        if profile.scheduler_name == DEFAULT_SCHEDULER:
            warnings.append(
                f"{path} on {DEFAULT_SCHEDULER}: users cannot see it, and pods of DaemonSets, which"
                " know no profiles, may stay unschedulable"
            )
        elif not _names_the_profile(args.added_affinity, profile.scheduler_name):
            warnings.append(
                f"{path}: users cannot see why pods avoid nodes; choose a node label with the"
                f" profile's name, {profile.scheduler_name}, in its key or value"
            )
    names = [profile.scheduler_name for profile in profiles]
    if DEFAULT_SCHEDULER not in names:
        warnings.append(
            f"profiles: none is named {DEFAULT_SCHEDULER}; pods that name no scheduler stay pending"
        )
    elif with_added and len(with_added) == len(profiles):
        warnings.append(
            "profiles: every profile has an addedAffinity; keep one without it for DaemonSets"
        )


def _names_the_profile(affinity: NodeAffinity, scheduler_name: str) -> bool:
    """Return whether a label key or value shares a word with the scheduler's name."""
    words = {w for w in _words(scheduler_name) if w not in ("scheduler", "default", "profile")}
    terms: list[NodeSelectorTerm] = []
    selectors: tuple[NodeSelector | None, ...] = (
        affinity.required_during_scheduling_ignored_during_execution,
        affinity.required_during_scheduling_required_during_execution,
    )
    for selector in selectors:
        if selector is not None:
            terms += selector.node_selector_terms
    terms += [t.preference for t in affinity.preferred_during_scheduling_ignored_during_execution]
    found: set[str] = set()
    for term in terms:
        for requirement in (*term.match_expressions, *term.match_fields):
            found.update(_words(requirement.key))
            for value in requirement.values:
                found.update(_words(value))
    return bool(words & found)


def _words(text: str) -> list[str]:
    return "".join(c.lower() if c.isalnum() else " " for c in text).split()
