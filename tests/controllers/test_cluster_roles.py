"""ClusterRoles that aggregate others show the rules that they give."""

import pytest

from clusterstate.access import authorizer
from clusterstate.access.rules import rules_of
from clusterstate.actions import objects
from clusterstate.actions.cluster import default_roles
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.actor import controller
from clusterstate.objects.wire import managed_fields
from clusterstate.queries.objects import decode_object, find_object
from scheduling.controllers import cluster_roles, manager
from tests.clock import NOW, after

pytestmark = pytest.mark.django_db(transaction=True)
READ_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
READ_JOBS = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list"]}
LABEL = {"team": "a"}


def role(name):
    return decode_object(find_object("ClusterRole", "", name))


def make(name, rules=(), labels=None, chooses=None):
    body = {"metadata": {"name": name, "labels": labels or {}}, "rules": list(rules)}
    if chooses is not None:
        body["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": chooses}]}
        managed_fields.claim(KINDS["ClusterRole"], body, "kubectl")
    objects.create("ClusterRole", "", body, now=NOW)


def settled():
    """Let the controller follow until it has nothing to write; return how often it wrote."""
    written = 0
    while done := cluster_roles.follow(NOW):
        written += done
    return written


def test_a_role_shows_the_rules_of_those_it_chooses_and_none_of_its_own():
    make("pods", [READ_PODS], LABEL)
    make("jobs", [READ_JOBS], LABEL)
    make("other", [{**READ_PODS, "verbs": ["delete"]}])
    make("all", [{**READ_PODS, "verbs": ["patch"]}], chooses=LABEL)
    assert settled() == 1
    assert role("all")["rules"] == [READ_JOBS, READ_PODS]  # by the names of the roles
    owners = {one["manager"]: one for one in role("all")["metadata"]["managedFields"]}
    assert set(owners) == {"kubectl", "clusterrole-aggregation-controller"}
    assert set(owners["clusterrole-aggregation-controller"]["fieldsV1"]) == {"f:rules"}
    assert role("other")["rules"][0]["verbs"] == ["delete"]


def test_a_role_follows_what_those_it_chooses_become():
    make("all", chooses=LABEL)
    make("pods", [READ_PODS], LABEL)
    settled()
    objects.update("ClusterRole", "", "pods", lambda old: {**old, "rules": [READ_JOBS]}, now=NOW)
    settled()
    assert role("all")["rules"] == [READ_JOBS]
    objects.delete("ClusterRole", "", "pods", now=NOW)
    settled()
    assert not role("all").get("rules")
    # What somebody writes into it does not stay, and never counted.
    objects.update("ClusterRole", "", "all", lambda old: {**old, "rules": [READ_PODS]}, now=NOW)
    assert authorizer.read().aggregated["all"] == ()
    settled()
    assert not role("all").get("rules")


def test_a_role_that_aggregates_no_longer_keeps_its_rules():
    make("pods", [READ_PODS], LABEL)
    make("all", chooses=LABEL)
    settled()

    def alone(old):
        return {key: value for key, value in old.items() if key != "aggregationRule"}

    objects.update("ClusterRole", "", "all", alone, now=NOW)
    objects.delete("ClusterRole", "", "pods", now=NOW)
    assert settled() == 0
    assert role("all")["rules"] == [READ_PODS]


def test_the_default_roles_show_what_they_allow():
    default_roles.reconcile(now=NOW)
    assert settled() == 3
    policy = authorizer.read()
    for name in ("admin", "edit", "view"):
        shown = rules_of(role(name)["rules"])
        assert shown == policy.aggregated[name]
        assert len(shown) > 3
    view = set(rules_of(role("view")["rules"]))
    assert view < set(rules_of(role("edit")["rules"]))
    default_roles.reconcile(now=NOW)
    assert settled() == 0


def test_the_manager_runs_it_by_its_own_name():
    assert manager.CONTROLLERS[cluster_roles.NAME].actor == controller(
        "clusterrole-aggregation-controller"
    )
    make("pods", [READ_PODS], LABEL)
    make("all", chooses=LABEL)
    assert cluster_roles.NAME in manager.run(NOW)
    assert role("all")["rules"] == [READ_PODS]
    while cluster_roles.NAME in manager.run(after(1)):
        pass
    assert cluster_roles.NAME not in manager.run(after(2))
