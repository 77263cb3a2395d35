"""Types are ready when they are imported: the first use may come from many threads at once."""

import subprocess
import sys

FIRST_USE = """
import sys, threading
from clusterstate.objects.registry import schema
from clusterstate.objects.registry.kinds import ALL_KINDS

sys.setswitchinterval(1e-5)
barrier = threading.Barrier(4)

def work():
    barrier.wait()
    for _ in range(50):
        for kind in ALL_KINDS:
            schema.check_types(kind.name, {"metadata": {"labels": {"a": "b"}}, "spec": {}})

threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print("done")
"""


def test_four_threads_may_check_types_first_at_the_same_moment():
    """msgspec works types out lazily and without a lock; unprepared, this run crashes."""
    for _ in range(3):
        ended = subprocess.run(
            [sys.executable, "-c", FIRST_USE], capture_output=True, text=True, timeout=60
        )
        assert ended.stdout.strip() == "done", ended.stderr[-2000:]
