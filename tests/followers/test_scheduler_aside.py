"""The scheduler goes on without what it cannot read or decide."""

import contextlib

import pytest
from django.db import DatabaseError

from clusterstate.database import sql
from scheduling.worker import loop
from tests.controllers.support import make_node, make_pod, pod, tolerate_too, tolerates
from tests.followers.test_aside import kept, spoil, told_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def fresh():
    yield
    loop.discard()


def spoil_class(name: str, spec: str) -> None:
    changed = sql.run(
        "UPDATE scheduling_class SET spec = %s FROM pod p WHERE class_id = scheduling_class.id"
        " AND p.name = %s",
        (spec, name),
    )
    assert changed == 1


UNREADABLE = '{"spec":{"priority":"high"}}'


def labelled(name: str, node: str = "", **spec: object) -> int:
    """Create a pod with a scheduling class of its own."""
    return make_pod(name, node, metadata={"labels": {"of": name}}, **spec)


def node_of(name: str) -> str:
    found = pod(name)
    assert found is not None
    return found["spec"].get("nodeName", "")


def run(times: int = 1) -> None:
    """Let the runner work as its loop does: what it raises is logged, and it begins again."""
    for _ in range(times):
        with contextlib.suppress(DatabaseError):
            loop.run(longest=0.2)


@pytest.fixture
def refused():
    """Pods that PostgreSQL refuses to bind, by name."""
    sql.run(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN"
        " IF NEW.name IN ('p2', 'p7') AND NEW.node_name <> '' THEN RAISE data_exception; END IF;"
        " RETURN NEW; END$$"
    )
    sql.run("CREATE TRIGGER refuse BEFORE UPDATE ON pod FOR EACH ROW EXECUTE FUNCTION refuse()")
    yield ["p2", "p7"]
    sql.run("DROP TRIGGER refuse ON pod")
    sql.run("DROP FUNCTION refuse")


def test_a_pod_whose_class_cannot_be_read_lets_the_others_be_placed() -> None:
    make_node("n1")
    for name in ("a", "bad", "c"):
        labelled(name)
    spoil_class("bad", UNREADABLE)
    run()
    assert (node_of("a"), node_of("bad"), node_of("c")) == ("n1", "", "n1")
    assert kept("scheduler") == [("Pod", "bad")]
    assert len(told_of("bad")) == 1
    tolerate_too("bad", tolerates("x"))
    run()
    assert node_of("bad") == "n1", "it changed, so it is tried again"


def test_pods_that_cannot_be_bound_let_the_others_be_placed(refused) -> None:
    make_node("n1")
    names = [f"p{number}" for number in range(9)]
    for name in names:
        labelled(name)
    for _ in range(100):  # on a busy machine less is done in each
        run()
        if kept("scheduler") == [("Pod", name) for name in refused]:
            break
    run()
    assert kept("scheduler") == [("Pod", name) for name in refused]
    assert [name for name in names if not node_of(name)] == refused
    labelled("later")
    run()
    assert node_of("later") == "n1"


def test_nothing_is_put_on_a_node_whose_pods_cannot_be_counted() -> None:
    make_node("n1")
    make_node("n2")
    labelled("bad", "n1")
    spoil_class("bad", UNREADABLE)
    for number in range(4):
        labelled(f"p{number}")
    run()
    assert {node_of(f"p{number}") for number in range(4)} == {"n2"}


def test_a_node_that_cannot_be_read_leaves_the_others() -> None:
    make_node("bad", labels={"some": "label"})
    make_node("n2")
    spoil("Node", "bad", '"some":"label"', '"some":17')
    labelled("p")
    run()
    assert node_of("p") == "n2"
    assert kept("scheduler") == [("Node", "bad")]


def test_news_that_cannot_be_read_leave_the_others() -> None:
    make_node("n1")
    run()
    make_node("bad", labels={"some": "label"})
    spoil("Node", "bad", '"some":"label"', '"some":17')
    make_node("n3", labels={"the": "third"})
    labelled("p", nodeSelector={"the": "third"})
    run()
    assert node_of("p") == "n3"
    assert kept("scheduler") == [("Node", "bad")]


def test_a_database_that_fails_sets_nothing_aside() -> None:
    make_node("n1")
    run()
    labelled("p")
    sql.run("ALTER TABLE pod RENAME COLUMN bound_at TO elsewhere")
    try:
        run(4)
        assert kept("scheduler") == []
    finally:
        sql.run("ALTER TABLE pod RENAME COLUMN elsewhere TO bound_at")
    run()
    assert node_of("p") == "n1"
