"""Whatever happens in whatever order, a quota shows what there is, and is never exceeded."""

from contextlib import nullcontext

import pytest
from django.db import transaction
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from clusterstate.actions import objects
from clusterstate.actions.cluster import bootstrap
from clusterstate.actions.pods.create import create_pods
from clusterstate.actions.pods.evict import evict_pod
from clusterstate.actions.pods.status import fail_pods
from clusterstate.actions.writing import quotas
from clusterstate.actions.writing.transactions import rehearsal
from clusterstate.database import sql
from clusterstate.objects.values.errors import AlreadyExists, Forbidden, StatusError
from clusterstate.objects.values.quantity import Quantity
from clusterstate.processes import memory
from clusterstate.queries.objects import decode_object
from clusterstate.queries.objects.lists import list_page
from scheduling.controllers import quotas as controller
from tests.clusterstate.support import NOW, Worker
from tests.forms import many

pytestmark = pytest.mark.django_db(transaction=True)

QUOTA = "ResourceQuota"
NAMES = st.sampled_from([f"p{number}" for number in range(6)])
CPU = st.sampled_from(["100m", "500m", "1", "1500u"])
HARD = st.fixed_dictionaries(
    {},
    optional={
        "pods": st.sampled_from(["1", "3", "20"]),
        "requests.cpu": st.sampled_from(["1", "2500m", "40"]),
        "count/pods": st.sampled_from(["4", "30"]),
        "services": st.just("1"),
        "services.nodeports": st.sampled_from(["1", "3"]),
        "count/leases.coordination.k8s.io": st.just("1"),
    },
)
SCOPES = st.sampled_from([[], [], ["Terminating"], ["NotTerminating"], ["NotBestEffort"]])
OF_PODS = ("pods", "requests.cpu")


def pod(name, cpu, deadline):
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]
    spec = {"containers": containers}
    if deadline:
        spec["activeDeadlineSeconds"] = 60
    return {"metadata": {"name": name}, "spec": spec}


def quota_spec(hard, scopes):
    if scopes:
        return {"hard": {n: a for n, a in hard.items() if n in OF_PODS}, "scopes": scopes}
    return {"hard": hard}


class Quotas(RuleBasedStateMachine):
    """A namespace with up to two quotas."""

    @initialize()
    def begin(self):
        memory.forget()
        self.world = transaction.atomic()
        self.world.__enter__()
        bootstrap.add_missing(now=NOW)
        objects.create("Namespace", "", {"metadata": {"name": "team"}}, now=NOW)

    def teardown(self):
        if hasattr(self, "world"):
            transaction.set_rollback(True)
            self.world.__exit__(None, None, None)
            memory.forget()

    def attempt(self, action, *arguments, **options):
        try:
            with transaction.atomic():
                action(*arguments, now=NOW, **options)
        except StatusError:
            pass

    @rule(name=st.sampled_from(["a", "b"]), hard=HARD, scopes=SCOPES)
    def limit(self, name, hard, scopes):
        manifest = {"metadata": {"name": name}, "spec": quota_spec(hard, scopes)}
        self.attempt(objects.create, QUOTA, "team", manifest)

    @rule(name=st.sampled_from(["a", "b"]), hard=HARD)
    def limit_otherwise(self, name, hard):
        def change(stored):
            spec = quota_spec(hard, stored["spec"].get("scopes"))
            return {**stored, "spec": {**stored["spec"], **spec}}

        self.attempt(objects.update, QUOTA, "team", name, change)

    @rule(name=st.sampled_from(["a", "b"]))
    def limit_no_longer(self, name):
        self.attempt(objects.delete, QUOTA, "team", name)

    @rule(
        wanted=st.lists(st.tuples(NAMES, CPU, st.booleans()), min_size=1, max_size=4),
        together=st.booleans(),
        rehearsed=st.booleans(),
    )
    def create(self, wanted, together, rehearsed):
        with rehearsal() if rehearsed else nullcontext():
            self.attempt(
                create_pods,
                [pod(*one) for one in wanted],
                namespace="team",
                all_or_nothing=together,
            )

    @rule(name=NAMES, how=st.sampled_from(["delete", "evict", "fail", "statement"]))
    def end(self, name, how):
        if how == "delete":
            self.attempt(objects.delete, "Pod", "team", name)
        elif how == "evict":
            self.attempt(evict_pod, "team", name, {})
        elif how == "fail":
            for (pod_id,) in sql.fetch("SELECT id FROM pod WHERE name = %s", (name,)):
                fail_pods([(pod_id, "Why", "because")], now=NOW)
        else:
            sql.run("DELETE FROM pod WHERE name = %s", (name,))

    @rule(name=NAMES, deadline=st.booleans(), label=st.booleans())
    def change_pod(self, name, deadline, label):
        def change(stored):
            metadata = {**stored["metadata"], "labels": {"x": "y"} if label else {}}
            spec = {**stored["spec"], **({"activeDeadlineSeconds": 60} if deadline else {})}
            return {**stored, "metadata": metadata, "spec": spec}

        self.attempt(objects.update, "Pod", "team", name, change)

    @rule(name=st.sampled_from(["s", "t"]), type_=st.sampled_from(["ClusterIP", "NodePort"]))
    def serve(self, name, type_):
        manifest = {"metadata": {"name": name}, "spec": {"type": type_, "ports": [{"port": 80}]}}
        self.attempt(objects.create, "Service", "team", manifest)

        def change(stored):
            return {**stored, "spec": {**stored["spec"], "type": type_}}

        self.attempt(objects.update, "Service", "team", name, change)

    @rule(name=st.sampled_from(["s", "t"]), kind=st.sampled_from(["Service", "Lease"]))
    def remove(self, name, kind):
        self.attempt(objects.delete, kind, "team", name)

    @rule(name=st.sampled_from(["s", "t"]))
    def lease(self, name):
        manifest = {"metadata": {"name": name}, "spec": {"holderIdentity": "me"}}
        self.attempt(objects.create, "Lease", "team", manifest)

    @rule()
    def settle(self):
        controller.settle(NOW)
        assert sql.fetch("SELECT 1 FROM usage_change") == []

    @invariant()
    def each_quota_shows_what_a_recount_gives(self):
        if hasattr(self, "world"):
            assert quotas.wrong_accounts("team") == []


@pytest.mark.drawn
def test_a_quota_shows_what_there_is_after_any_sequence_of_actions() -> None:
    run_state_machine_as_test(
        Quotas,
        settings=settings(
            max_examples=many(5, 50),
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


CREATORS, TRIES, ROOM = 4, 12, 10


def test_concurrent_creators_fill_a_quota_and_never_exceed_it() -> None:
    bootstrap.add_missing(now=NOW)
    objects.create("Namespace", "", {"metadata": {"name": "team"}}, now=NOW)
    objects.create(
        QUOTA,
        "team",
        {"metadata": {"name": "q"}, "spec": {"hard": {"pods": str(ROOM), "cpu": "1"}}},
        now=NOW,
    )

    def create(who: int) -> tuple[int, int]:
        made = refused = 0
        for number in range(TRIES):
            manifests = [pod(f"w{who}-{number}-{one}", "100m", deadline=False) for one in range(2)]
            for result in create_pods(manifests, namespace="team", now=NOW, all_or_nothing=False):
                assert not isinstance(result, AlreadyExists)
                refused += isinstance(result, Forbidden)
                made += not isinstance(result, StatusError)
            present = sql.fetch("SELECT count(*) FROM pod WHERE phase = 'Pending'")[0][0]
            assert present <= ROOM
            if number % 3 == 2:
                objects_of(who)
        return made, refused

    def objects_of(who: int) -> None:
        rows = sql.fetch("SELECT name FROM pod WHERE name LIKE %s LIMIT 2", (f"w{who}-%",))
        for (name,) in rows:
            objects.delete("Pod", "team", name, now=NOW)

    workers = [Worker(lambda who=who: create(who)) for who in range(CREATORS)]
    made = sum(worker.result(120)[0] for worker in workers)
    assert made >= ROOM
    controller.settle(NOW)
    assert quotas.wrong_accounts("team") == []
    (item,) = list_page(QUOTA, "team").items
    status = decode_object(item)["status"]
    present = sql.fetch("SELECT count(*) FROM pod")[0][0]
    assert status["used"]["pods"] == str(present)
    assert Quantity.parse(status["used"]["cpu"]) <= Quantity.parse("1")


def test_a_quota_that_comes_among_creators_and_ends_counts_each_pod_once() -> None:
    """Those who end pods while it is counted are counted before or after, and not twice."""
    bootstrap.add_missing(now=NOW)
    objects.create("Namespace", "", {"metadata": {"name": "team"}}, now=NOW)
    for number in range(30):
        create_pods([pod(f"old{number}", "100m", deadline=False)], namespace="team", now=NOW)

    def create() -> None:
        for number in range(20):
            create_pods(
                [pod(f"new{number}", "100m", deadline=False)],
                namespace="team",
                now=NOW,
                all_or_nothing=False,
            )

    def end() -> None:
        for number in range(30):
            objects.delete("Pod", "team", f"old{number}", now=NOW)

    def limit() -> None:
        for number in range(6):
            manifest = {
                "metadata": {"name": f"q{number}"},
                "spec": {"hard": {"pods": "500", "count/pods": "500"}},
            }
            objects.create(QUOTA, "team", manifest, now=NOW)

    workers = [Worker(work) for work in (create, end, limit)]
    for worker in workers:
        worker.result(120)
    controller.settle(NOW)
    assert quotas.wrong_accounts("team") == []
    for item in list_page(QUOTA, "team").items:
        assert decode_object(item)["status"]["used"] == {"pods": "20", "count/pods": "20"}
