"""Who owns which field, and what an apply does about it."""

import copy
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.errors import Conflict
from clusterstate.objects.wire import field_sets, managed_fields
from clusterstate.objects.wire.managed_fields import Manager
from tests.clock import NOW
from tests.forms import many

DEPLOYMENT = KINDS["Deployment"]
POD = KINDS["Pod"]
ME, YOU = Manager("me"), Manager("you")


def web(*, images=None, labels=None, **spec):
    containers = [{"name": name, "image": image} for name, image in (images or {}).items()]
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", **({"labels": labels} if labels else {})},
        "spec": dict(spec),
    }
    if containers:
        body["spec"]["template"] = {"spec": {"containers": containers}}
    return body


def applied(live, said, manager=ME, *, force=False, kind=DEPLOYMENT, now=NOW):
    before = copy.deepcopy((live, said))
    result = managed_fields.apply(kind, live, said, manager, force=force, now=now)
    assert (live, said) == before
    return result


def written(live, manager=YOU, *, kind=DEPLOYMENT, now=NOW, **changes):
    """Return the object after an update by ``manager`` that sets these members of the spec."""
    new = copy.deepcopy(live)
    for name, value in changes.items():
        if value is None:
            new["spec"].pop(name, None)
        else:
            new["spec"][name] = value
    return managed_fields.updated(kind, live, new, manager, now)


def owners(manifest):
    return {
        (entry["manager"], entry["operation"]): field_sets.from_fields_v1(entry["fieldsV1"])
        for entry in manifest["metadata"].get("managedFields") or ()
    }


REPLICAS = ("f:spec", "f:replicas")


def test_what_somebody_else_set_since_is_kept_when_it_is_no_longer_applied():
    """Apply 3, scale to 4, apply without replicas: 4 stays."""
    live = applied(None, web(replicas=3, paused=True))
    scaled = written(live, Manager("scaler", "scale"), replicas=4)
    assert REPLICAS not in owners(scaled)["me", "Apply"]
    assert owners(scaled)["scaler", "Update"] == {REPLICAS}
    after = applied(scaled, web(paused=True))
    assert after["spec"] == {"replicas": 4, "paused": True}


def test_what_nobody_else_set_goes_when_it_is_no_longer_applied():
    live = applied(None, web(replicas=3, paused=True))
    same = written(live, replicas=3)
    assert same == live
    assert applied(same, web(paused=True))["spec"] == {"paused": True}


def test_an_update_makes_a_conflict_until_it_is_forced():
    live = written(applied(None, web(replicas=3)), replicas=5)
    with pytest.raises(Conflict) as failed:
        applied(live, web(replicas=3))
    assert failed.value.message == (
        'Apply failed with 1 conflict: conflict with "you" using apps/v1: .spec.replicas'
    )
    assert failed.value.details["causes"][0]["reason"] == "FieldManagerConflict"
    forced = applied(live, web(replicas=3), force=True)
    assert forced["spec"] == {"replicas": 3}
    assert set(owners(forced)) == {("me", "Apply")}
    assert applied(live, web(replicas=5))["spec"] == {"replicas": 5}


def test_the_creator_owns_what_it_created():
    new = web(replicas=2)
    managed_fields.claim(DEPLOYMENT, new, "maker")
    made = managed_fields.created(DEPLOYMENT, new, NOW)
    (entry,) = made["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("maker", "Update")
    assert entry["fieldsV1"] == {"f:spec": {"f:replicas": {}}}
    with pytest.raises(Conflict):
        applied(made, web(replicas=3))


def test_pods_do_not_tell_who_created_them():
    new = {"metadata": {"name": "p"}, "spec": {}}
    managed_fields.claim(POD, new, "maker")
    assert managed_fields.created(POD, new, NOW) == {"metadata": {"name": "p"}, "spec": {}}


def test_all_that_was_there_before_the_first_apply_has_an_owner():
    live = web(replicas=2, labels={"a": "1"})
    with pytest.raises(Conflict, match=r'"before-first-apply" using apps/v1: \.spec\.replicas'):
        applied(live, web(replicas=3))
    after = applied(live, web(labels={"b": "2"}))
    assert after["metadata"]["labels"] == {"a": "1", "b": "2"}
    assert owners(after)["before-first-apply", "Update"] == {
        ("f:metadata", "f:labels", "f:a"), REPLICAS,
    }  # fmt: skip


def test_an_item_of_a_list_that_is_no_longer_applied_goes_as_a_whole():
    live = applied(None, web(images={"a": "i", "b": "j"}))
    after = applied(live, web(images={"a": "i"}))
    assert after["spec"]["template"]["spec"]["containers"] == [{"name": "a", "image": "i"}]


def test_an_item_in_which_another_has_a_field_stays_with_its_key():
    live = applied(None, web(images={"a": "i", "b": "j"}))
    new = copy.deepcopy(live)
    new["spec"]["template"]["spec"]["containers"][1]["workingDir"] = "/"
    live = managed_fields.updated(DEPLOYMENT, live, new, YOU, NOW)
    after = applied(live, web(images={"a": "i"}))
    assert after["spec"]["template"]["spec"]["containers"][1] == {"name": "b", "workingDir": "/"}


def test_ports_of_one_number_differ_by_protocol():
    def pod(*ports):
        return {
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "ports": list(ports)}]},
        }

    tcp, udp = {"containerPort": 53}, {"containerPort": 53, "protocol": "UDP"}
    live = applied(None, pod(tcp, udp), kind=POD)
    after = applied(live, pod(udp), kind=POD)
    assert after["spec"]["containers"][0]["ports"] == [udp]


def test_values_of_a_set_are_owned_one_by_one():
    def held(*names):
        return {"metadata": {"name": "web", "finalizers": list(names)}, "spec": {}}

    live = applied(None, held("a/a", "b/b"))
    live = applied(live, held("c/c"), YOU)
    assert live["metadata"]["finalizers"] == ["a/a", "b/b", "c/c"]
    assert applied(live, held("b/b"))["metadata"]["finalizers"] == ["b/b", "c/c"]


def test_applying_the_same_again_changes_nothing():
    live = applied(None, web(replicas=3))
    assert applied(live, web(replicas=3), now=NOW + timedelta(hours=1)) == live


def test_kubectl_takes_over_what_it_applied_on_the_clients_side():
    live = web(replicas=2)
    said = msgspec.json.encode(web(replicas=2)).decode()
    live["metadata"]["annotations"] = {managed_fields.LAST_APPLIED: said}
    managed_fields.claim(DEPLOYMENT, live, "kubectl-client-side-apply")
    live = managed_fields.created(DEPLOYMENT, live, NOW)
    assert applied(live, web(replicas=3), Manager("kubectl"))["spec"] == {"replicas": 3}
    with pytest.raises(Conflict):
        applied(live, web(replicas=3), Manager("other"))


def test_an_empty_entry_resets_the_entries():
    live = applied(None, web(replicas=3))
    new = copy.deepcopy(live)
    new["metadata"]["managedFields"] = [{}]
    reset = managed_fields.updated(DEPLOYMENT, live, new, YOU, NOW)
    assert "managedFields" not in reset["metadata"]


@pytest.mark.parametrize(
    "given",
    [None, [], [{"manager": "x"}], [{"fieldsV1": {}}],
     [{"manager": "x", "fieldsV1": {"finalizers": ["example.com/hold"]}}],
     [{"manager": "x", "fieldsV1": {"f:spec": {"f:replicas": 3}}}]],
)  # fmt: skip
def test_entries_that_say_nothing_leave_the_stored_ones(given):
    live = applied(None, web(replicas=3))
    new = copy.deepcopy(live)
    new["metadata"]["managedFields"] = given
    kept = managed_fields.updated(DEPLOYMENT, live, new, YOU, NOW)
    assert kept["metadata"]["managedFields"] == live["metadata"]["managedFields"]


@pytest.mark.parametrize(
    "fields",
    [{"f:spec": {"k:{broken": {".": {}}}}, {"v:": {}}, {"i:0": {}}, {"f:spec": {"k:[1]": {}}},
     {"f:spec": {"f:template": {"f:spec": {"f:containers": {"k:7": {"f:x": {}}, "x": {}}}}}}],
)  # fmt: skip
def test_entries_that_a_client_made_up_break_nothing(fields):
    live = web(replicas=3, images={"a": "i"})
    entry = {"manager": "me", "operation": "Apply", "fieldsV1": fields}
    live["metadata"]["managedFields"] = [entry]
    after = applied(live, web(replicas=4))
    assert after["spec"]["replicas"] == 4
    assert after["spec"]["template"] == live["spec"]["template"]


def test_a_status_is_told_apart_and_only_once_it_is_applied():
    live = applied(None, web(replicas=3))
    new = {**copy.deepcopy(live), "status": {"replicas": 1}}
    by_update = managed_fields.updated(DEPLOYMENT, live, new, Manager("agent", "status"), NOW)
    assert owners(by_update) == owners(live)
    said = {"metadata": {"name": "web"}, "status": {"replicas": 2}}
    live = applied(by_update, said, Manager("agent", "status"))
    assert live["status"] == {"replicas": 2}
    new = {**copy.deepcopy(live), "status": {"replicas": 5}}
    late = managed_fields.updated(DEPLOYMENT, live, new, Manager("other", "status"), NOW)
    assert owners(late)["other", "Update"] == {("f:status", "f:replicas")}
    assert ("agent", "Apply") not in owners(late)


def test_the_oldest_of_many_updates_become_one():
    live = applied(None, web(labels={"mine": "1"}))
    for number in range(managed_fields.MAX_UPDATERS + 5):
        new = copy.deepcopy(live)
        new["metadata"]["labels"][f"l{number:02}"] = "x"
        moment = NOW + timedelta(seconds=number)
        live = managed_fields.updated(DEPLOYMENT, live, new, Manager(f"m{number:02}"), moment)
    found = owners(live)
    assert len(found) == managed_fields.MAX_UPDATERS + 1
    assert len(found["ancient-changes", "Update"]) == 6
    assert next(iter(found)) == ("me", "Apply")


# ------------------------------------------------------------------------------ properties

_SPECS = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.integers(0, 3),
        "paused": st.booleans(),
        "minReadySeconds": st.integers(0, 2),
    },
)
_STEPS = st.lists(
    st.tuples(st.sampled_from(["apply", "force", "update"]), st.sampled_from("abc"), _SPECS),
    max_size=8,
)


@given(_STEPS)
@settings(max_examples=many(40, 600), deadline=None)
def test_each_field_that_was_applied_has_its_value_until_somebody_else_sets_it(steps):
    """A model: the value of each field, and for each manager the fields that it last applied."""
    live = applied(None, web(), Manager("root"))
    values: dict[str, object] = {}
    says: dict[str, set[str]] = {}
    sets: dict[str, set[str]] = {}
    for how, name, spec in steps:
        if how == "update":
            new = copy.deepcopy(live)
            new["spec"] = dict(spec)
            live = managed_fields.updated(DEPLOYMENT, live, new, Manager(name), NOW)
            changed = {f for f in spec if values.get(f, ...) != spec[f]} | (values.keys() - spec)
            for owned in (*says.values(), *sets.values()):
                owned -= changed
            sets.setdefault(name, set()).update(changed & spec.keys())
            values = dict(spec)
            continue
        others = [owned for other, owned in says.items() if other != name] + list(sets.values())
        clash = {f for f in spec if values.get(f, ...) != spec[f] and any(f in o for o in others)}
        if clash and how == "apply":
            with pytest.raises(Conflict):
                applied(live, web(**spec), Manager(name))
            continue
        live = applied(live, web(**spec), Manager(name), force=how == "force")
        for owned in others:
            owned -= clash
        dropped = says.get(name, set()) - spec.keys()
        for field in dropped:
            if not any(field in owned for owned in others):
                values.pop(field, None)
        values.update(spec)
        says[name] = set(spec)
    assert live["spec"] == values


BUDGET = KINDS["PodDisruptionBudget"]


def budget(**labels):
    return {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
        "spec": {"selector": {"matchLabels": labels}},
    }  # fmt: skip


def test_a_selector_is_applied_as_a_whole():
    """Two managers cannot each own a part of what selects."""
    live = applied(None, budget(a="1"), kind=BUDGET)
    assert owners(live)["me", "Apply"] == {("f:spec", "f:selector")}
    with pytest.raises(Conflict):
        applied(live, budget(b="2"), YOU, kind=BUDGET)
    forced = applied(live, budget(b="2"), YOU, force=True, kind=BUDGET)
    assert forced["spec"]["selector"] == {"matchLabels": {"b": "2"}}
    assert ("me", "Apply") not in owners(forced)


def test_what_owners_of_former_versions_have_of_a_whole_is_the_whole():
    inside = {"f:spec": {"f:selector": {"f:matchLabels": {"f:a": {}}}}}
    live = applied(None, budget(a="1"), kind=BUDGET)
    (entry,) = live["metadata"]["managedFields"]
    live["metadata"]["managedFields"] = [{**entry, "fieldsV1": inside}]
    again = applied(live, budget(a="1"), kind=BUDGET)
    assert again["spec"] == live["spec"], "nothing of it is taken for given up"
    with pytest.raises(Conflict):
        applied(again, budget(b="2"), YOU, kind=BUDGET)


def test_a_reference_that_kubernetes_merges_is_merged():
    volume = {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"},
        "spec": {"claimRef": {"name": "c"}},
    }  # fmt: skip
    live = applied(None, volume, kind=KINDS["PersistentVolume"])
    assert owners(live)["me", "Apply"] == {("f:spec", "f:claimRef", "f:name")}


def test_a_whole_goes_when_it_is_no_longer_applied():
    live = applied(None, budget(a="1"), kind=BUDGET)
    bare = {**budget(), "spec": {"minAvailable": 1}}
    assert applied(live, bare, kind=BUDGET)["spec"] == {"minAvailable": 1}


def test_an_owner_is_applied_as_a_whole():
    def owned(**members):
        owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", **members}
        return {**budget(a="1"), "metadata": {"name": "b", "ownerReferences": [owner]}}

    live = applied(None, owned(), kind=BUDGET)
    item = ("f:metadata", "f:ownerReferences", 'k:{"uid":"u"}')
    assert item in owners(live)["me", "Apply"]
    with pytest.raises(Conflict):
        applied(live, owned(controller=True), YOU, kind=BUDGET)
    forced = applied(live, owned(controller=True), YOU, force=True, kind=BUDGET)
    assert (
        forced["metadata"]["ownerReferences"]
        == owned(controller=True)["metadata"]["ownerReferences"]
    )
    assert "ownerReferences" not in applied(live, budget(a="1"), kind=BUDGET)["metadata"]
