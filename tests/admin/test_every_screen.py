"""What holds for each list of the admin, whichever model it is of."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.test import Client

from api.server import health
from clusterstate.actions import objects
from tests.admin.conftest import person
from tests.admin.pages import node_page
from tests.clock import NOW
from tests.clusterstate.support import bind, create_node, new_pod

LISTS = {
    model._meta.model_name: f"/admin/{model._meta.app_label}/{model._meta.model_name}/"
    for model in admin.site._registry
}


@pytest.fixture(autouse=True)
def something(db: None) -> None:
    create_node("n1")
    assert bind(new_pod("web-a"), "n1")
    objects.create(
        "RuntimeClass", "", {"metadata": {"name": "gvisor"}, "handler": "runsc"}, now=NOW
    )


@pytest.mark.parametrize("name", LISTS)
def test_its_words_are_spelled_and_what_cannot_be_undone_is_the_last_action(
    administrator: Client, name: str
) -> None:
    answer = administrator.get(LISTS[name])
    assert answer.status_code == 200
    page = answer.content.decode()
    assert "classs" not in page
    assert "Classs" not in page
    assert not re.search(r"\b(Jan|Feb|Aug|Sept|Oct|Nov|Dec)\. \d", page)
    listed = page.partition('name="action"')[2].partition("</select>")[0]
    actions = re.findall(r'<option value="(\w+)"', listed)
    assert "delete_selected" not in actions[:-1]


@pytest.fixture
def without_a_scheduler(settings: Any) -> Iterator[None]:
    """A process that serves, where no scheduler works."""
    settings.SERVES = True
    health.problems()
    yield
    health.end()


@pytest.mark.usefixtures("without_a_scheduler")
def test_every_page_tells_of_the_parts_that_do_not_work(administrator: Client) -> None:
    for page in ("/admin/", LISTS["node"], f"{LISTS['priorityclass']}add/", node_page("n1")):
        shown = administrator.get(page).content.decode()
        assert re.search(
            r'<li class="bad" data-part="scheduler"><b>scheduler</b> .+: no pod', shown
        )
    assert "data-part" not in Client().get("/admin/login/").content.decode()


@pytest.mark.parametrize("name", LISTS)
def test_who_may_only_look_is_answered_403_and_a_page(name: str) -> None:
    viewer = person("victor", "view_pod" if name == "eviction" else f"view_{name}")
    if viewer.get(LISTS[name]).status_code == 403:  # by a rule of its own
        return
    for action in ("delete_selected", "cordon", "nothing"):
        data = {"action": action, "_selected_action": ["1"], "post": "yes"}
        answer = viewer.post(LISTS[name], data)
        assert answer.status_code == 403, action
        assert "<main" in answer.content.decode()
    assert viewer.get(f"{LISTS[name]}add/").status_code in (302, 403)
