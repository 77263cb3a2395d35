"""A worker of parts and a node, for the tests of what writes decisions."""

from collections.abc import Iterator

import pytest

from clusterstate.actions.cluster import bootstrap
from tests.clock import NOW
from tests.controllers.support import make_node
from tests.worker.worker import Worker


@pytest.fixture
def worker(db: None) -> Iterator[Worker]:
    bootstrap.add_missing(now=NOW)
    make_node("n1")
    made = Worker()
    yield made
    made.binder.close()
