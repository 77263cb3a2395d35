"""A kill at each step between reserve and bind leaves nothing held twice, or held for nobody.

A trigger of the database halts whoever writes the step: the process is killed there, or its
session is ended and the process goes on. What a killed process had sent is carried out; what it
had not committed is not.
"""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests import faults
from tests.faults.claims import claim_violations
from tests.faults.test_claims import CLAIMS, PATHS, PODS, STORAGE, lists, named, post, prepare
from tests.live import Service, pod, started
from tests.waiting import running, until

pytestmark = faults.MARKS

_CLAIM, _VOLUME, _POD, _DEVICES = 34, 33, 1, 41
_STEPS = {
    "a claim is made of the template": (rf"worker change {_DEVICES} 1 ", 1),
    "the pod is told of its claim": (rf"worker change {_POD} 2 ", 1),
    "the pod is reserved": (r"scheduler reservation INSERT", 1),
    "a volume names its claim": (rf"worker change {_VOLUME} 2 local", 1),
    "a claim names its node": (rf"worker change {_CLAIM} 2 made", 1),
    "the wait is noted": (r"worker reservation UPDATE binding", 1),
    "a volume is begun": (rf"worker change {_CLAIM} 2 made", 2),
    "a volume is bound": (rf"worker change {_VOLUME} 2 local", 2),
    "its claim is bound": (rf"worker change {_CLAIM} 2 local", 1),
    "its claim says so": (rf"worker change {_CLAIM} 2 local", 2),
    "a volume is made": (rf"worker change {_VOLUME} 1 pvc-", 1),
    "the made volume is bound": (rf"worker change {_VOLUME} 2 pvc-", 1),
    "the claim that it was made for is bound": (rf"worker change {_CLAIM} 2 made", 3),
    "the claim that it was made for says so": (rf"worker change {_CLAIM} 2 made", 4),
    "the pod is ready to be bound": (r"worker reservation UPDATE ready", 1),
    "devices are allocated": (rf"scheduler change {_DEVICES} 2 ", 1),
    "devices are held for the pod": (rf"scheduler change {_DEVICES} 2 ", 2),
    "the pod is bound": (rf"scheduler change {_POD} 2 \S+ n1$", 1),
    "the reservation ends": (r"scheduler reservation DELETE", 1),
}
"""What the writer is called and what it writes, as ``halt_here`` says it, and which time."""
_SUITE = [
    ("the pod is reserved", "process"),
    ("the made volume is bound", "session"),
    ("the pod is bound", "process"),
]
_KILLS = [(step, what) for step in _STEPS for what in ("process", "session")]

_HALT = """
CREATE TABLE halting (at_step text, turn int);
CREATE SEQUENCE halted;
CREATE FUNCTION halt_here() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    one jsonb := to_jsonb(COALESCE(NEW, OLD));
    step text := split_part(current_setting('application_name'), '-', 2) || ' ' || TG_TABLE_NAME
        || ' ' || CASE TG_TABLE_NAME
            WHEN 'change' THEN concat_ws(' ', one->>'kind', one->>'verb', one->>'name',
                                         one->>'node_name')
            ELSE concat_ws(' ', TG_OP, one->>'step') END;
BEGIN
    IF EXISTS (SELECT FROM halting WHERE step ~ ('^' || at_step)) THEN
        IF nextval('halted') = (SELECT turn FROM halting) THEN
            PERFORM pg_advisory_xact_lock(4711);
        END IF;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER halt_here AFTER INSERT ON change
FOR EACH ROW EXECUTE FUNCTION halt_here();
CREATE TRIGGER halt_here AFTER INSERT OR UPDATE OR DELETE ON reservation
FOR EACH ROW EXECUTE FUNCTION halt_here();
"""
_HALTED = """
SELECT one.pid, one.application_name FROM pg_stat_activity one JOIN pg_locks USING (pid)
WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted
"""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with started() as service:
        prepare(service)
        local = {
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        post(service, f"{STORAGE}/storageclasses", named("StorageClass", "local", **local))
        with service.database() as connection:
            connection.execute(_HALT)
        yield service


@pytest.mark.parametrize(
    ("step", "killed"),
    [one if one in _SUITE else pytest.param(*one, marks=pytest.mark.long) for one in _KILLS],
)
def test_a_kill_at_a_step_leaves_nothing_held_twice_or_for_nobody(
    service: Service, step: str, killed: str
) -> None:
    number = _KILLS.index((step, killed))
    _make_volume(service, f"local-{number}")
    pattern, turn = _STEPS[step]
    with service.database() as holder, service.database() as connection:
        holder.execute("SELECT pg_advisory_lock(4711)")
        connection.execute("ALTER SEQUENCE halted RESTART")
        connection.execute("INSERT INTO halting VALUES (%s, %s)", (pattern, turn))
        _submit(service, number)
        session, name = until(
            lambda: connection.execute(_HALTED).fetchone(), seconds=30, what=f"{step}: halted"
        )
        connection.execute("DELETE FROM halting")
        if killed == "process":
            pid = service.pid(name.split("-")[1])
            os.kill(pid, signal.SIGKILL)
            until(lambda: not running(pid), what=f"{name} to be gone")
        else:
            connection.execute("SELECT pg_terminate_backend(%s)", (session,))
        holder.execute("SELECT pg_advisory_unlock_all()")

        def at_rest() -> bool:
            bound = service.request("GET", f"{PODS}/p{number}")[1]["spec"].get("nodeName")
            found = connection.execute("SELECT FROM reservation").fetchall()
            return bool(bound) and not found

        until(at_rest, seconds=90, what="the pod to be bound")
        assert claim_violations(lists(service)) == []
        _leave(service, number)


def _make_volume(service: Service, name: str) -> None:
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local",
        "local": {"path": "/mnt"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
    }
    post(service, PATHS["PersistentVolume"], named("PersistentVolume", name, spec=spec))
    path = f"{PATHS['PersistentVolume']}/{name}"

    def available() -> bool:
        status = service.request("GET", path)[1].get("status") or {}
        return bool(status.get("phase") == "Available")

    until(available, seconds=30, what="the volume to be available")


def _submit(service: Service, number: int) -> None:
    """Post a pod that claims a device, a volume that is there and one that has to be made."""
    made = pod(f"p{number}", cpu="1m")
    made["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    made["spec"]["volumes"] = []
    for name, of in ((f"local-{number}", "local"), (f"made-{number}", "hollow")):
        asked: dict[str, Any] = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": of,
        }
        post(service, CLAIMS, named("PersistentVolumeClaim", name, spec=asked))
        source = {"claimName": name}
        made["spec"]["volumes"].append({"name": of, "persistentVolumeClaim": source})
    post(service, PODS, made)


def _leave(service: Service, number: int) -> None:
    """Delete the pod and what it had; nothing of it stays."""
    service.request("DELETE", f"{PODS}/p{number}?gracePeriodSeconds=0")
    for name in (f"local-{number}", f"made-{number}"):
        service.request("DELETE", f"{CLAIMS}/{name}")

    def given_back() -> bool:
        found = lists(service)
        held = [one["metadata"]["name"] for one in found["PersistentVolume"]]
        return not found["ResourceClaim"] and held == [f"local-{number}"]

    until(given_back, seconds=30, what="what was held to be given back")
    assert claim_violations(lists(service)) == []
    service.request("DELETE", f"{PATHS['PersistentVolume']}/local-{number}")
