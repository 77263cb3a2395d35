"""After any sequence of writes, a mirror that followed them is a mirror that is loaded anew."""

import contextlib
from typing import Any

import pytest
from django.db import connection, transaction
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from clusterstate.actions import objects
from clusterstate.actions.cluster import bootstrap
from clusterstate.actions.pods.bind import Binding, bind_pods
from clusterstate.actions.pods.delete import delete_pod
from clusterstate.actions.pods.queue import Unschedulable, set_unschedulable
from clusterstate.actions.scheduler import reservations
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.values.errors import Forbidden, Invalid
from clusterstate.processes import memory
from clusterstate.queries.pods import find_pod_id
from clusterstate.queries.scheduler.reservations import WAITING
from scheduling.controllers import resizes
from scheduling.controllers.evictions import timers
from scheduling.engine.queue.pending import Backoff
from scheduling.framework.types import PodInfo
from scheduling.worker.mirror import Mirror
from tests.controllers.support import (
    NOW,
    fire,
    make_node,
    make_pod,
    pod,
    set_labels,
    set_taints,
    taint,
    tolerate_too,
    tolerates,
)
from tests.forms import many

NODES = ("n1", "n2", "n3")
RESOURCES = ("cpu", "memory", "ephemeral-storage", "example.com/gpu")
APPS = ("a", "b")
SELECTOR = {"matchLabels": {"app": "a"}}
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": SELECTOR, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}
ASKS = {"requests": {"cpu": "100m", "memory": "64Mi", "example.com/gpu": "1"},
        "limits": {"example.com/gpu": "1"}}  # fmt: skip
SPECS: dict[str, dict[str, Any]] = {
    "simple": {},
    "sized": {
        "containers": [
            {
                "name": "main",
                "image": "i",
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
            }
        ]
    },
    "greedy": {"containers": [{"name": "main", "image": "i", "resources": ASKS}]},
    "apart": {"affinity": APART},
    "gated": {"schedulingGates": [{"name": "a.b/c"}]},
    "tolerant": {"tolerations": [tolerates("k", seconds=60)]},
    "placed by hand": {"nodeName": "n1"},
    "on a missing node": {"nodeName": "n9"},
    "of another scheduler": {"schedulerName": "other"},
}


def _any(info: PodInfo) -> int:
    return 1


def _apps(info: PodInfo) -> int:
    return int(info.labels.get("app") == "a")


def told(mirror: Mirror, pod_ids: list[int]) -> dict[str, Any]:
    """Return everything that a decision could depend on, by the names that both mirrors know."""
    snapshot = mirror.snapshot
    rows = {name: row for name in NODES if (row := snapshot.row_of(name)) is not None}
    columns = [snapshot.resource(one) for one in RESOURCES]
    counters = [
        snapshot.counter((weigh.__name__, live_only), weigh, live_only=live_only)
        for weigh in (_any, _apps)
        for live_only in (True, False)
    ]
    return {
        "nodes": {name: snapshot.node(row) for name, row in rows.items()},
        "requested": {
            name: snapshot.requested[row, columns].tolist() for name, row in rows.items()
        },
        "pods on nodes": {name: int(snapshot.pod_count[row]) for name, row in rows.items()},
        "counted": {
            name: [int(counter.rows[row]) for counter in counters] for name, row in rows.items()
        },
        "pods": {
            record.key: (
                record.info.digest,
                snapshot.node_of(record.key),
                record.terminating,
                record.preempted,
            )
            for record in snapshot.pods()
        },
        "since": {one.key: one.start_time for one in snapshot.pods() if one.row >= 0},
        "nominated": {id_: snapshot.nominated_node_of(id_) for id_ in pod_ids},
        "nominated as": {
            id_: info.digest
            for there in snapshot.nominations.of_node.values()
            for id_, info in there.items()
        },
        "queued": [id_ for id_ in pod_ids if id_ in mirror.queue],
        "budgets": sorted((one.name, one.disruptions_allowed)
                          for one in snapshot.disruption_budgets()),
        "namespace": snapshot.labels_of_namespace("default"),
        "spread by": {
            record.key: str(snapshot.default_selector(record.info)) for record in snapshot.pods()
        },
    }  # fmt: skip


class Following(RuleBasedStateMachine):
    """A small cluster, and the mirror of the scheduler that works in it."""

    @initialize()
    def begin(self) -> None:
        memory.forget()
        self.world = transaction.atomic()
        self.world.__enter__()
        bootstrap.add_missing(now=NOW)
        for name in NODES:
            make_node(name)
        self.pods: list[str] = []
        self.ids: dict[str, int] = {}
        self.reserved: dict[str, str] = {}
        self.mirror = Mirror({"default-scheduler": {}}, Backoff())
        self.mirror.load(NOW.timestamp())
        told(self.mirror, [])  # from here on the counters are kept up, not made

    def teardown(self) -> None:
        try:
            if hasattr(self, "mirror"):
                self.all_is_followed()
        finally:
            if hasattr(self, "world"):
                transaction.set_rollback(True)
                self.world.__exit__(None, None, None)
            memory.forget()

    # What the scheduler does, as it does it: in memory first, then in the database.

    def _waiting(self) -> list[str]:
        self.follow()
        return [
            name
            for name in self.pods
            if self.ids[name] in self.mirror.queue and name not in self.reserved
        ]

    def _assume(self, name: str, node: str) -> bool:
        snapshot, id_ = self.mirror.snapshot, self.ids[name]
        row = snapshot.row_of(node)
        if row is None or snapshot.knows(id_):
            return False
        row_of_class = sql.fetch_one("SELECT class_id FROM pod WHERE id = %s::bigint", (id_,))
        assert row_of_class is not None
        snapshot.assume(id_, self.mirror.info(row_of_class[0]), row)
        return True

    @rule(data=st.data(), node=st.sampled_from(NODES), stale=st.booleans())
    def the_scheduler_binds(self, data: st.DataObject, node: str, stale: bool) -> None:
        names = self._waiting()
        if not names:
            return
        name = data.draw(st.sampled_from(names))
        if self._assume(name, node):
            known = self.mirror.cursor
            if stale:
                set_labels(node, now=NOW, app="moved")
            done = bind_pods([Binding(self.ids[name], node)], snapshot_revision=known, now=NOW)
            if not done.bound:
                self.mirror.snapshot.forget(self.ids[name])

    @rule(
        data=st.data(), node=st.sampled_from((*NODES, "")), crossed=st.sampled_from((*NODES, "-"))
    )
    def the_scheduler_nominates(self, data: st.DataObject, node: str, crossed: str) -> None:
        names = self._waiting()
        if names:
            name = data.draw(st.sampled_from(names))
            id_ = self.ids[name]
            row = sql.fetch_one("SELECT class_id FROM pod WHERE id = %s::bigint", (id_,))
            assert row is not None
            info = self.mirror.info(row[0])
            if node:
                self.mirror.snapshot.nominate(id_, info, node)
            else:
                self.mirror.snapshot.unnominate(id_)
            if crossed != "-":
                _nominate(name, crossed)
            refused = Unschedulable(
                pod_id=id_, message="no room", reason="Unschedulable", stage="unschedulable",
                rejected_by=("NodeResourcesFit",), attempts=1, nominated_node_name=node,
            )  # fmt: skip
            self.mirror.wrote_nominations(set_unschedulable([refused], now=NOW))
            self.follow()
            assert self.mirror.snapshot.nominated_node_of(id_) == node

    @rule(data=st.data(), node=st.sampled_from(NODES), taken_back=st.booleans())
    def the_scheduler_reserves(self, data: st.DataObject, node: str, taken_back: bool) -> None:
        names = self._waiting()
        if not names:
            return
        name = data.draw(st.sampled_from(names))
        if not self._assume(name, node):
            return
        held = reservations.NewReservation(
            pod_id=self.ids[name], node_name=node, profile="default-scheduler",
            profile_revision=0, step=WAITING, attempts=1, waits={"p": NOW},
        )  # fmt: skip
        reservations.reserve([held], now=NOW)
        self.reserved[name] = node
        if taken_back:
            self._take_back(name)

    def _take_back(self, name: str) -> None:
        if self.reserved.pop(name, None) is not None:
            reservations.drop([self.ids[name]])
            self.mirror.snapshot.forget(self.ids[name])

    # What others do.

    @rule(kind=st.sampled_from(sorted(SPECS)), app=st.sampled_from(APPS))
    def a_pod_comes(self, kind: str, app: str) -> None:
        name = f"p{len(self.pods)}"
        self.ids[name] = make_pod(name, metadata={"labels": {"app": app}}, **SPECS[kind])
        self.pods.append(name)

    @rule(data=st.data(), node=st.sampled_from((*NODES, "")))
    def a_client_nominates(self, data: st.DataObject, node: str) -> None:
        names = [name for name in self.pods if pod(name) and not _bound(name)]
        if names:
            _nominate(data.draw(st.sampled_from(names)), node)

    @rule(data=st.data(), node=st.sampled_from(NODES))
    def another_scheduler_binds(self, data: st.DataObject, node: str) -> None:
        if self.pods:
            binding = Binding(self.ids[data.draw(st.sampled_from(self.pods))], node)
            bind_pods([binding], snapshot_revision=changes.watermark(), now=NOW, binder="other")

    @rule(data=st.data(), grace=st.sampled_from((0, 30)))
    def a_pod_is_deleted(self, data: st.DataObject, grace: int) -> None:
        names = [name for name in self.pods if find_pod_id("default", name) is not None]
        if names:
            name = data.draw(st.sampled_from(names))
            objects.delete("Pod", "default", name, {"gracePeriodSeconds": grace}, now=NOW)
            self.follow()
            self._take_back(name)  # as the scheduler does when it sees that the pod goes

    @rule(data=st.data())
    def a_pod_makes_room(self, data: st.DataObject) -> None:
        names = [name for name in self.pods if _bound(name)]
        if names:
            condition = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "PreemptionByScheduler",
            }
            delete_pod("default", data.draw(st.sampled_from(names)), condition=condition, now=NOW)
            self.follow()

    @rule(data=st.data())
    def a_pod_finishes(self, data: st.DataObject) -> None:
        names = [name for name in self.pods if _bound(name)]
        if names:
            objects.update(
                "Pod", "default", data.draw(st.sampled_from(names)),
                lambda m: {**m, "status": {**m["status"], "phase": "Succeeded"}},
                now=NOW, subresource="status",
            )  # fmt: skip

    @rule(
        data=st.data(),
        cpu=st.sampled_from(("50m", "100m", "8", "63", "64")),
        memory=st.sampled_from(("32Mi", "64Mi", "200Gi")),
    )
    def a_pod_is_resized(self, data: st.DataObject, cpu: str, memory: str) -> None:
        names = [name for name in self.pods if find_pod_id("default", name) is not None]
        if names:
            _resize(data.draw(st.sampled_from(names)), cpu, memory)

    @rule(
        data=st.data(),
        allocated=st.sampled_from(("100m", "2")),
        actual=st.sampled_from(("100m", "3", "")),
        reason=st.sampled_from(("", "Deferred", "Infeasible")),
    )
    def an_agent_tells_of_a_resize(
        self, data: st.DataObject, allocated: str, actual: str, reason: str
    ) -> None:
        names = [name for name in self.pods if _bound(name)]
        if not names:
            return
        told: dict[str, Any] = {"name": "main", "allocatedResources": {"cpu": allocated}}
        if actual:
            told["resources"] = {"requests": {"cpu": actual}}
        pending = {"type": "PodResizePending", "status": "True", "reason": reason}
        status = {"containerStatuses": [told], "conditions": [pending] if reason else []}
        objects.update(
            "Pod", "default", data.draw(st.sampled_from(names)),
            lambda m: {**m, "status": {**m["status"], **status}},
            now=NOW, subresource="status",
        )  # fmt: skip

    @rule(node=st.sampled_from(NODES), cpu=st.sampled_from(("8", "64")))
    def a_node_offers_another_amount(self, node: str, cpu: str) -> None:
        if _exists(node):
            offered = {"allocatable": {"cpu": cpu, "memory": "256Gi", "pods": "110"}}
            objects.update("Node", "", node, lambda m: {**m, "status": {**m["status"], **offered}},
                           now=NOW, subresource="status")  # fmt: skip

    @rule()
    def what_waits_for_room_is_tried_again(self) -> None:
        resizes.follow(NOW)

    @rule(data=st.data())
    def a_toleration_is_added(self, data: st.DataObject) -> None:
        names = [name for name in self.pods if find_pod_id("default", name) is not None]
        if names:
            tolerate_too(data.draw(st.sampled_from(names)), tolerates("k", seconds=None))

    @rule(node=st.sampled_from(NODES), effect=st.sampled_from(("NoExecute", "NoSchedule", "")))
    def a_node_is_tainted(self, node: str, effect: str) -> None:
        if _exists(node):
            set_taints(node, *([taint("k", effect)] if effect else []))

    @rule(node=st.sampled_from(NODES), key=st.sampled_from("kl"), comes=st.booleans())
    def a_taint_is_written_in_sql(self, node: str, key: str, comes: bool) -> None:
        statement = (
            "INSERT INTO taint (node_id, key, effect) SELECT id, %s::text, 'NoExecute' FROM node"
            " WHERE name = %s ON CONFLICT DO NOTHING"
            if comes
            else "DELETE FROM taint t USING node n WHERE t.key = %s AND n.id = t.node_id"
            " AND n.name = %s"
        )
        sql.run(statement, (key, node))
        with connection.cursor() as cursor:  # as the commit would
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED")

    @rule()
    def what_is_due_is_evicted(self) -> None:
        timers.follow(NOW)
        fire(NOW)

    @rule(node=st.sampled_from(NODES), value=st.sampled_from(APPS))
    def a_node_is_labelled(self, node: str, value: str) -> None:
        if _exists(node):
            set_labels(node, app=value)

    @rule(node=st.sampled_from(NODES))
    def a_node_goes_or_comes(self, node: str) -> None:
        if _exists(node):
            objects.delete("Node", "", node, now=NOW)
            for name in [name for name, there in self.reserved.items() if there == node]:
                self._take_back(name)
        else:
            make_node(node)

    @rule(name=st.sampled_from(APPS))
    def a_service_goes_or_comes(self, name: str) -> None:
        manifest = {"metadata": {"name": name},
                    "spec": {"selector": {"app": name}, "ports": [{"port": 80}]}}  # fmt: skip
        self._toggle("Service", name, manifest)

    @rule()
    def a_budget_goes_or_comes(self) -> None:
        manifest = {"metadata": {"name": "b"}, "spec": {"selector": SELECTOR, "minAvailable": 1}}
        self._toggle("PodDisruptionBudget", "b", manifest)

    @rule(value=st.sampled_from(APPS))
    def the_namespace_is_labelled(self, value: str) -> None:
        objects.update(
            "Namespace", "", "default",
            lambda m: {**m, "metadata": {**m["metadata"], "labels": {"team": value}}}, now=NOW,
        )  # fmt: skip

    def _toggle(self, kind: str, name: str, manifest: dict[str, Any]) -> None:
        table = {"Service": "service", "PodDisruptionBudget": "pod_disruption_budget"}[kind]
        if sql.fetch(f"SELECT 1 FROM {table} WHERE name = %s", (name,)):
            objects.delete(kind, "default", name, now=NOW)
        else:
            objects.create(kind, "default", manifest, now=NOW)

    # And what must hold.

    @rule()
    def follow(self) -> None:
        self.mirror.refresh(NOW.timestamp())

    @rule()
    def all_is_followed(self) -> None:
        self.follow()
        loaded = Mirror({"default-scheduler": {}}, Backoff())
        loaded.load(NOW.timestamp())
        assert loaded.cursor == self.mirror.cursor
        ids = sorted(self.ids.values())
        assert told(self.mirror, ids) == told(loaded, ids)


def _resize(name: str, cpu: str, memory: str) -> None:
    def resized(manifest: dict[str, Any]) -> dict[str, Any]:
        container = dict(manifest["spec"]["containers"][0])
        stated = container.get("resources") or {}
        asked = {**stated.get("requests", {}), "cpu": cpu, "memory": memory}
        container["resources"] = {**stated, "requests": asked}
        return {**manifest, "spec": {**manifest["spec"], "containers": [container]}}

    with contextlib.suppress(Invalid, Forbidden):  # of another class, or larger than its node
        objects.update("Pod", "default", name, resized, now=NOW, subresource="resize")


def _nominate(name: str, node: str) -> None:
    def nominated(manifest: dict[str, Any]) -> dict[str, Any]:
        status = {**manifest["status"], "nominatedNodeName": node}
        if not node:
            del status["nominatedNodeName"]
        return {**manifest, "status": status}

    objects.update("Pod", "default", name, nominated, now=NOW, subresource="status")


def _exists(node: str) -> bool:
    return bool(sql.fetch("SELECT 1 FROM node WHERE name = %s", (node,)))


def _bound(name: str) -> bool:
    found = pod(name)
    return found is not None and bool(found["spec"].get("nodeName"))


@pytest.mark.django_db
@pytest.mark.drawn
def test_a_mirror_that_followed_is_a_mirror_that_loads() -> None:
    run_state_machine_as_test(
        Following,
        settings=settings(
            max_examples=many(4, 60),
            stateful_step_count=30,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
