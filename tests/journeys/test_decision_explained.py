"""A pod that was placed by the running service, and the question why it is where it is."""

from tests.builders import make_node, make_pod
from tests.live import Service
from tests.waiting import until


def test_why_is_my_pod_there(live: Service) -> None:
    for name in ("explained-a", "explained-b"):
        node = make_node(name).labelled(journey="explained").offers(cpu="2")
        assert live.request("POST", "/api/v1/nodes", node.manifest)[0] == 201
    pods = [make_pod(f"explained-{n}").asks(cpu="2").selects(journey="explained") for n in range(3)]
    for pod in pods:
        path = "/api/v1/namespaces/default/pods"
        assert live.request("POST", path, pod.manifest)[0] == 201

    def decided(name: str) -> dict:
        found = until(
            lambda: live.request("GET", f"{path}/{name}/decisions")[1].get("items"),
            what=f"a decision about {name}",
        )
        oldest = found[-1]["id"]
        status, full = live.request("GET", f"{path}/{name}/decisions/{oldest}?explain=full")
        assert status == 200
        assert full["verified"], full["differences"]
        return full

    placed = [decided(f"explained-{n}") for n in range(2)]
    assert {p["nodeName"] for p in placed} == {"explained-a", "explained-b"}
    left_over = decided("explained-2")
    assert left_over["outcome"] == "unschedulable"
    assert left_over["infeasible"]["explained-a"]["reasons"] == ["Insufficient cpu"]
    status, answer = live.request("POST", "/apis/stowage.dev/v1/headroom", pods[0].manifest)
    assert (status, answer["status"]["fits"]) == (201, 0)
