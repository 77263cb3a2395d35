"""Whatever happens in whatever order, each pod's timer is what a fresh computation says (C22)."""

import datetime as dt
import re

import msgspec
import pytest
from django.db import connection, transaction
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
from clusterstate.actions.writing.transactions import rehearsal
from clusterstate.database import sql
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod import Pod
from clusterstate.processes import memory
from clusterstate.queries.evictions.eviction_timers import waiting_timers
from clusterstate.queries.objects import decode_object, get_object
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.pods import find_pod_id, pods_by_id
from scheduling.controllers.evictions import timers
from tests.controllers.support import (
    NOW,
    bind,
    fire,
    make_node,
    make_pod,
    set_taints,
    taint,
    tolerate_too,
    tolerates,
)
from tests.forms import many

NODES = ("n1", "n2")
KEYS = ("a", "b")
tolerations = st.lists(
    st.builds(
        lambda key, seconds: tolerates(key, seconds=seconds),
        st.sampled_from(KEYS),
        st.sampled_from((None, 0, 5, 60, 3600)),
    ),
    max_size=2,
    unique_by=lambda one: one["key"],
)
taints = st.lists(st.sampled_from(KEYS), max_size=2, unique=True)


class Timers(RuleBasedStateMachine):
    """A small cluster whose clock goes only forward, and only when told to."""

    @initialize()
    def begin(self):
        memory.forget()
        self.world = transaction.atomic()
        self.world.__enter__()
        self.now = NOW
        self.count = 0
        for name in NODES:
            make_node(name)
        self.evicted = set()

    def teardown(self):
        if hasattr(self, "world"):
            transaction.set_rollback(True)
            self.world.__exit__(None, None, None)

    def _pods(self, *, bound=None):
        found = [decode_object(item) for item in list_page("Pod", "default").items]
        return [
            one["metadata"]["name"]
            for one in found
            if bound is None or bool(one["spec"].get("nodeName")) == bound
        ]

    @rule(seconds=st.sampled_from((1, 4, 30, 600)))
    def time_goes_by(self, seconds):
        self.now += dt.timedelta(seconds=seconds)

    @rule(tolerations=tolerations, node=st.sampled_from((*NODES, "")))
    def a_pod_comes(self, tolerations, node):
        self.count += 1
        make_pod(f"p{self.count}", node, now=self.now, tolerations=tolerations)

    @rule(data=st.data(), node=st.sampled_from(NODES))
    def a_pod_is_bound(self, data, node):
        names = self._pods(bound=False)
        if names:
            name = data.draw(st.sampled_from(names))
            bind(find_pod_id("default", name), node, now=self.now)

    @rule(node=st.sampled_from(NODES), keys=taints)
    def taints_change(self, node, keys):
        set_taints(node, *(taint(key) for key in keys), now=self.now)

    @rule(node=st.sampled_from(NODES), keys=taints)
    def a_dry_run_counts_the_pods_that_then_leave(self, node, keys):
        timers.follow(self.now)
        before = {one.name: one.due_at for one in waiting_timers()}
        wanted = [taint(key) for key in keys]
        with rehearsal():
            told = set_taints(node, *wanted, now=self.now).warnings
        set_taints(node, *wanted, now=self.now)
        timers.follow(self.now)
        hastened = [
            one.due_at <= self.now
            for one in waiting_timers()
            if one.name not in before or one.due_at < before[one.name]
        ]
        counts = [re.findall(r"[0-9]+(?= pods? would| after)", line) for line in told]
        expected = [[str(hastened.count(True)), str(hastened.count(False))]] if hastened else []
        assert counts == expected

    @rule(node=st.sampled_from(NODES), key=st.sampled_from(KEYS), comes=st.booleans())
    def a_taint_is_written_in_sql(self, node, key, comes):
        if comes:
            sql.run(
                "INSERT INTO taint (node_id, key, effect, added_at)"
                " SELECT id, %s::text, 'NoExecute', %s::timestamptz FROM node WHERE name = %s"
                " ON CONFLICT DO NOTHING",
                (key, self.now, node),
            )
        else:
            sql.run(
                "DELETE FROM taint t USING node n WHERE t.key = %s AND n.id = t.node_id"
                " AND n.name = %s",
                (key, node),
            )
        with connection.cursor() as cursor:  # as the commit would
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED")

    @rule(data=st.data(), key=st.sampled_from(KEYS), seconds=st.sampled_from((None, 5, 60)))
    def a_toleration_is_added(self, data, key, seconds):
        names = self._pods()
        if names:
            toleration = tolerates(key, seconds=seconds)
            tolerate_too(data.draw(st.sampled_from(names)), toleration, now=self.now)

    @rule(data=st.data(), grace=st.sampled_from((0, 30)))
    def a_pod_is_deleted(self, data, grace):
        names = self._pods()
        if names:
            name = data.draw(st.sampled_from(names))
            objects.delete("Pod", "default", name, {"gracePeriodSeconds": grace}, now=self.now)

    @rule()
    def the_controller_restarts_from_nothing(self):
        memory.forget()
        timers.restate_everything(self.now)

    @rule()
    def what_is_due_fires(self):
        timers.follow(self.now)
        expected = {
            name for name, due in self._fresh().items() if due is not None and due <= self.now
        }
        done = fire(self.now)
        assert not self.evicted & set(done.evicted), "a pod was evicted twice"
        self.evicted |= set(done.evicted)
        names = {row.name for row in pods_by_id(done.evicted).values()}
        assert names == expected

    def _fresh(self):
        """Return when each live pod must leave, computed from manifests alone."""
        nodes = {
            name: msgspec.json.decode(get_object("Node", "", name), type=Node) for name in NODES
        }
        result = {}
        for item in list_page("Pod", "default").items:
            one = msgspec.json.decode(item, type=Pod)
            node = nodes.get(one.spec.node_name)
            if node is None or one.metadata.deletion_timestamp is not None:
                continue
            result[one.metadata.name] = self._leaves_at(one, node)
        return result

    def _leaves_at(self, pod, node):
        """Return when, told as the ruling tells it and not as the code does."""
        bound_at = next(
            dt.datetime.fromisoformat(condition.last_transition_time)
            for condition in pod.status.conditions
            if condition.type == "PodScheduled"
        )
        ends = []
        for one in node.spec.taints:
            used = [t for t in pod.spec.tolerations if t.key == one.key]
            if used and used[0].toleration_seconds is None:
                continue
            seconds = used[0].toleration_seconds if used else 0
            added_at = dt.datetime.fromisoformat(one.time_added)
            ends.append(max(added_at, bound_at) + dt.timedelta(seconds=seconds))
        return min(ends, default=None)

    @invariant()
    def timers_are_what_a_fresh_computation_says(self):
        if not hasattr(self, "now"):
            return
        timers.follow(self.now)
        wanted = {name: due for name, due in self._fresh().items() if due is not None}
        assert {one.name: one.due_at for one in waiting_timers()} == wanted


@pytest.mark.django_db
@pytest.mark.drawn
def test_each_timer_equals_a_fresh_computation():
    run_state_machine_as_test(
        Timers,
        settings=settings(
            max_examples=many(5, 50),
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
