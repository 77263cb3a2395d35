"""Policies: quotas with their use, who can do what, and how revisions differ."""

import csv
import html
import io
import re
from html import unescape
from typing import Any

import pytest
import yaml
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from api.console.scheduler import policies
from api.forms import pages
from clusterstate.access import authorizer
from clusterstate.access.policy import Policy
from clusterstate.access.rules import Attributes
from clusterstate.actions import objects
from clusterstate.actions.cluster import default_roles
from clusterstate.actions.scheduler import scheduler_configuration
from clusterstate.admission.request import User
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.queries.objects import get_manifest
from clusterstate.queries.past import trail
from tests.clock import NOW
from tests.clusterstate.support import create_node, manifest, new_pod
from tests.console.conftest import allow, text

RBAC = "rbac.authorization.k8s.io"
CONFIGURATION = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated}}
"""


def test_quotas_show_how_much_of_them_is_used(operator: Client) -> None:
    quota = {"metadata": {"name": "small"}, "spec": {"hard": {"pods": "4", "requests.cpu": "1"}}}
    objects.create("ResourceQuota", "default", quota, now=NOW)
    new_pod("web", cpu="950m")
    page = text(operator.get("/console/policies/"))
    assert page.index("requests.cpu") < page.index("<td>pods</td>"), "the fullest first"
    assert 'class="bar full"' in page
    assert 'aria-label="95 %"' in page


def test_runtime_classes_show_their_nodes_and_budgets_who_may_leave(
    operator: Client, nobody: Client
) -> None:
    kinds = [("node.k8s.io", "runtimeclasses"), ("policy", "poddisruptionbudgets")]
    rules = [{"apiGroups": [one], "resources": [name], "verbs": ["list"]} for one, name in kinds]
    some = allow("pat", rules)
    for name, labels in (("n1", {"runtime": "gvisor"}), ("n2", {})):
        create_node(name, labels=labels)
    sandbox = {
        "metadata": {"name": "sandbox"},
        "handler": "runsc",
        "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}},
        "scheduling": {"nodeSelector": {"runtime": "gvisor"}, "tolerations": [{"key": "kata"}]},
    }
    objects.create("RuntimeClass", "", sandbox, now=NOW)
    objects.create("RuntimeClass", "", {"metadata": {"name": "plain"}, "handler": "r"}, now=NOW)
    urgent = {"metadata": {"name": "urgent"}, "value": 700, "preemptionPolicy": "Never"}
    objects.create("PriorityClass", "", urgent, now=NOW)
    tight = {"metadata": {"name": "tight"}, "spec": {"minAvailable": "80%", "selector": {}}}
    objects.create("PodDisruptionBudget", "default", tight, now=NOW)
    page = text(operator.get("/console/policies/"))
    rows = dict(re.findall(r'<th scope="row"><a [^>]*>([^<]+)</a></th>(.*?)</tr>', page))
    assert 'href="/console/nodes/?q=runtime%3Dgvisor">1</a>' in rows["sandbox"]
    for words in ("runsc", "<td>kata</td>", "250m cpu, 120Mi memory"):
        assert words in rows["sandbox"]
    assert 'href="/console/nodes/">2</a>' in rows["plain"]
    assert "any node" in rows["plain"]
    assert '<td class="n">700</td><td>never</td>' in rows["urgent"]
    assert "min 80% available" in rows["default/tight"]
    names = list(rows)
    assert names.index("system-node-critical") < names.index("urgent"), "the highest first"
    assert nobody.get("/console/policies/").status_code == 200
    page = text(nobody.get("/console/policies/"))
    assert "sandbox" not in page
    for heading in ("Quotas", "Runtime classes", "Priority classes", "Disruption budgets"):
        assert heading not in page, "that there is none is not said to who may not know"
    page = text(some.get("/console/policies/"))
    assert re.search(r'>sandbox</a></th><td>runsc</td><td class="n"></td>', page), "not 0 nodes"
    assert "tight" in page


def test_the_tightest_budget_is_first_however_many_there_are(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "_MOST_SHOWN", 2)
    for name in ("a", "b", "c"):
        budget = {"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": {}}}
        objects.create("PodDisruptionBudget", "default", budget, now=NOW)

    def loosen(budget: Any) -> Any:
        return {**budget, "status": {**(budget.get("status") or {}), "disruptionsAllowed": 3}}

    for name in ("a", "b"):
        objects.update(
            "PodDisruptionBudget", "default", name, loosen, now=NOW, subresource="status"
        )
    page = text(operator.get("/console/policies/"))
    assert re.findall(r">default/(\w)</a>", page) == ["c", "a"]


def role(name: str, *rules: dict[str, list[str]]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "rules": list(rules)}


def binding(name: str, role_name: str, *subjects: tuple[str, str], **metadata: str) -> Any:
    return {
        "metadata": {"name": name, **metadata},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role_name},
        "subjects": [{"kind": kind, "name": who, "apiGroup": RBAC} for kind, who in subjects],
    }


READ = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
ONE = {**READ, "resourceNames": ["web"]}


def test_holders_are_those_whom_a_binding_reaches() -> None:
    policy = Policy(
        {
            "ClusterRole": [role("reader", READ), role("one", ONE)],
            "ClusterRoleBinding": [binding("all", "reader", ("Group", "ops"))],
            "RoleBinding": [
                binding("here", "reader", ("User", "ann"), namespace="a"),
                binding("few", "one", ("User", "bob"), namespace="a"),
            ],
        }
    )

    def who(verb: str, namespace: str = "", name: str = "") -> list[tuple[str, tuple[str, ...]]]:
        wants = Attributes(verb, resource="pods", namespace=namespace, name=name)
        return [(one.name, one.names) for one in policy.holders(wants)]

    assert who("get") == [("ops", ())]
    assert who("get", "a") == [("ops", ()), ("ann", ()), ("bob", ("web",))]
    assert who("get", "a", "web") == [("ops", ()), ("ann", ()), ("bob", ("web",))]
    assert who("get", "a", "api") == [("ops", ()), ("ann", ())]
    assert who("get", "b") == [("ops", ())]
    assert who("delete", "a") == []


def test_the_page_tells_who_can_and_by_which_binding(operator: Client, nobody: Client) -> None:
    objects.create("ClusterRole", "", role("reader", READ), now=NOW)
    objects.create("ClusterRoleBinding", "", binding("all", "reader", ("User", "pia")), now=NOW)
    page = html.unescape(text(operator.get("/console/policies/who-can?verb=list&resource=pods")))
    assert 'ClusterRoleBinding "all"' in page
    assert ">pia<" in page
    page = text(operator.get("/console/policies/who-can?verb=delete&resource=deployments"))
    assert "are in the API group apps" in page
    assert nobody.get("/console/policies/who-can").status_code == 403


def test_a_role_in_a_namespace_reaches_nothing_that_lies_in_none(
    nobody: Client, cluster: None
) -> None:
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    objects.create("ClusterRole", "", role("everything", everything), now=NOW)
    objects.create("RoleBinding", "default", binding("b", "everything", ("User", "nils")), now=NOW)
    assert nobody.get("/console/objects/Pod/default/web-1/").status_code == 200
    (step,) = trail.trail_of(KINDS["Node"], "", "n1", limit=1).steps
    change = f"changes/{step.revision}"
    stored = get_manifest("Node", "", "n1")
    edited = pages.as_yaml({**stored, "spec": {"unschedulable": True}})
    for space, status in (("-", 403), ("default", 404)):
        path = f"/console/objects/Node/{space}/n1/"
        assert nobody.get(path).status_code == status
        assert nobody.get(f"{path}{change}").status_code == status
        assert nobody.post(path, {"text": edited}).status_code == status
    assert get_manifest("Node", "", "n1") == stored


def test_revisions_of_the_configuration_are_compared(operator: Client, nobody: Client) -> None:
    path = "/console/policies/revisions"
    assert "the default is in force" in text(operator.get(path))
    for kind in ("MostAllocated", "LeastAllocated"):
        document, _ = scheduler_configuration.check(CONFIGURATION.replace("MostAllocated", kind))
        scheduler_configuration.store(document=document, by="anna", now=NOW)
    page = text(operator.get(path))
    assert re.search(r'<span class="bad">-[^<]*MostAllocated', page), page
    assert re.search(r'<span class="ok">\+[^<]*LeastAllocated', page)
    assert "in force" in page
    assert operator.get(path, {"old": "99999"}).status_code == 404
    assert operator.get(path, {"old": "x"}).status_code == 400
    assert nobody.get(path).status_code == 403


def test_a_change_far_down_in_a_long_object_is_shown() -> None:
    old = [f"key-{number}: value {number}" for number in range(10_000)]
    new = [*old[:9_000], "key-9000: other", *old[9_001:]]
    lines = policies.difference("\n".join(old), "\n".join(new))
    told = [(one.sign, one.text) for one in lines if one.sign != " "]
    assert told == [
        ("…", "8,988 unchanged lines"),
        ("-", "key-9000: value 9000"),
        ("+", "key-9000: other"),
        ("…", "987 unchanged lines"),
    ]
    # Each line a little different: to look for the most similar of each would take minutes.
    lines = policies.difference("\n".join(old), "\n".join(f"{one}." for one in old))
    assert [one.text for one in lines if one.sign == "…"] == [
        "8,000 removed lines",
        "8,000 added lines",
    ]


texts = st.lists(st.sampled_from("abc"), max_size=12)


@given(texts, texts)
def test_a_difference_has_the_lines_of_both(old: list[str], new: list[str]) -> None:
    lines = policies.difference("\n".join(old), "\n".join(new))
    assert [one.text for one in lines if one.sign in " -"] == old
    assert [one.text for one in lines if one.sign in " +"] == new


def test_objects_of_a_kind_are_had_as_a_file(operator: Client, nobody: Client) -> None:
    for name in ("web-1", "web-2"):
        new_pod(name)
    answer = operator.get("/console/objects/Pod/csv", {"namespace": "default"})
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert [(row["Namespace"], row["Name"]) for row in rows] == [
        ("default", "web-1"),
        ("default", "web-2"),
    ]
    assert nobody.get("/console/objects/Pod/csv").status_code == 403


def test_the_palette_finds_pods_by_how_they_begin_and_else_by_a_part(operator: Client) -> None:
    for name in ("web-1", "web", "my-web"):
        new_pod(name)

    def found(typed: str) -> list[str]:
        items = operator.get("/console/find", {"q": typed}).json()["items"]
        return [one["text"] for one in items if one["about"] == "pod"]

    assert found("web") == ["default/web", "default/web-1"]
    assert found("default/web-") == ["default/web-1"]
    assert found("y-we") == ["default/my-web"]
    assert found("other/web") == []


def test_the_palette_finds_a_deleted_pod_by_its_name(operator: Client) -> None:
    """Who evicted it, and why, is on its page; only its history is left of it."""
    new_pod("web-1")
    objects.delete("Pod", "default", "web-1", {"gracePeriodSeconds": 0}, now=NOW)
    for typed in ("web-1", "default/web-1"):
        (found,) = operator.get("/console/find", {"q": typed}).json()["items"]
        assert (found["text"], found["about"]) == ("default/web-1", "deleted pod")
    assert "This pod was deleted" in text(operator.get(found["to"]))
    assert operator.get("/console/find", {"q": "other/web-1"}).json()["items"] == []


NEW = "/console/new"


def typed(page: str) -> str:
    """Return the YAML that a page's editor holds."""
    return unescape(page.partition('<textarea class="code"')[2].partition(">")[2]).partition(
        "</textarea>"
    )[0]


def test_a_role_is_granted_from_the_page_of_policies(operator: Client) -> None:
    default_roles.reconcile(now=NOW)
    objects.create("Namespace", "", {"metadata": {"name": "team-a"}}, now=NOW)
    asked = {"kind": "RoleBinding", "subject": "Group:team-a", "role": "edit"}
    assert "Grant a role" in text(operator.get("/console/policies/"))
    shown = typed(text(operator.get(NEW, {**asked, "namespace": "team-a"})))
    answer = operator.post(NEW, {"text": shown})
    assert answer["Location"] == "/console/objects/RoleBinding/team-a/team-a-edit/"
    may = Attributes("create", "apps", "deployments", namespace="team-a")
    assert authorizer.decide(User(name="ann", groups=("team-a",)), may).allowed
    assert "kind: ClusterRoleBinding" in typed(text(operator.get(NEW, asked)))


def test_a_quota_and_any_other_object_are_created_from_yaml(operator: Client) -> None:
    asked = {"kind": "ResourceQuota", "name": "q", "hard": ["requests.cpu=4", "pods="]}
    shown = typed(text(operator.get(NEW, asked)))
    assert yaml.safe_load(shown)["spec"] == {"hard": {"requests.cpu": "4"}}
    assert operator.post(NEW, {"text": shown}).status_code == 302
    assert manifest("ResourceQuota", "default", "q")["spec"]["hard"] == {"requests.cpu": "4"}
    again = operator.post(NEW, {"text": shown})
    assert again.status_code == 409
    assert "already exists" in text(again)
    wrong = operator.post(NEW, {"text": "kind: ConfigMap\nmetadata: {name: x}\ndate: {a: b}"})
    assert (wrong.status_code, "unknown field" in text(wrong)) == (400, True)
    assert operator.post(NEW, {"text": "kind: Nothing"}).status_code == 400
    ingress = operator.post(
        NEW, {"text": "kind: IngressClass\nmetadata: {name: x}\nspec: {controller: a/b}"}
    )
    assert "stored but has no effect" in text(ingress)


def test_nobody_gives_away_from_the_console_what_they_do_not_have(viewer: Client) -> None:
    rules = [{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["rolebindings"],
              "verbs": ["create"]}]  # fmt: skip
    pia = allow("pia", rules)
    asked = {"kind": "RoleBinding", "subject": "User:pia", "role": "admin", "namespace": "default"}
    shown = typed(text(pia.get(NEW, asked)))
    assert pia.post(NEW, {"text": shown}).status_code == 403
    assert viewer.post(NEW, {"text": "kind: ConfigMap\nmetadata: {name: x}"}).status_code == 403


def test_an_object_is_rolled_back_to_an_earlier_version(operator: Client) -> None:
    labels = {"metadata": {"name": "c", "labels": {"v": "1"}}, "data": {"a": "first"}}
    objects.create("ConfigMap", "default", labels, now=NOW)

    def change(stored: Any) -> Any:
        metadata = {**stored["metadata"], "labels": {"v": "2"}, "annotations": {"new": "yes"}}
        return {**stored, "metadata": metadata, "data": {"a": "second", "b": "more"}}

    objects.update("ConfigMap", "default", "c", change, now=NOW)
    (step,) = trail.trail_of(KINDS["ConfigMap"], "default", "c", limit=1).steps
    page = text(operator.get(f"/console/objects/ConfigMap/default/c/changes/{step.revision}"))
    address = re.search(r'href="([^"]+)">Roll back', page)
    assert address is not None
    page = text(operator.get(address[1]))
    assert "Save it to roll back" in page
    assert operator.post(address[1], {"text": typed(page)})["Location"].endswith("/default/c/")
    found = manifest("ConfigMap", "default", "c")
    assert (found["data"], found["metadata"]["labels"]) == ({"a": "first"}, {"v": "1"})
    assert "annotations" not in found["metadata"]
