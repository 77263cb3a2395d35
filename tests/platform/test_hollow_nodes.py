"""What the agents of hollow nodes report of pods, and when."""

import asyncio
import contextlib
import copy
import io
import ipaddress
import json
import math
from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import CommandError, call_command

from clusterstate.local.hollow import addresses, commands, pods, probes, shell
from clusterstate.local.hollow.addresses import PodNetwork
from clusterstate.local.hollow.connection import Connection
from clusterstate.local.hollow.directories import Directories
from clusterstate.local.hollow.fleet import Fleet
from clusterstate.local.hollow.resizes import Room
from clusterstate.objects.rules.own_annotations import EXIT, READY, RUN, STOP
from clusterstate.queries.objects import get_manifest
from tests.api.conftest import make_token

BEGAN = datetime(2026, 3, 1, 12, tzinfo=UTC)


def pod(*, command=None, annotations=None, status=None, container=None, **spec):
    main = {"name": "main", "image": "nginx:1", **(container or {})}
    if command:
        main["command"] = command
    return {
        "metadata": {"name": "p", "uid": "u", "generation": 1, "annotations": annotations or {}},
        "spec": {"containers": [main], "restartPolicy": "Always", **spec},
        "status": status or {"phase": "Pending"},
    }


def at(seconds):
    return BEGAN + timedelta(seconds=seconds)


def report(one, seconds=0):
    return pods.report(one, "10.128.0.1", "100.64.0.1", at(seconds))


def reported(one, seconds=0):
    """Take a report into the pod, as the API does; return what is reported after that."""
    status = report(one, seconds).status
    assert status is not None
    one["status"] = {**one["status"], **status}
    again = report(one, seconds)
    assert again.status is None  # what was said once is not said again
    return again


def condition(one, name="Ready"):
    return next(c for c in one["status"]["conditions"] if c["type"] == name)


def test_a_pod_runs_with_addresses_and_says_what_it_has_seen():
    one = pod(initContainers=[{"name": "init"}])
    one["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
    assert reported(one).again is None
    status = one["status"]
    assert (status["phase"], status["podIP"], status["hostIP"]) == (
        "Running", "10.128.0.1", "100.64.0.1",
    )  # fmt: skip
    assert status["observedGeneration"] == condition(one)["observedGeneration"] == 1
    assert condition(one, "PodScheduled")["observedGeneration"] == 1
    assert status["containerStatuses"][0]["state"]["running"]["startedAt"]
    assert status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    one["metadata"]["generation"] = 2
    reported(one, 60)
    assert status["phase"] == "Running"
    assert one["status"]["observedGeneration"] == condition(one)["observedGeneration"] == 2
    assert condition(one)["lastTransitionTime"] == pods.text_of(BEGAN)


@pytest.mark.parametrize(
    ("command", "run"),
    [
        ([], (None, 0)),
        (["nginx", "-g"], (None, 0)),
        (["sleep", "5"], (5, 0)),
        (["/bin/sleep", "5s"], (5, 0)),
        (["sleep", "infinity"], (None, 0)),
        (["true"], (0, 0)),
        (["/bin/false"], (0, 1)),
        (["sh", "-c", "exit 3"], (0, 3)),
        (["/bin/sh", "-c", "sleep 5 && sleep 2; exit 4"], (7, 4)),
        (["sh", "-c", "false; sleep 9"], (9, 0)),
        (["sh", "-c", "false && sleep 9"], (0, 1)),
        (["sh", "-c", "false || sleep 9"], (9, 0)),
        (["sh", "-c", "sleep 3; false"], (3, 1)),
        (["sh", "-c", "sleep 1m # a while"], (60, 0)),
        (["sh", "-c", "echo 'a; b' > /dev/termination-log; exit 2"], (0, 2)),
        (["sh", "-c", "if true; then exit 4; else exit 5; fi"], (0, 4)),
        (["sh", "-c", "if [ a = b ]; then exit 4\nelif test 2 -gt 1; then exit 6; fi"], (0, 6)),
        (["sh", "-c", "if false; then exit 4; fi; sleep 2"], (2, 0)),
        (["sh", "-c", "if false; then serve; else if true; then exit 7; fi; fi"], (0, 7)),
        (["sh", "-c", "[ $(expr 7 % 4) -eq 3 ] && exit $((2 * 4))"], (0, 8)),
        (["sh", "-c", 'touch /a; if [[ -r "/a" ]]; then exit 9; fi'], (0, 9)),
        (["sh", "-c", "exit 256"], (0, 0)),
        (["sh", "-c", "exit $UNKNOWN"], (None, 0)),
        (["sh", "-c", "while true; do sleep 1; done"], (None, 0)),
        (["sh", "-c", "if true; then true"], (None, 0)),
        (["sh", "-c", "exit `cat /x`"], (None, 0)),
        (["sh", "-c", "exit $((1 / 0))"], (None, 0)),
        (["sh", "-c", "if " * 2000], (None, 0)),
        (["sh", "-c", "exit 0; sleep 9"], (0, 0)),
        (["sh", "-c", "sleep 1\nserve"], (None, 0)),
        (["sh", "-c", ""], (0, 0)),
        (["sh", "-c", "echo 'no end"], (None, 0)),
        (["sh", "-c", "echo a\u00a0b\x0b\u2028; exit 3"], (0, 3)),
        (["sh", "-c", "sleep 5ms"], (None, 0)),
        (["sleep", "5ms"], (None, 0)),
        (["sleep", "nan"], (None, 0)),
        (["sh", "-c", f"touch {' '.join(f'/{n}' for n in range(1500))}"], (None, 0)),
    ],
)
def test_what_comes_of_commands(command, run):
    found = commands.run_of_command(command)
    assert (found.seconds, found.exit_code) == run


@pytest.mark.parametrize(
    ("policy", "code", "phase"),
    [("Never", 0, "Succeeded"), ("Never", 1, "Failed"), ("OnFailure", 0, "Succeeded")],
)
def test_a_pod_ends_when_its_containers_do(policy, code, phase):
    one = pod(command=["sh", "-c", f"sleep 5; exit {code}"], restartPolicy=policy)
    assert reported(one).again == 5
    assert report(one, 4).status is None
    reported(one, 5)
    assert one["status"]["phase"] == phase
    assert condition(one)["status"] == "False"
    assert one["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == code
    assert report(one, 1000) == pods.Report()


@pytest.mark.parametrize("policy", ["Always", "OnFailure"])
def test_a_container_that_crashes_waits_longer_each_time(policy):
    one = pod(command=["false"], restartPolicy=policy)
    status = report(one).status
    one["status"] = {**one["status"], **status}
    second = 0
    for restarts, rest in enumerate((0, 10, 20, 40)):  # the first start after it is at once
        one["status"] = {**one["status"], **report(one, second).status}
        assert not rest or report(one, second + rest - 1).again == 1
        waiting = one["status"]["containerStatuses"][0]
        assert waiting["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        assert waiting["lastState"]["terminated"]["exitCode"] == 1
        assert (one["status"]["phase"], waiting["restartCount"]) == ("Running", restarts)
        second += rest
        one["status"] = {**one["status"], **report(one, second).status}
        assert one["status"]["containerStatuses"][0]["restartCount"] == restarts + 1


@pytest.mark.parametrize(("index", "code"), [("0", 0), ("1", 1), ("2", 0)])
def test_a_script_reads_the_environment_of_its_container(index, code):
    """As Kubernetes' tests of indexed Jobs have it."""
    script = "if [ $(expr ${INDEX} % 2) -ne 0 ]; then exit 1; else exit $(NOTHING); fi"
    one = pod(command=["/bin/sh", "-c", script], restartPolicy="Never",
              annotations={"example.com/index": index})  # fmt: skip
    place = {"fieldRef": {"fieldPath": "metadata.annotations['example.com/index']"}}
    one["spec"]["containers"][0]["env"] = [
        {"name": "INDEX", "valueFrom": place}, {"name": "NOTHING", "value": "0"},
    ]  # fmt: skip
    assert pods.run_of(one) == commands.Run(0, code)


def test_what_a_run_leaves_in_a_volume_is_there_in_the_next():
    script = "if [[ -r /data/foo ]] ; then exit 0 ; else touch /data/foo ; exit 1 ; fi"
    one = pod(command=["/bin/sh", "-c", script], restartPolicy="OnFailure")
    one["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    one["status"] |= report(one).status
    one["status"] |= report(one).status
    assert one["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    one["status"] |= report(one, 1).status
    one["status"] |= report(one, 1).status
    assert one["status"]["phase"] == "Succeeded"
    one = pod(command=["/bin/sh", "-c", script])
    one["status"] = {"containerStatuses": [{"restartCount": 5}]}
    assert pods.run_of(one).exit_code == 1, "a container's own files are new in each run"


def init(name, *command):
    return {"name": name, "image": "i", "command": list(command)}


def inits(one):
    return {known["name"]: known for known in one["status"]["initContainerStatuses"]}


def test_init_containers_run_one_after_the_other():
    one = pod(initContainers=[init("a", "sleep", "5"), init("b", "true"), init("c")])
    assert reported(one).again == 5
    assert one["status"]["phase"] == "Pending"
    assert condition(one, "Initialized")["message"] == (
        "containers with incomplete status: [a b c]"
    )
    assert "running" in inits(one)["a"]["state"]
    assert inits(one)["b"]["state"] == {"waiting": {"reason": "PodInitializing"}}
    (main,) = one["status"]["containerStatuses"]
    assert main["state"] == {"waiting": {"reason": "PodInitializing"}}
    reported(one, 5)
    assert one["status"]["phase"] == "Running"
    assert condition(one, "Initialized")["status"] == "True"
    ends = [known["state"]["terminated"]["exitCode"] for known in inits(one).values()]
    assert (ends, inits(one)["a"]["ready"]) == ([0, 0, 0], True)
    # What is reported later leaves them as they ended.
    before = one["status"]["initContainerStatuses"]
    one["metadata"]["generation"] = 2
    reported(one, 60)
    assert one["status"]["initContainerStatuses"] == before


def test_an_init_container_that_fails_is_started_again_and_holds_the_others_back():
    one = pod(initContainers=[init("a", "/bin/false"), init("b", "true")])
    one["status"] |= report(one).status
    for number, (second, rest) in enumerate([(0, 10), (10, 20), (30, 40)], start=1):
        assert reported(one, second).again == rest
        first = inits(one)["a"]
        assert first["restartCount"] == number
        assert first["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        assert first["lastState"]["terminated"]["exitCode"] == 1
        assert one["status"]["phase"] == "Pending"
        assert condition(one, "Initialized")["reason"] == "ContainersNotInitialized"


def test_an_init_container_that_fails_for_good_fails_the_pod():
    one = pod(initContainers=[init("a", "true"), init("b", "false")], restartPolicy="Never")
    reported(one)
    assert one["status"]["phase"] == "Failed"
    assert condition(one, "Initialized")["message"] == "containers with incomplete status: [b]"
    ends = [known["state"]["terminated"]["exitCode"] for known in inits(one).values()]
    assert ends == [0, 1]
    assert "waiting" in one["status"]["containerStatuses"][0]["state"]


def test_a_pod_of_another_operating_system_is_not_taken():
    one = pod(os={"name": "windows"})
    reported(one)
    assert (one["status"]["phase"], one["status"]["reason"]) == ("Failed", "PodOSNotSupported")
    one = pod(os={"name": "linux"})
    reported(one)
    assert one["status"]["phase"] == "Running"


def test_a_pod_that_is_deleted_says_how_it_ended_if_it_would_have():
    one = pod(command=["sleep", "30"], restartPolicy="Never")
    one["status"].update(report(one).status)
    early = pods.stopped_status(one, at(10))
    assert early["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
    late = pods.stopped_status(one, at(31))
    assert (late["phase"], late["containerStatuses"][0]["state"]["terminated"]["exitCode"]) == (
        "Succeeded", 0,
    )  # fmt: skip
    one["status"].update(late)
    assert pods.stopped_status(one, at(40)) is None
    assert pods.stopped_status(pod(), at(0)) is None
    forever = pod()
    forever["status"].update(report(forever).status)
    assert pods.stopped_status(forever, at(60)) is None


@pytest.mark.parametrize("image", ["webserver:404", "foo:non-existent", "invalid.example.org/a:1"])
def test_an_image_that_nobody_has_cannot_be_pulled(image):
    one = pod()
    one["spec"]["containers"][0]["image"] = image
    reported(one)
    assert one["status"]["phase"] == "Pending"
    assert one["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ImagePullBackOff"
    assert condition(one)["status"] == "False"
    assert report(one, 100) == pods.Report()
    one["spec"]["containers"][0]["image"] = "webserver:1"
    reported(one, 200)
    assert one["status"]["phase"] == "Running"


def test_annotations_say_what_an_image_does_and_may_change():
    one = pod(annotations={RUN: "3", EXIT: "2"}, restartPolicy="Never")
    assert reported(one).again == 3
    reported(one, 3)
    assert one["status"]["phase"] == "Failed"
    other = pod()
    reported(other)
    other["metadata"]["annotations"] = {READY: "false"}
    reported(other, 8)
    assert condition(other)["status"] == condition(other, "ContainersReady")["status"] == "False"
    assert condition(other)["lastTransitionTime"] == pods.text_of(at(8))
    del other["metadata"]["annotations"]
    reported(other, 9)
    assert condition(other)["status"] == "True"


def test_a_pod_that_runs_too_long_fails():
    one = pod(activeDeadlineSeconds=30, annotations={RUN: "50"})
    assert reported(one).again == 30
    assert report(one, 29).status is None
    reported(one, 30)
    assert (one["status"]["phase"], one["status"]["reason"]) == ("Failed", "DeadlineExceeded")


def test_readiness_is_what_probes_and_gates_say():
    failing = pod(container={"readinessProbe": {"exec": {"command": ["/bin/false"]}}})
    reported(failing)
    assert condition(failing)["status"] == "False"
    gated = pod(readinessGates=[{"conditionType": "a/b"}])
    reported(gated)
    assert condition(gated)["status"] == "False"
    gated["status"]["conditions"].append({"type": "a/b", "status": "True"})
    reported(gated)
    assert condition(gated)["status"] == "True"
    assert condition(gated, "a/b")["status"] == "True"


FILE_COMES_AND_GOES = "echo ok >/tmp/health; sleep 10; rm -rf /tmp/health; sleep 600"
READS = {"exec": {"command": ["cat", "/tmp/health"]}}  # of a container
WEB = {"httpGet": {"path": "/healthz", "port": 8080}}


@pytest.mark.parametrize(
    ("container", "killed", "turns"),
    [
        ({}, None, [(0, True)]),
        ({"readinessProbe": WEB}, None, [(0, True)]),
        ({"readinessProbe": {**WEB, "initialDelaySeconds": 30}}, None, [(30, True)]),
        ({"readinessProbe": {**WEB, "successThreshold": 3}}, None, [(20, True)]),
        ({"readinessProbe": READS}, None, [(0, True), (30, False)]),
        ({"livenessProbe": {**READS, "initialDelaySeconds": 15, "failureThreshold": 1}},
         15, [(0, True)]),
        ({"livenessProbe": READS}, 30, [(0, True)]),
        ({"livenessProbe": {**READS, "periodSeconds": 2}}, 14, [(0, True)]),
        ({"livenessProbe": WEB}, None, [(0, True)]),
        ({"startupProbe": {**READS, "initialDelaySeconds": 11}}, 31, []),
        ({"startupProbe": {**READS, "initialDelaySeconds": 4}, "readinessProbe": WEB},
         None, [(10, True)]),
        ({"startupProbe": WEB, "livenessProbe": {"exec": {"command": ["false"]}}},
         20, [(0, True)]),
        ({"livenessProbe": {"exec": {"command": ["sh", "-c", "true; " * 100 + "false"]}}},
         None, [(0, True)]),
        ({"livenessProbe": READS, "command": ["nginx"]}, None, [(0, True)]),
        ({"readinessProbe": READS, "command": ["nginx"]}, None, [(0, True)]),
        ({"image": "example.org/agnhost:2", "args": ["liveness"], "command": [],
          "livenessProbe": {**WEB, "failureThreshold": 1}}, 10, [(0, True)]),
    ],
)  # fmt: skip
def test_what_probes_find(container, killed, turns):
    one = pod(container={"command": ["/bin/sh", "-c", FILE_COMES_AND_GOES], **container})
    found = probes.health(one, one["spec"]["containers"][0], 0)
    assert (found.killed, list(found.turns)) == (killed, turns)


def test_a_container_whose_liveness_probe_fails_is_started_again():
    probe = {**READS, "initialDelaySeconds": 15, "failureThreshold": 1}
    one = pod(command=["/bin/sh", "-c", FILE_COMES_AND_GOES], container={"livenessProbe": probe})
    assert reported(one).again == 15
    one["status"] |= report(one, 15).status
    crashed = one["status"]["containerStatuses"][0]
    assert crashed["lastState"]["terminated"]["exitCode"] == 137
    one["status"] |= report(one, 16).status
    assert one["status"]["containerStatuses"][0]["restartCount"] == 1
    assert report(one, 17).again == 14


def test_a_pod_is_ready_when_its_probe_has_succeeded():
    one = pod(container={"readinessProbe": {**WEB, "initialDelaySeconds": 30}})
    assert reported(one).again == 30
    assert (one["status"]["phase"], condition(one)["status"]) == ("Running", "False")
    reported(one, 30)
    assert condition(one)["status"] == "True"
    assert condition(one)["lastTransitionTime"] == pods.text_of(at(30))


@pytest.mark.parametrize(
    ("script", "policy", "phase", "message"),
    [
        ("/bin/echo -n DONE > /dev/termination-log", "File", "Succeeded", "DONE"),
        ("/bin/echo -n DONE; /bin/false", "FallbackToLogsOnError", "Failed", "DONE"),
        ("/bin/echo -n DONE; /bin/true", "FallbackToLogsOnError", "Succeeded", None),
        ("/bin/echo -n OK > /dev/termination-log; /bin/echo DONE; /bin/true",
         "FallbackToLogsOnError", "Succeeded", "OK"),
        ("echo a >/dev/termination-log; echo b >> /dev/termination-log; false",
         "File", "Failed", "a\nb\n"),
        ("echo lost; exit 3", "File", "Failed", None),
    ],
)  # fmt: skip
def test_a_container_leaves_its_last_words(script, policy, phase, message):
    """As Kubernetes' conformance tests of termination messages have it."""
    one = pod(command=["/bin/sh", "-c", script], restartPolicy="Never",
              container={"terminationMessagePolicy": policy})  # fmt: skip
    one["status"] |= report(one).status
    reported(one, 1)
    assert one["status"]["phase"] == phase
    ended = one["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended.get("message") == message


def test_what_a_script_writes_reads_and_removes():
    found = shell.play("echo a > /x; cat /x /x; rm /x; cat /x", {}, {})
    assert (found.output, found.exit_code, dict(found.files)) == ("a\na\n", 1, {})
    assert shell.play("rm /x", {}, {}).exit_code == 1
    assert shell.play("rm -f /x", {}, {}).exit_code == 0
    with pytest.raises(shell.NotPlayed):
        shell.play("cat /x", {})


def test_a_time_without_a_zone_is_none():
    one = pod(activeDeadlineSeconds=30)
    one["status"] |= {"phase": "Running", "startTime": "2026-03-01T12:00:00"}
    assert report(one, 10).again == 30


def test_a_pod_that_is_not_understood_is_left_alone_and_the_others_are_not(monkeypatch):
    """One exception would end the agents of all nodes."""
    bad, good = pod(), pod()
    bad["metadata"] |= {"name": "bad", "uid": "bad"}
    real = pods.report

    def failing(one, *more):
        if one is bad:
            raise TypeError("a status that nobody foresaw")
        return real(one, *more)

    monkeypatch.setattr(pods, "report", failing)

    async def see_both() -> None:
        fleet = Fleet(
            lambda: None, count=1, prefix="n", allocatable={}, zones=1, period=10.0, connections=1,
            stop_seconds=0.0, seed=1, say=print,
        )  # fmt: skip
        for one in (bad, good):
            one["spec"]["nodeName"], one["metadata"]["namespace"] = fleet.names[0], "default"
            fleet._see(one)
        assert fleet._work.qsize() == 1, "of the good one something is to be reported"

    asyncio.run(see_both())


def test_a_pod_that_failed_meanwhile_is_not_reported_to_run():
    """Whoever binds a pod past the scheduler has it refused a moment later (OutOfcpu)."""
    stored = pod(nodeName="n-00000")
    stored["metadata"] |= {"namespace": "default", "resourceVersion": "2"}
    stored["status"] = {"phase": "Failed", "reason": "OutOfcpu"}
    answered = []

    async def serve(reader, writer):
        """Take a change as the API does: of the version that it names, or else of any."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length:")[2].partition("\r\n")[0])
        change = json.loads(await reader.readexactly(length))
        if change["metadata"].get("resourceVersion", "2") == "2":
            stored["status"].update(change["status"])
        answered.append(409 if stored["status"]["phase"] == "Failed" else 200)
        writer.write(f"HTTP/1.1 {answered[-1]} X\r\nContent-Length: 2\r\n\r\n{{}}".encode())
        await writer.drain()
        writer.close()

    async def attend() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        fleet = Fleet(
            lambda: Connection(f"http://127.0.0.1:{port}", "t", None), count=1, prefix="n",
            allocatable={}, zones=1, period=10.0, connections=1, stop_seconds=0.0, seed=1,
            say=print,
        )  # fmt: skip
        seen = copy.deepcopy(stored)
        seen["metadata"]["resourceVersion"], seen["status"] = "1", {"phase": "Pending"}
        seen["spec"]["nodeName"] = fleet.names[0]
        await fleet._act(seen)
        server.close()

    asyncio.run(attend())
    assert answered == [409]
    assert stored["status"]["phase"] == "Failed"


def test_a_lease_belongs_to_its_node_and_is_made_again_while_that_is_there():
    """The collector deletes the lease of a node that is gone; a node made anew has one again."""
    nodes, leases = {}, {}

    async def answer(method, path, body):
        kind = nodes if "/nodes" in path else leases
        name = path.rpartition("/")[2] if method != "POST" else body["metadata"]["name"]
        if method == "POST":
            body["metadata"]["uid"] = f"uid-{len(nodes)}"
            return (409, {}) if name in kind else (201, kind.setdefault(name, body))
        if name in kind:
            kind[name] |= {"status": body["status"]} if "status" in body else {}
            return 200, kind[name]
        return 404, {}

    async def serve(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                await serve_one(reader, writer)
        writer.close()

    async def serve_one(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, path, _ = head.split(" ", 2)
        length = int(head.lower().partition("content-length:")[2].partition("\r\n")[0] or 0)
        sent = await reader.readexactly(length)
        status, found = await answer(method, path.partition("/status")[0], json.loads(sent or "{}"))
        text = json.dumps(found).encode()
        said = f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
        writer.write(f"HTTP/1.1 {status} X\r\n{said}".encode() + text)
        await writer.drain()

    def owners():
        return [one["uid"] for one in leases["n00000"]["metadata"]["ownerReferences"]]

    async def live() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        fleet = Fleet(
            lambda: Connection(f"http://127.0.0.1:{port}", "t", None), count=1, prefix="n",
            allocatable={}, zones=1, period=10.0, connections=1, stop_seconds=0.0, seed=1,
            say=print,
        )  # fmt: skip
        await fleet.register()
        assert owners() == [nodes["n00000"]["metadata"]["uid"]]
        leases.clear()
        await fleet._beat("n00000")
        assert owners() == [nodes["n00000"]["metadata"]["uid"]]
        del nodes["n00000"], leases["n00000"]
        fleet._let_node_go("n00000")
        await fleet._beat("n00000")
        assert not leases
        nodes["n00000"] = {"metadata": {"name": "n00000", "uid": "other"}}
        await fleet._look_at(nodes["n00000"])
        assert owners() == ["other"]
        told = {one["type"]: one["status"] for one in nodes["n00000"]["status"]["conditions"]}
        assert told["Ready"] == "True"
        server.close()

    asyncio.run(live())


def test_what_somebody_else_reported_is_put_right():
    one = pod()
    reported(one)
    condition(one)["status"] = "False"  # as the node lifecycle does while a node is away
    reported(one, 50)
    assert condition(one)["status"] == "True"
    assert one["status"]["containerStatuses"][0]["state"]["running"]["startedAt"] == (
        pods.text_of(BEGAN)
    )
    foreign = pod(status={"phase": "Running"})
    reported(foreign)
    assert foreign["status"]["podIP"]


def test_how_long_a_pod_takes_to_stop():
    assert pods.stop_seconds(pod(), 0.5) == 0.5
    assert pods.stop_seconds(pod(annotations={STOP: "45"}), 0.5) == 45
    hook = {"lifecycle": {"preStop": {"sleep": {"seconds": 7}}}}
    assert pods.stop_seconds(pod(container=hook), 0.5) == 7


TERM_FUNCTION = """
_term() {
  rm -f /tmp/ready
  sleep 10
  exit 0
}
trap _term SIGTERM

touch /tmp/ready

while true; do
  echo \"hello\"
  sleep 10
done
"""


@pytest.mark.parametrize(
    ("script", "at", "stopped"),
    [
        ("sleep 60", 5, None),
        ("trap 'exit 3' TERM; sleep 60", 5, (55, 3)),  # the shell waits for its sleep
        ("trap 'exit 3' TERM; sleep 60 & wait", 5, (0, 3)),
        ("trap 'exit 0' TERM; sleep infinity & wait", 5, (0, 0)),
        ("trap 'sleep 2; exit 4' SIGTERM; while true; do sleep 1; done", 5.5, (2.5, 4)),
        ("trap 'exit 4' 15; while true; do sleep 10; done", 95, (5, 4)),
        ("trap 'exit 4' TERM; while :; do :; done", 7, (0, 4)),
        ("trap '' TERM; sleep 20", 5, (15, 0)),
        ("trap '' TERM; sleep inf", 5, (math.inf, 137)),
        ("trap 'touch /x' TERM; sleep 20; exit 6", 5, (15, 6)),
        ("trap 'exit 3' TERM; trap - TERM; sleep 60", 5, None),
        ("sleep 3; trap 'exit 3' TERM; sleep 60", 1, None),
        ("trap 'exit 3' INT; sleep 60", 5, None),
        ("trap 'serve' TERM; sleep 60", 5, None),
        ("touch /a; trap 'if [ -e /a ]; then exit 7; fi; exit 8' TERM; sleep 9", 1, (8, 7)),
        (TERM_FUNCTION, 5, (15, 0)),
    ],
)
def test_what_a_script_does_on_sigterm(script, at, stopped):
    assert shell.stopped(shell.play(script, {}, {}), at) == stopped


@pytest.mark.parametrize(
    ("script", "seconds", "code"),
    [
        ("while true; do sleep 1; done", None, 0),
        ("while true; do sleep 2; break; done; exit 5", 2, 5),
        ("until [ -e /x ]; do sleep 3; touch /x; done; exit 2", 3, 2),
        ("while false; do serve; done; sleep 1", 1, 0),
        ("while true; do if [ -e /x ]; then exit 3; fi; touch /x; sleep 1; done", 1, 3),
        ("f() { sleep 2; exit 9; }; f; sleep 100", 2, 9),
        ("f() { sleep 2; }\nf; f; exit 1", 4, 1),
        ("sleep 5 & sleep 1; wait; exit 2", 5, 2),
        ("trap 'sleep 1; exit 4' EXIT; sleep 2", 3, 4),
        ("trap 'touch /x' EXIT; exit 6", 0, 6),
        ("while true; do", None, 0),
        ("f() { sleep 1", None, 0),
        ("f() { f; }; f", None, 0),
        ("break", None, 0),
        ("serve & wait", None, 0),
    ],
)
def test_loops_functions_and_what_runs_in_the_background(script, seconds, code):
    found = commands.run_of_command(["sh", "-c", script])
    assert (found.seconds, found.exit_code) == (seconds, code)


def deleted(one, at_second, grace):
    ends = pods.text_of(at(at_second + grace))
    one["metadata"] |= {"deletionTimestamp": ends, "deletionGracePeriodSeconds": grace}
    return one


@pytest.mark.parametrize(
    ("grace", "stops", "phase", "code"), [(30, 3, "Failed", 42), (2, 3, "Failed", 137)]
)
def test_a_pod_that_traps_sigterm_ends_as_its_script_says(grace, stops, phase, code):
    script = "trap 'sleep 3; exit 42' TERM; sleep infinity & wait"
    one = pod(command=["sh", "-c", script], restartPolicy="Never")
    reported(one)
    assert pods.stop_seconds(one, 0.5) == 0.5, "it is not deleted"
    deleted(one, 5, grace)
    assert pods.stop_seconds(one, 0.5) == stops
    status = pods.stopped_status(one, at(8))
    ended = status["containerStatuses"][0]["state"]["terminated"]["exitCode"]
    assert (status["phase"], ended) == (phase, code)


@pytest.mark.parametrize(
    ("container", "seconds"),
    [
        ({"image": "busybox"}, 0),
        ({"image": "registry.example.com/e2e/busybox:1.29-4"}, 0),
        ({"image": "docker.io/library/python@sha256:" + "0" * 64}, 0),
        ({"image": "busybox", "stdin": True}, None),
        ({"image": "busybox", "tty": True}, None),
        ({"image": "busybox", "args": ["sleep", "4"]}, 4),
        ({"image": "registry.k8s.io/pause:3.10"}, None),
        ({"image": "registry.k8s.io/e2e-test-images/agnhost:2.53"}, None),
        ({"image": "busybox-server:1"}, None),
        ({}, None),
    ],
)
def test_without_a_command_the_image_decides(container, seconds):
    assert pods.run_of(pod(container=container)).seconds == seconds


def test_pods_of_jobs_can_be_made_to_end():
    owner = {"kind": "Job", "name": "j", "uid": "j", "controller": True}
    one = pod(restartPolicy="Never")
    one[commands.NODE] = commands.Surroundings(job_seconds=7.0)
    assert pods.run_of(one).seconds is None, "it is of no Job"
    one["metadata"]["ownerReferences"] = [owner]
    assert pods.run_of(one) == commands.Run(7.0, 0)
    one["spec"]["containers"][0]["command"] = ["sleep", "3"]
    assert pods.run_of(one).seconds == 3, "its own command says when"
    one["spec"]["containers"][0]["command"] = ["nginx"]
    one[commands.NODE] = commands.Surroundings()
    assert pods.run_of(one).seconds is None


def on_host(name, script, path="/tmp/shared"):
    one = pod(command=["sh", "-c", script], restartPolicy="Never")
    one["metadata"] |= {"name": name, "uid": name}
    one["spec"]["volumes"] = [{"name": "data", "hostPath": {"path": path}}]
    one["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return one


def begun(directories, one, second):
    """Let a pod begin as a fleet does; return how it runs."""
    runs = directories.begin(one, at(second))
    one[commands.NODE] = commands.Surroundings(runs)
    status = report(one, second).status
    directories.note(one, status, at(second))
    one["status"] |= status
    again = directories.begin(one, at(second + 1000))
    assert again == runs, "what it found stays, whatever comes later"
    one[commands.NODE] = commands.Surroundings(again)
    return pods.run_of(one)


def test_pods_of_a_node_share_its_directories():
    """As Kubernetes' tests of Jobs have it: the second pod finds what the first one left."""
    once = "if [ -r /data/foo ]; then exit 0; else touch /data/foo; exit 1; fi"
    one, other = Directories(), Directories()
    assert begun(one, on_host("a", once), 0).exit_code == 1
    assert begun(one, on_host("b", once), 5).exit_code == 0
    assert begun(one, on_host("c", once, path="/tmp/else"), 5).exit_code == 1
    assert begun(other, on_host("d", once), 5).exit_code == 1
    late = "sleep 10; touch /data/late; sleep 10; rm /data/late"
    begun(one, on_host("e", late), 10)
    finds = "if [ -e /data/late ]; then exit 3; fi"
    for second, code in ((15, 0), (25, 3), (35, 0)):
        assert begun(one, on_host(f"at-{second}", finds), second).exit_code == code


def test_a_run_after_a_crash_finds_what_others_left_meanwhile():
    shared = Directories()
    waits = on_host("waits", "if [ -e /data/x ]; then exit 0; fi; exit 1")
    waits["spec"]["restartPolicy"] = "OnFailure"
    assert begun(shared, waits, 0).exit_code == 1
    waits["status"] |= report(waits, 1).status  # it crashed
    begun(shared, on_host("maker", "touch /data/x"), 2)
    assert begun(shared, waits, 60).exit_code == 0


def test_no_two_pods_have_an_address():
    first, second = PodNetwork(0, 110), PodNetwork(1, 110)
    taken = [one.take(f"u{number}") for one in (first, second) for number in range(110)]
    assert len(set(taken)) == 220
    for network, some in ((first, taken[:110]), (second, taken[110:])):
        assert all(ipaddress.ip_address(one) in ipaddress.ip_network(network.cidr) for one in some)
    assert first.take("u5") == taken[5]
    first.give_back("u5")
    assert first.take("new") == taken[5]
    other = PodNetwork(0, 4)
    other.note("known", "10.128.0.1")
    assert other.take("new") == "10.128.0.2"
    full = [other.take(f"u{number}") for number in range(20)]
    assert full[-1] == ""  # none is left, and none is given twice
    assert addresses.of_node(0) != addresses.of_node(1)


# Resizes --------------------------------------------------------------------------------------


def sized(cpu="1", memory="1Gi", **container):
    asked = {"resources": {"requests": {"cpu": cpu, "memory": memory}}, **container}
    return pod(container=asked)


def resized(one, cpu="1", memory="1Gi"):
    """Ask for other amounts, as a client does."""
    one["metadata"]["generation"] += 1
    one["spec"] = copy.deepcopy(one["spec"])
    one["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu, "memory": memory}}


def looked_at(one, *, others=0, cpu=4000, seconds=0):
    """Let the agent look, on a node with so much CPU, and take its report into the pod."""
    room = Room({"cpu": cpu, "memory": 8 << 30}, {"cpu": others, "memory": 0})
    found = pods.report(one, "10.128.0.1", "100.64.0.1", at(seconds), lambda: room)
    if found.status is not None:
        one["status"] = {**one["status"], **found.status}
    return found


def had(one):
    (container,) = one["status"]["containerStatuses"]
    return container["allocatedResources"], container["resources"]["requests"]


def test_a_container_that_runs_tells_what_it_has():
    one = sized()
    reported(one)
    amounts = {"cpu": "1", "memory": "1Gi"}
    assert had(one) == (amounts, amounts)
    assert looked_at(one).status is None


def test_a_pod_that_was_reported_to_run_without_resources_tells_them():
    one = sized()
    reported(one)
    for told in one["status"]["containerStatuses"]:
        del told["resources"], told["allocatedResources"]
    reported(one)
    assert had(one)[0] == {"cpu": "1", "memory": "1Gi"}


def test_a_resize_that_fits_is_done_at_once():
    one = sized()
    reported(one)
    started = one["status"]["containerStatuses"][0]["state"]
    resized(one, "3")
    assert looked_at(one, others=1000, seconds=5).status is not None
    amounts = {"cpu": "3", "memory": "1Gi"}
    assert had(one) == (amounts, amounts)
    assert one["status"]["observedGeneration"] == 2
    (container,) = one["status"]["containerStatuses"]
    assert (container["restartCount"], container["state"]) == (0, started)
    assert looked_at(one, others=1000).status is None


def test_a_resize_without_room_waits_and_is_looked_at_again():
    one = sized()
    reported(one)
    resized(one, "3")
    assert looked_at(one, others=2000).again == 1.0
    told = condition(one, "PodResizePending")
    assert (told["status"], told["reason"], told["observedGeneration"]) == ("True", "Deferred", 2)
    assert told["message"].endswith("cpu, requested: 3000, used: 2000, capacity: 4000")
    assert had(one)[0] == {"cpu": "1", "memory": "1Gi"}
    waits = looked_at(one, others=2000, seconds=1)
    assert (waits.status, waits.again) == (None, 1.0)
    looked_at(one, others=1000, seconds=2)
    assert had(one)[0] == {"cpu": "3", "memory": "1Gi"}
    assert "PodResizePending" not in [c["type"] for c in one["status"]["conditions"]]


def test_what_the_whole_node_could_not_hold_is_infeasible_until_it_is_taken_back():
    one = sized()
    reported(one)
    resized(one, "5")
    looked_at(one)
    assert condition(one, "PodResizePending")["reason"] == "Infeasible"
    resized(one, "1")
    looked_at(one)
    assert "PodResizePending" not in [c["type"] for c in one["status"]["conditions"]]
    assert one["status"]["observedGeneration"] == 3


@pytest.mark.parametrize(("cpu", "memory", "restarts"), [("2", "1Gi", 0), ("1", "2Gi", 1)])
def test_a_container_is_started_again_whose_policy_wants_that(cpu, memory, restarts):
    policy = [
        {"resourceName": "cpu", "restartPolicy": "NotRequired"},
        {"resourceName": "memory", "restartPolicy": "RestartContainer"},
    ]
    one = sized(resizePolicy=policy)
    reported(one)
    resized(one, cpu, memory)
    looked_at(one, seconds=9)
    (container,) = one["status"]["containerStatuses"]
    assert container["restartCount"] == restarts
    since = at(9 * restarts).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert container["state"] == {"running": {"startedAt": since}}
    assert ("lastState" in container) == bool(restarts)
    assert looked_at(one, seconds=10).status is None


def small_fleet():
    return Fleet(
        lambda: None, count=1, prefix="n", allocatable={"cpu": "4", "memory": "8Gi"}, zones=1,
        period=10.0, connections=1, stop_seconds=0.0, seed=1, say=print,
    )  # fmt: skip


def test_a_resize_that_waits_is_looked_at_until_it_is_done():
    """The room comes when another pod goes, which is no news of this one."""

    async def look() -> None:
        fleet, one = small_fleet(), sized()
        one["metadata"] |= {"name": "a", "namespace": "ns"}
        one["spec"]["nodeName"] = fleet.names[0]
        one["status"]["podIP"] = fleet._networks[fleet.names[0]].take("u")
        fleet._pods["ns", "a"] = one
        for cpu in ("1", "5"):
            if cpu == "5":
                resized(one, cpu)
            one["status"] = {**one["status"], **fleet._report_of(one).status}
        assert condition(one, "PodResizePending")["reason"] == "Infeasible"
        for _ in range(2):
            fleet._wakes.clear()
            await fleet._act(one)
            assert "u" in fleet._wakes
        fleet._offered[fleet.names[0]] = {"cpu": "6", "memory": "8Gi"}
        assert fleet._report_of(one).status["containerStatuses"][0]["resources"] == {
            "requests": {"cpu": "5", "memory": "1Gi"}
        }

    asyncio.run(look())


def test_the_agents_of_a_node_know_what_is_set_aside_for_its_other_pods():
    fleet = small_fleet()
    node = fleet.names[0]
    for name, cpu in (("a", "1"), ("b", "500m"), ("c", "2")):
        one = sized(cpu)
        one["metadata"] |= {"name": name, "uid": name, "namespace": "ns"}
        one["spec"]["nodeName"] = node if name != "c" else "another"
        fleet._pods["ns", name] = one
    room = fleet._room(fleet._pods["ns", "a"])
    assert room == Room({"cpu": 4000, "memory": 8 << 30}, {"cpu": 500, "memory": 1 << 30})
    fleet._pods["ns", "b"]["status"]["phase"] = "Succeeded"
    assert fleet._room(fleet._pods["ns", "a"]).others == {}


@pytest.mark.parametrize(
    ("given", "offered"), [({}, "100Gi"), ({"ephemeral_storage": "7Gi"}, "7Gi")]
)
def test_the_nodes_of_the_command_offer_ephemeral_storage(server, tmp_path, given, offered):
    file = tmp_path / "token"
    file.write_text(make_token("fleet", ["system:masters"]))
    address = f"http://127.0.0.1:{server.port}"
    call_command(
        "hollow-nodes", count=1, duration=1, every=0.5, job_seconds=3,
        server=address, token_file=str(file), stdout=io.StringIO(), **given,
    )  # fmt: skip
    status = get_manifest("Node", "", "hollow-00000")["status"]
    assert status["allocatable"]["ephemeral-storage"] == offered
    assert status["capacity"] == status["allocatable"]


def test_a_field_that_devices_do_not_have_is_refused_by_its_name(server, tmp_path):
    token, file = tmp_path / "token", tmp_path / "devices.yaml"
    token.write_text(make_token("fleet", ["system:masters"]))
    file.write_text("- driver: gpu.example.com\n  devices: [{name: gpu-0, atributes: {}}]\n")
    with pytest.raises(CommandError, match=r"spec\.devices\[0\]\.atributes"):
        call_command(
            "hollow-nodes", count=1, duration=1, devices=str(file), token_file=str(token),
            server=f"http://127.0.0.1:{server.port}", stdout=io.StringIO(),
        )  # fmt: skip
