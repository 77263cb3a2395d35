"""npm's @kubernetes/client-node, the official client for JavaScript."""

import json
import subprocess

import pytest

from tests.clients.node.programs import Missing, prepared

pytestmark = [pytest.mark.slow, pytest.mark.db]


@pytest.fixture(scope="module")
def program():
    try:
        return prepared()
    except Missing as reason:
        pytest.skip(f"no Node.js, or not its packages: {reason}")


def test_the_client_for_javascript_follows_a_pod_and_applies_objects(cluster, program):
    node, folder = program
    ended = subprocess.run(
        [node, "drive.mjs", cluster.kubeconfig, cluster.namespace,
         json.dumps(cluster.pod("node", app="node"))],
        cwd=folder, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = {line.pop("step"): line for line in map(json.loads, ended.stdout.splitlines())}
    assert told == {
        "created": {"name": "node", "phase": "Pending"},
        "running": {"node": cluster.node, "seen": ["node"]},
        "patched": {"color": "blue"},
        "applied": {"data": {"a": "1", "b": "2"}, "names": ["kube-root-ca.crt", "node"]},
        "deleted": {"missing": 404},
        "asked": {"allowed": True},
        "gone": {"name": "node"},
    }
