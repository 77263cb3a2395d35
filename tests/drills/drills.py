"""Drills on a whole service: agents lost, labels changed, parts killed; then the log is audited.

Each starts a service of its own with hollow nodes, does its harm, waits until the cluster is whole
again and returns what the change log says: who left, when, how often, and where the replacement
went. A broken promise is a ``ServiceError``.
"""

import asyncio
import contextlib
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from clusterstate.local.hollow.connection import Connection
from clusterstate.local.hollow.fleet import Fleet
from tests.perf.scratch import Scratch, running, until
from tests.perf.service import Client, ServiceError

Say = Callable[[str], None]
Result = dict[str, Any]
NAMESPACE = "drill"
_SETS_PATH = f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets"
_TOLERATED_SECONDS = 5
_LONGEST = 900.0
_RESTART_SECONDS = 15.0
"""For so long after a kill lateness tells of the restart."""

# The first version of each pod that has a deletion time: who left, when, from where.
_DEPARTURES = """
SELECT object_id, node_name, at, revision FROM (
    SELECT object_id, node_name, at, revision, deletion_at,
           lag(deletion_at) OVER (PARTITION BY object_id ORDER BY revision) AS before
    FROM change WHERE kind = 1 AND namespace = %s AND verb <> 3 AND revision > %s) c
WHERE deletion_at IS NOT NULL AND before IS NULL ORDER BY revision
"""
_LIVE = """
SELECT count(*) FROM pod WHERE namespace = %s AND deletion_at IS NULL AND node_name <> ''
  AND phase = 'Running' AND node_name <> ALL(%s)
"""


_READY_NODES = """
SELECT count(*) FROM node n WHERE NOT EXISTS (SELECT 1 FROM taint t WHERE t.node_id = n.id)
"""


# The cluster -----------------------------------------------------------------------------------


@contextlib.contextmanager
def fleet(
    scratch: Scratch,
    count: int,
    say: Say,
    *,
    period: float = 10,
    leaving: dict[str, float] | None = None,
) -> Iterator[Fleet]:
    """Play the agents of so many nodes on a thread of their own; each beats once a period."""
    nodes = Fleet(
        lambda: Connection(scratch.url, scratch.token, None),
        count=count,
        prefix="hollow-",
        allocatable={"cpu": "32", "memory": "128Gi", "pods": "110"},
        zones=3,
        period=period,
        connections=8,
        stop_seconds=0.2,
        seed=1,
        say=say,
        leaving=leaving,
    )
    loop = asyncio.new_event_loop()
    main = loop.create_task(nodes.run([], seconds=None, every=10))
    failed: list[BaseException] = []

    def play() -> None:
        try:
            loop.run_until_complete(main)
        except asyncio.CancelledError:
            pass
        except Exception as error:  # noqa: BLE001  # told to the drill, which ends
            failed.append(error)

    thread = threading.Thread(target=play, name="fleet")
    thread.start()
    try:

        def up() -> bool:
            if failed:
                raise ServiceError(f"the hollow nodes ended: {failed[0]!r}")
            return bool(scratch.query(_READY_NODES)[0][0] >= count)

        until(up, seconds=300, what=f"{count} ready nodes")
        yield nodes
    finally:
        loop.call_soon_threadsafe(main.cancel)
        thread.join(30)


def _template(labels: Mapping[str, str], spec: Mapping[str, Any]) -> Result:
    requests = {"cpu": "100m", "memory": "64Mi"}
    main = {"name": "main", "image": "nginx:1", "resources": {"requests": requests}}
    return {"metadata": {"labels": dict(labels)}, "spec": {"containers": [main], **spec}}


def _replica_set(name: str, replicas: int, spec: Mapping[str, Any]) -> Result:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": _template(labels, spec),
        },
    }


def _workload(
    client: Client, scratch: Scratch, sets: Sequence[Result], lost: Sequence[str] = ()
) -> int:
    """Create ReplicaSets and wait until all pods run; return how many pods there are."""
    for one in sets:
        client.call("POST", _SETS_PATH, one)
    count: int = sum(one["spec"]["replicas"] for one in sets)
    _whole(scratch, count, lost)
    return count


def _whole(scratch: Scratch, count: int, lost: Sequence[str]) -> None:
    until(
        lambda: scratch.query(_LIVE, (NAMESPACE, list(lost)))[0][0] >= count,
        seconds=_LONGEST,
        what=f"{count} running pods",
        every=1,
    )


def _calm(scratch: Scratch, nodes: int) -> None:
    """Wait until no node is tainted and nobody leaves: a busy machine loses agents of its own."""
    until(
        lambda: scratch.query(_READY_NODES)[0][0] >= nodes
        and not scratch.query("SELECT 1 FROM eviction_timer LIMIT 1"),
        seconds=300, what="calm",
    )  # fmt: skip


def _log_end(scratch: Scratch) -> int:
    (found,) = scratch.query("SELECT max(revision) FROM change")[0]
    return int(found)


def _percentiles(seconds: Sequence[float]) -> Result:
    ordered = sorted(seconds)
    if not ordered:
        return {}
    return {
        "p50_ms": round(ordered[len(ordered) // 2] * 1000, 1),
        "p99_ms": round(ordered[int(len(ordered) * 0.99)] * 1000, 1),
        "max_ms": round(ordered[-1] * 1000, 1),
    }


def _require(holds: bool, promise: str) -> None:  # reads as an assertion
    if not holds:
        raise ServiceError(f"broken: {promise}")


# Agents are lost -------------------------------------------------------------------------------


def outage(*, nodes: int, pods: int, lost: int, rate: float, grace: float, say: Say) -> Result:
    """Let the agents of many nodes fall silent at once, and kill the controllers meanwhile.

    ``rate`` is how many nodes of a zone may be tainted NoExecute in a second.
    """
    environment = {
        "STOWAGE_NODE_EVICTION_RATE": str(rate),
        "STOWAGE_NODE_MONITOR_GRACE": str(grace),
        "STOWAGE_NODE_MONITOR_PERIOD": "1",
        "STOWAGE_FORCED_DELETION_MARGIN": "3",  # for the end of what lost agents do not end
        "STOWAGE_LOG_LEVEL": "WARNING",
    }
    keys = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    spec = {
        "terminationGracePeriodSeconds": 5,
        "tolerations": [
            {
                "key": key, "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": _TOLERATED_SECONDS,
            }
            for key in keys
        ],
    }  # fmt: skip
    leaving: dict[str, float] = {}
    with (
        running(environment, say) as scratch,
        fleet(scratch, nodes, say, period=min(10, grace / 4), leaving=leaving) as agents,
    ):
        client = scratch.client()
        client.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        began = time.monotonic()
        parts = min(10, pods)
        sets = [_replica_set(f"s{n}", pods // parts, spec) for n in range(parts)]
        count = _workload(client, scratch, sets)
        say(f"{count} pods run after {time.monotonic() - began:.0f} s")
        _calm(scratch, nodes)
        start = _log_end(scratch)
        cpu = scratch.cpu_seconds()
        chosen = agents.lose(lost)
        silent_at = time.time()
        there = scratch.query("SELECT id FROM pod WHERE node_name = ANY(%s)", (chosen,))
        tainted = (
            "SELECT n.name, n.labels ->> 'topology.kubernetes.io/zone', t.added_at FROM taint t"
            " JOIN node n ON n.id = t.node_id WHERE t.effect = 'NoExecute' ORDER BY t.added_at"
        )

        def wait_for_taints(share: float) -> None:
            until(
                lambda: len(scratch.query(tainted)) >= share * lost,
                seconds=_LONGEST,
                what=f"{share:.0%} of the taints",
            )

        kills: dict[str, float] = {}
        for share, part in ((0.3, "timers"), (0.6, "worker"), (0.8, "timers")):
            wait_for_taints(share)
            scratch.signal(part, signal.SIGKILL)
            kills[f"{part} at {share:.0%} of the taints"] = time.time()
            say(f"killed {part}")
        wait_for_taints(1)
        _whole(scratch, count, chosen)
        whole_at = time.time()
        until(
            lambda: (
                not scratch.query(
                    "SELECT 1 FROM pod WHERE namespace = %s AND node_name = ANY(%s) LIMIT 1",
                    (NAMESPACE, chosen),
                )
            ),
            seconds=_LONGEST,
            what="the ends of deletions on lost nodes",
        )
        cpu = scratch.cpu_seconds() - cpu
        return _audit_outage(
            scratch, leaving, start=start, count=count, there={row[0] for row in there},
            chosen=chosen,
            taints=scratch.query(tainted), rate=rate, kills=list(kills.values()),
            worker_killed_at=next(at for what, at in kills.items() if what.startswith("worker")),
        ) | {
            "nodes": nodes,
            "killed": list(kills),
            "first_taint_after_seconds": round(
                scratch.query(tainted)[0][2].timestamp() - silent_at, 1
            ),
            "whole_after_seconds": round(whole_at - silent_at, 1),
            "service_cpu_seconds": round(cpu, 1),
        }  # fmt: skip


def _audit_outage(
    scratch: Scratch,
    leaving: Mapping[str, float],
    *,
    start: int,
    count: int,
    there: set[int],
    chosen: Sequence[str],
    taints: Sequence[tuple[Any, ...]],
    rate: float,
    kills: Sequence[float],
    worker_killed_at: float,
) -> Result:
    added_at = {name: at.timestamp() for name, _, at in taints}
    _require(set(added_at) == set(chosen), "exactly the lost nodes are tainted")
    by_zone: dict[str, list[float]] = {}
    for _, zone, at in taints:
        by_zone.setdefault(zone, []).append(at.timestamp())
    zones = {}
    for zone, moments in sorted(by_zone.items()):
        span = moments[-1] - moments[0] + 1  # whole seconds on the wire
        # While the worker is away nobody taints; until then the limit is what counts.
        before = [at for at in moments if at < worker_killed_at]
        calm_span = max(1.0, worker_killed_at - before[0]) if before else 1.0
        zones[zone] = {
            "nodes": len(moments),
            "per_second": round((len(moments) - 1) / span, 2),
            "per_second_until_the_kill": round(len(before) / calm_span, 2),
        }
        _require(len(moments) <= rate * (span + 1) + 1, f"zone {zone} is tainted no faster")
    left = scratch.query(_DEPARTURES, (NAMESPACE, start))
    often = Counter(row[0] for row in left)
    late = [row[2].timestamp() - added_at[row[1]] - _TOLERATED_SECONDS for row in left]
    calm = [
        seconds
        for row, seconds in zip(left, late, strict=True)
        if all(not kill - 1 < row[2].timestamp() < kill + _RESTART_SECONDS for kill in kills)
    ]
    _require(max(often.values()) == 1, "nobody is evicted twice")
    # Some replacements land on nodes that are lost and not missed yet; they leave again.
    came = scratch.query(
        "SELECT object_id FROM change WHERE kind = 1 AND revision > %s AND node_name = ANY(%s)"
        " AND previous_node_name = ''",
        (start, list(chosen)),
    )
    expected = there | {row[0] for row in came}
    _require(set(often) == expected, f"exactly {len(expected)} pods leave, and {len(often)} did")
    _require(min(late) >= 0, "nobody leaves early")
    (live,) = scratch.query(_LIVE, (NAMESPACE, list(chosen)))[0]
    _require(live == count, f"{count} pods run, and {live} did")
    (made,) = scratch.query(
        "SELECT count(*) FROM change WHERE kind = 1 AND verb = 1 AND namespace = %s"
        " AND revision > %s",
        (NAMESPACE, start),
    )[0]
    uids = {
        str(uid): at.timestamp() + _TOLERATED_SECONDS
        for uid, at in scratch.query(_DUE_BY_UID, (NAMESPACE, start))
    }
    seen = [leaving[uid] - due for uid, due in uids.items() if uid in leaving]
    return {
        "drill": "outage",
        "pods": count,
        "lost_nodes": len(chosen),
        "taints": zones,
        "on_lost_nodes": len(there),
        "came_to_lost_nodes_later": len(came),
        "evicted": len(left),
        "evicted_twice": 0,
        "lost_pods": 0,
        "replacements": made,
        "lateness": _percentiles(late),
        "lateness_undisturbed": _percentiles(calm),
        "seen_by_a_watch": {"pods": len(seen), **_percentiles(seen)},
    }


# Pods are gone by now: their uid stands in the document of the log.
_DUE_BY_UID = """
SELECT replace(d.text, chr(1), '')::json #>> '{metadata,uid}', t.added_at
FROM change c JOIN document d ON d.id = c.document_id
JOIN node n ON n.name = c.node_name JOIN taint t ON t.node_id = n.id AND t.effect = 'NoExecute'
WHERE c.kind = 1 AND c.namespace = %s AND c.verb = 3 AND c.revision > %s
"""


# Labels change ---------------------------------------------------------------------------------


def relabel(
    *, nodes: int, relabelled: int, pods: int, rate: float, say: Say, percent: int = 5
) -> Result:
    """Relabel nodes under pods that require the label during execution, within their budget.

    ``percent`` of the pods may be away at a time.
    """
    environment = {
        "STOWAGE_REQUIRED_DURING_EXECUTION_RATE": str(rate),
        "STOWAGE_LOG_LEVEL": "WARNING",
    }
    terms = [{"matchExpressions": [{"key": "tier", "operator": "In", "values": ["gold"]}]}]
    field = "requiredDuringSchedulingRequiredDuringExecution"
    bound_to = {"affinity": {"nodeAffinity": {field: {"nodeSelectorTerms": terms}}}}
    with running(environment, say) as scratch, fleet(scratch, nodes, say) as agents:
        client = scratch.client()
        client.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        gold = agents.names[: 2 * relabelled]
        for name in gold:
            _patch(client, f"/api/v1/nodes/{name}", {"metadata": {"labels": {"tier": "gold"}}})
        sets = [
            _replica_set("bound", pods, bound_to),
            _replica_set("plain", pods, {"nodeSelector": {"tier": "gold"}}),
        ]
        count = _workload(client, scratch, sets)
        slack = pods * percent // 100
        budget = {
            "metadata": {"name": "bound"},
            "spec": {"selector": {"matchLabels": {"app": "bound"}}, "maxUnavailable": slack},
        }
        client.call("POST", f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets", budget)
        until(
            lambda: client.call(
                "GET", f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets/bound"
            ).get("status", {}).get("disruptionsAllowed") == slack,
            seconds=60, what="the budget's status",
        )  # fmt: skip
        chosen = gold[::2]
        wanted = {
            row[0]
            for row in scratch.query(
                "SELECT id FROM pod WHERE namespace = %s AND name LIKE 'bound-%%'"
                " AND node_name = ANY(%s)",
                (NAMESPACE, chosen),
            )
        }
        say(f"{count} pods run; {len(wanted)} would have to leave {len(chosen)} nodes")
        change = {"metadata": {"labels": {"tier": "silver"}}}
        foretold = 0
        for name in chosen:
            warnings = _patch(client, f"/api/v1/nodes/{name}?dryRun=All", change)
            foretold += sum(int(text.split()[0]) for text in warnings)
        start = _log_end(scratch)
        began = time.time()
        for name in chosen:
            _patch(client, f"/api/v1/nodes/{name}", change)
        say("relabelled; pods leave")
        sample = _follow_evictions(client, scratch, chosen)
        _whole(scratch, count, ())
        whole = time.time() - began
        left = scratch.query(_DEPARTURES, (NAMESPACE, start))
        gone = [row[0] for row in left]
        _require(foretold == len(wanted), f"{len(wanted)} leave, and {foretold} were foretold")
        _require(set(gone) == wanted, f"exactly {len(wanted)} pods leave, and {len(gone)} did")
        _require(len(gone) == len(set(gone)), "nobody is evicted twice")
        landed = dict(
            scratch.query(
                "SELECT n.labels ->> 'tier', count(*)"
                " FROM pod p JOIN node n ON n.name = p.node_name"
                " WHERE p.namespace = %s AND p.name LIKE 'bound-%%'"
                " GROUP BY 1",
                (NAMESPACE,),
            )
        )
        _require(landed == {"gold": pods}, f"all land where they may, and they did on {landed}")
        lowest = _lowest(scratch, start, pods)
        _require(lowest >= pods - slack, f"at least {pods - slack} stay, and {lowest} did")
        span = (left[-1][2] - left[0][2]).total_seconds()
        _require(len(gone) <= rate * (span + 2) + 1, "no faster than the limit")
        return {
            "drill": "relabel",
            "nodes": nodes,
            "relabelled": len(chosen),
            "pods": count,
            "foretold_by_dry_run": foretold,
            "evicted": len(gone),
            "evicted_twice": 0,
            "budget_at_least": pods - slack,
            "live_at_least": lowest,
            "per_second": round(len(gone) / span, 1) if span else None,
            "landed": landed,
            "landing_known": sample,
            "whole_after_seconds": round(whole, 1),
        }


def _follow_evictions(client: Client, scratch: Scratch, chosen: Sequence[str]) -> Result:
    """Wait until no timer is left; return what the list of evictions said on the way."""
    seen: dict[str, str] = {}
    blocked: Counter[str] = Counter()
    deadline = time.monotonic() + _LONGEST
    while True:
        items = client.call("GET", "/apis/stowage.dev/v1/evictions?limit=5000")["items"]
        for one in items:
            landing = one["status"].get("landing")
            if landing:
                seen[one["metadata"]["uid"]] = landing.get("nodeName", "nowhere")
            if one["status"].get("blockedBy"):
                blocked[one["status"]["blockedBy"].split(" has ")[0]] += 1
        left = scratch.query(
            "SELECT 1 FROM pod WHERE namespace = %s AND name LIKE 'bound-%%'"
            " AND node_name = ANY(%s) LIMIT 1",
            (NAMESPACE, list(chosen)),
        )
        if not items and not left:
            break
        if time.monotonic() > deadline:
            raise ServiceError("pods still leave")
        time.sleep(0.5)
    elsewhere = sum(node not in chosen and node != "nowhere" for node in seen.values())
    return {"sampled": len(seen), "elsewhere": elsewhere, "blocked_by": sorted(blocked)}


def _lowest(scratch: Scratch, start: int, pods: int) -> int:
    """Return the fewest pods of the budget that ran without a deletion time, by the log."""
    rows = scratch.query(
        "SELECT object_id, verb, phase, deletion_at IS NOT NULL FROM change WHERE kind = 1"
        " AND namespace = %s AND name LIKE 'bound-%%' AND revision > %s ORDER BY revision",
        (NAMESPACE, start),
    )
    away: set[int] = set()
    new: set[int] = set()
    lowest = live = pods
    for pod_id, verb, phase, terminating in rows:
        if verb == 1:
            new.add(pod_id)
        good = phase == "Running" and not terminating and verb != 3
        if pod_id in new:
            if good and pod_id not in away:
                away.add(pod_id)
                live += 1
        elif not good and pod_id not in away:
            away.add(pod_id)
            live -= 1
        lowest = min(lowest, live)
    return lowest


def _patch(client: Client, path: str, body: Any) -> list[str]:
    """Merge-patch; return the texts of the Warning headers."""
    answer = client.call("PATCH", path, body, content_type="application/merge-patch+json")
    del answer
    return [text.split('"')[1] for text in client.warnings]


# Parts fail ------------------------------------------------------------------------------------


def faults(*, nodes: int, pods: int, say: Say, seconds: int = 25) -> Result:
    """Flush Redis, kill workers and stop beat while timers run; nobody leaves early or twice.

    ``seconds``: how long the pods tolerate the taint; two seconds pass after each of five faults.
    """
    spec = {
        "terminationGracePeriodSeconds": 1,
        "nodeSelector": {"drill": "yes"},
        "tolerations": [
            {
                "key": "drill", "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": seconds,
            }
        ],
    }  # fmt: skip
    with running({"STOWAGE_LOG_LEVEL": "WARNING"}, say) as scratch, fleet(scratch, nodes, say) as f:
        client = scratch.client()
        client.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        chosen = f.names[: nodes // 2]
        for name in chosen:
            _patch(client, f"/api/v1/nodes/{name}", {"metadata": {"labels": {"drill": "yes"}}})
        count = _workload(client, scratch, [_replica_set("s", pods, spec)])
        say(f"{count} pods run; their nodes are tainted")
        # Their replacements tolerate the taint as long and leave in turn: these are not counted.
        first = [
            row[0] for row in scratch.query("SELECT id FROM pod WHERE namespace = %s", (NAMESPACE,))
        ]
        waiting = "SELECT count(*) FROM eviction_timer WHERE pod_id = ANY(%s)"
        start = _log_end(scratch)
        taint = [{"key": "drill", "effect": "NoExecute"}]
        began = time.time()
        for name in chosen:
            _patch(client, f"/api/v1/nodes/{name}", {"spec": {"taints": taint}})
        until(
            lambda: scratch.query(waiting, (first,))[0][0] >= count,
            seconds=60, what="all timers",
        )  # fmt: skip
        steps: list[tuple[str, Callable[[], object]]] = [
            ("Redis flushed", scratch.flush_redis),
            ("timers killed", lambda: scratch.signal("timers", signal.SIGKILL)),
            ("beat stopped", lambda: scratch.signal("beat", signal.SIGSTOP)),
            ("worker killed", lambda: scratch.signal("worker", signal.SIGKILL)),
            ("Redis flushed again", scratch.flush_redis),
        ]
        for what, act in steps:
            act()
            say(what)
            time.sleep(2)
        time.sleep(max(0.0, began + seconds - time.time()))
        scratch.signal("timers", signal.SIGKILL)  # as the first of them are due
        scratch.signal("beat", signal.SIGCONT)
        say("timers killed as they are due; beat goes on")
        until(
            lambda: scratch.query(waiting, (first,))[0][0] == 0,
            seconds=120, what="all timers to have fired",
        )  # fmt: skip
        left = [
            row for row in scratch.query(_DEPARTURES, (NAMESPACE, start)) if row[0] in set(first)
        ]
        added = dict(
            scratch.query("SELECT n.name, t.added_at FROM taint t JOIN node n ON n.id = t.node_id")
        )
        late = [(row[2] - added[row[1]]).total_seconds() - seconds for row in left if row[1]]
        often = Counter(row[0] for row in left)
        _require(len(left) == count, f"{count} pods leave, and {len(left)} did")
        _require(max(often.values()) == 1, "nobody is evicted twice")
        _require(min(late) >= 0, "nobody leaves early")
        return {
            "drill": "faults",
            "pods": count,
            "done": [what for what, _ in steps] + ["timers killed as they are due"],
            "evicted": len(left),
            "evicted_twice": 0,
            "early": 0,
            "lateness": _percentiles(late),
        }
