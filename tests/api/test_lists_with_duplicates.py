"""Lists whose items have keys, and keys that occur twice: applies and the other ways of writing.

Rules: structured-merge-diff v6, as server-side apply of Kubernetes 1.36 uses it.
"""

import pytest

from tests.api.conftest import APPLY, JSON_PATCH, STRATEGIC

DEPLOYMENTS = "/apis/apps/v1/namespaces/ns/deployments"
PORTS = [{"containerPort": 80, "hostPort": 1}, {"containerPort": 80, "hostPort": 2}]
X_TWICE = [{"name": "X", "value": "1"}, {"name": "Y", "value": "y"}, {"name": "X", "value": "2"}]


def body(**container):
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i", **container}]},
    }
    return {
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "ns"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    }  # fmt: skip


def applied(api, said, manager, query=""):
    path = f"{DEPLOYMENTS}/d?fieldManager={manager}{query}"
    return api.patch(path, said, content_type=APPLY)


def made(api, **container):
    return api.post(f"{DEPLOYMENTS}?fieldManager=maker", body(**container)).ok(201)


def field(item, name):
    return item["spec"]["template"]["spec"]["containers"][0].get(name)


@pytest.mark.parametrize(
    ("path", "container"),
    [
        ('env[name="X"]', {"env": X_TWICE}),
        ('ports[containerPort=80,protocol="TCP"]', {"ports": PORTS}),
        (
            'ports[containerPort=80,protocol="TCP"]',
            {"ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "TCP"}]},
        ),
        (
            'volumeMounts[mountPath="/a"]',
            {"volumeMounts": [{"name": "v", "mountPath": "/a"}, {"name": "w", "mountPath": "/a"}]},
        ),
    ],
)
def test_what_is_applied_says_no_key_twice(api, path, container):
    name, _, key = path.partition("[")
    assert fault(applied(api, body(**container), "m")) == (
        f'.spec.template.spec.containers[name="c"].{name}: duplicate entries for key [{key}'
    )
    api.get(f"{DEPLOYMENTS}/d").fails(404, "NotFound")


def fault(answer):
    """Return what an apply may not state; kube-apiserver answers with 500 and no reason."""
    status = answer.fails(500, "")
    start = "failed to create typed patch object (ns/d; apps/v1, Kind=Deployment): "
    assert status["message"].startswith(start)
    return status["message"].removeprefix(start)


def test_finalizers_and_containers_are_applied_once(api):
    twice = body()
    twice["metadata"]["finalizers"] = ["a.example/b"] * 3
    of_set = '.metadata.finalizers: duplicate entries for key [="a.example/b"]'
    assert fault(applied(api, twice, "m")) == f"errors:\n  {of_set}\n  {of_set}"
    twice = body()
    twice["spec"]["template"]["spec"]["containers"] *= 2
    where = ".spec.template.spec.containers"
    assert fault(applied(api, twice, "m")) == f'{where}: duplicate entries for key [name="c"]'


def test_who_applies_items_names_them(api):
    """structured-merge-diff v6, typed/helpers.go: one of several keys is enough."""
    nameless = body()
    del nameless["spec"]["template"]["spec"]["containers"][0]["name"]
    assert fault(applied(api, nameless, "m")) == (
        ".spec.template.spec.containers: element 0: associative list with keys has an element that"
        ' omits all key fields ["name"] (and doesn\'t have default values for any key fields)'
    )


def test_lists_that_are_wholes_may_repeat_themselves(api):
    said = body(args=["a", "a"])
    said["spec"]["template"]["spec"]["tolerations"] = [{"operator": "Exists"}] * 2
    found = applied(api, said, "m").ok(201)
    assert field(found, "args") == ["a", "a"]
    assert len(found["spec"]["template"]["spec"]["tolerations"]) == 2


def test_an_apply_of_something_else_leaves_all_of_them(api):
    before = made(api, env=X_TWICE, ports=PORTS)
    labels = {**body(), "metadata": {"name": "d", "labels": {"l": "1"}}, "spec": {}}
    found = applied(api, labels, "labeller").ok()
    assert found["spec"] == before["spec"]


def test_applying_one_replaces_all_and_asks_their_owner(api):
    before = made(api, env=X_TWICE, ports=PORTS)
    (owner,) = before["metadata"]["managedFields"]
    env = owner["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:containers"]['k:{"name":"c"}']
    assert env["f:env"]['k:{"name":"X"}'] == {}  # several are one field
    assert env["f:env"]['k:{"name":"Y"}'] == {".": {}, "f:name": {}, "f:value": {}}

    said = body(env=[{"name": "X", "value": "3"}], ports=[{"containerPort": 80, "hostPort": 3}])
    status = applied(api, said, "fixer").fails(409, "Conflict")
    assert 'env[name="X"]' in status["message"]
    assert 'ports[containerPort=80,protocol="TCP"]' in status["message"]
    found = applied(api, said, "fixer", "&force=true").ok()
    assert field(found, "env") == [{"name": "X", "value": "3"}, {"name": "Y", "value": "y"}]
    assert field(found, "ports") == [{"containerPort": 80, "hostPort": 3, "protocol": "TCP"}]
    owners = {one["manager"]: one["fieldsV1"] for one in found["metadata"]["managedFields"]}
    assert '"X' not in str(owners["maker"])
    # What is applied no longer goes as a whole, and what is left says so.
    found = applied(api, body(), "fixer").ok()
    assert field(found, "env") == [{"name": "Y", "value": "y"}]


def test_an_item_without_a_value_takes_none_from_those_it_replaces(api):
    made(api, env=X_TWICE)
    found = applied(api, body(env=[{"name": "X"}]), "m", "&force=true").ok()
    assert field(found, "env") == [{"name": "X"}, {"name": "Y", "value": "y"}]


def test_who_applied_one_owns_nothing_of_it_once_an_update_makes_it_two(api):
    applied(api, body(env=[{"name": "X", "value": "1"}]), "m").ok(201)
    step = {
        "op": "add", "path": "/spec/template/spec/containers/0/env/-",
        "value": {"name": "X", "value": "2"},
    }  # fmt: skip
    path = f"{DEPLOYMENTS}/d?fieldManager=editor"
    found = api.patch(path, [step], content_type=JSON_PATCH).ok()
    assert [one["value"] for one in field(found, "env")] == ["1", "2"]
    owners = {one["manager"]: str(one["fieldsV1"]) for one in found["metadata"]["managedFields"]}
    assert 'k:{"name":"X"}' in owners["editor"]
    assert 'k:{"name":"X"}' not in owners["m"]
    applied(api, body(env=[{"name": "X", "value": "1"}]), "m").fails(409, "Conflict")
    # Who does not say it any more takes nothing that is another's.
    found = applied(api, body(), "m").ok()
    assert [one["value"] for one in field(found, "env")] == ["1", "2"]


def test_a_strategic_patch_changes_the_first_of_them_and_deletes_all(api):
    made(api, env=X_TWICE)

    def patched(*env):
        containers = [{"name": "c", "env": list(env)}]
        said = {"spec": {"template": {"spec": {"containers": containers}}}}
        return field(api.patch(f"{DEPLOYMENTS}/d", said, content_type=STRATEGIC).ok(), "env")

    by_name = sorted((one["name"], one["value"]) for one in patched({"name": "X", "value": "3"}))
    assert by_name == [("X", "2"), ("X", "3"), ("Y", "y")]
    assert patched({"name": "X", "$patch": "delete"}) == [{"name": "Y", "value": "y"}]


def spread(when):
    said = body()
    said["spec"]["template"]["spec"]["topologySpreadConstraints"] = [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": when}
    ]
    return said


def test_the_key_of_an_item_may_have_two_parts(api):
    def kept(answer):
        constraints = answer["spec"]["template"]["spec"]["topologySpreadConstraints"]
        return [one["whenUnsatisfiable"] for one in constraints]

    applied(api, spread("DoNotSchedule"), "m").ok(201)
    assert kept(applied(api, spread("ScheduleAnyway"), "m").ok()) == ["ScheduleAnyway"]
    found = applied(api, spread("DoNotSchedule"), "other").ok()
    assert kept(found) == ["ScheduleAnyway", "DoNotSchedule"]


@pytest.mark.parametrize(
    ("live", "said", "merged"),
    [
        ("ABC", "C", "ABC"), ("ABC", "CA", "BCA"), ("ABC", "DA", "DABC"), ("ABC", "AD", "ABCD"),
        ("AB", "CD", "ABCD"), ("ABCD", "DX", "ABCDX"), ("ABC", "CBA", "CBA"),
    ],
)  # fmt: skip
def test_items_that_are_applied_come_in_their_order(api, live, said, merged):
    def env(names):
        return [{"name": name, "value": name.lower()} for name in names]

    made(api, env=env(live))
    found = applied(api, body(env=env(said)), "m").ok()
    assert "".join(one["name"] for one in field(found, "env")) == merged
