"""Pages ask for rights by the names that the API gives them: a role gives both or neither."""

from typing import Any

import pytest
from django.test import Client

from api import resources
from api.description import discovery
from clusterstate.access import authorizer
from clusterstate.access.rules import Attributes
from tests.console import served
from tests.console.conftest import signed_in

ELSEWHERE = {("audit.k8s.io", "events")}
"""Rights to what is served under another name, as `docs/audit.md` says."""


def known() -> set[tuple[str, str]]:
    """Return group and resource, with its subresource, of all that is served."""
    told = {
        (group, entry["name"])
        for (group, _), entries in discovery.group_versions().items()
        for entry in entries
    }
    views = {one for _, one, _ in resources.router.served("")}
    return told | {
        (one.group, "/".join(filter(None, (one.resource, one.subresource)))) for one in views
    }


NAMED = {"name": ["web-1"], "namespace": ["default"], "key": ["zone.a"], "kind_name": ["Pod"]}


@pytest.mark.parametrize("is_superuser", [True, False])
def test_every_right_that_a_page_asks_for_is_one_of_the_api(
    cluster: None, monkeypatch: pytest.MonkeyPatch, is_superuser: bool
) -> None:
    browser: Client = signed_in("eve", superuser=is_superuser)
    asked: set[tuple[str, str]] = set()
    decide = authorizer.decide

    def noting(user: Any, wants: Attributes, *more: Any) -> Any:
        name = f"{wants.resource}/{wants.subresource}" if wants.subresource else wants.resource
        asked.add((wants.group, name))
        return decide(user, wants, *more)

    monkeypatch.setattr(authorizer, "decide", noting)
    for address in served.addresses(NAMED):
        for answer in (browser.get(address), browser.post(address, {"what": "apply"})):
            assert answer.status_code < 500 or answer.status_code == 503, (address, answer)
    assert ("stowage.dev", "waitingpods/permit") in asked
    assert asked - ELSEWHERE <= known()
