"""Which pods an answer may name: those of namespaces whose pods the user may list.

Answers are computed on the whole cluster. Pods that the user may not list are counted in the
answer, and not named.
"""

from collections.abc import Callable, Iterable

from clusterstate.access import authorizer
from clusterstate.access.rules import Attributes
from clusterstate.admission.request import User
from clusterstate.objects.values.meta import Manifest

MayRead = Callable[[str], bool]
"""Whether the pods of a namespace may be named."""


def reader(user: User) -> MayRead:
    """Return a function: whether the user may list a namespace's pods; it caches answers."""
    judged: dict[str, bool] = {}

    def may_read(namespace: str) -> bool:
        if namespace not in judged:
            wants = Attributes(verb="list", resource="pods", namespace=namespace)
            judged[namespace] = authorizer.decide(user, wants).allowed
        return judged[namespace]

    return may_read


def reads_all(user: User) -> bool:
    """Return whether a user may list all pods, so that an answer may name all of them."""
    return authorizer.decide(user, Attributes(verb="list", resource="pods")).allowed


def named(titles: Iterable[str], may_read: MayRead) -> tuple[list[str], int]:
    """Return the pods (``namespace/name``) that may be named, and the number of the others."""
    every = list(titles)
    found = [one for one in every if may_read(one.partition("/")[0])]
    return found, len(every) - len(found)


def as_text(titles: Iterable[str], may_read: MayRead) -> str:
    """Return pods as text, the ones that may not be named as a number."""
    found, others = named(titles, may_read)
    if others:
        found.append(f"{others} pods of other namespaces" if others > 1 else "another pod")
    return ", ".join(found)


def of_simulation(answer: Manifest, may_read: MayRead) -> Manifest:
    """Return a simulation's answer without pods that may not be named.

    Victims are counted in ``otherVictims`` beside ``victims``, and evictions in
    ``status.otherEvictions``. Pods that the user posted are always named.
    """
    status = answer["status"]
    own = {result["pod"] for result in status["results"]}

    def may_name(title: str) -> bool:
        return title in own or may_read(title.partition("/")[0])

    for result in status["results"]:
        room = result.get("preemption")
        if room:
            for one in (room, *(room.get("candidates") or {}).values()):
                _count_others(one, "victims", "otherVictims", may_name)
    if "evictions" in status:
        before = status["evictions"]
        status["evictions"] = [one for one in before if may_name(one["pod"])]
        if len(status["evictions"]) < len(before):
            status["otherEvictions"] = len(before) - len(status["evictions"])
    return answer


def of_node_advice(answer: Manifest, may_read: MayRead) -> Manifest:
    """Return advice about nodes without the pods that the user may not see.

    ``otherPods`` counts the pods that are removed from ``pods``.
    """
    _count_others(
        answer["status"], "pods", "otherPods", lambda one: may_read(one.partition("/")[0])
    )
    places = answer["status"].get("places") or []
    answer["status"]["places"] = [one for one in places if may_read(one["pod"].partition("/")[0])]
    return answer


def _count_others(body: Manifest, field: str, count: str, may_name: Callable[[str], bool]) -> None:
    before = body.get(field) or []
    visible = [one for one in before if may_name(one)]
    if len(visible) < len(before):
        body[field], body[count] = visible, len(before) - len(visible)
