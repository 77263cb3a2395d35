"""The scheduler's configuration in the admin: revisions, a checked form, and the way back."""

import pytest
from django.test import Client

from clusterstate.models import SchedulerConfiguration
from clusterstate.queries.scheduler import decisions
from tests.admin.conftest import person
from tests.admin.pages import form_data, text

pytestmark = pytest.mark.django_db

LIST = "/admin/clusterstate/schedulerconfiguration/"
ADD = f"{LIST}add/"
TWO_PROFILES = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
- schedulerName: packed
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated}}
"""


def store(client: Client, document: str, page: str = ADD):
    return client.post(page, form_data(client, page) | {"document": document}, follow=True)


def test_a_configuration_is_stored_and_shown(administrator: Client) -> None:
    first = form_data(administrator, ADD)
    assert "schedulerName: default-scheduler" in first["document"]
    assert first["seen"] == 0
    page = text(store(administrator, TWO_PROFILES))
    assert "packed" in page
    assert "In force" in page
    assert "anna" in page
    stored = decisions.configuration()
    assert stored is not None
    assert '"MostAllocated"' in stored.document
    detail = text(administrator.get(f"{LIST}{stored.revision}/change/"))
    assert "schedulerName: packed" in detail
    assert form_data(administrator, ADD)["document"].count("schedulerName") == 2


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (
            TWO_PROFILES.replace("MostAllocated", "Everything"),
            ["profiles[1].pluginConfig[0].args.scoringStrategy.type"],
        ),
        (
            TWO_PROFILES + "percentageOfNodesToScore: -1\nnonsense: true\n",
            ["percentageOfNodesToScore: Invalid value", "nonsense: Invalid value"],
        ),
        ("{", ["does not parse as YAML or JSON"]),
        ("", ["This field is required"]),
        ("- a list", ["must be an object"]),
        ("kind: Pod\napiVersion: v1\n", ["kind"]),
    ],
)
def test_every_wrong_field_is_named(administrator: Client, document: str, told: list[str]) -> None:
    page = text(store(administrator, document))
    for part in told:
        assert part in page
    assert decisions.configuration() is None


def test_what_the_api_answered_may_be_pasted(administrator: Client) -> None:
    store(administrator, TWO_PROFILES + "metadata: {name: default, resourceVersion: '7'}\n")
    stored = decisions.configuration()
    assert stored is not None
    assert "metadata" not in stored.document


def test_advice_is_shown(administrator: Client) -> None:
    page = text(store(administrator, TWO_PROFILES + "percentageOfNodesToScore: 5\n"))
    assert "most nodes are not scored" in page


def test_two_people_do_not_undo_each_other(administrator: Client) -> None:
    stale = form_data(administrator, ADD) | {"document": TWO_PROFILES}
    store(administrator, TWO_PROFILES + "parallelism: 8\n")
    page = text(administrator.post(ADD, stale, follow=True))
    assert "Another user stored a configuration" in page
    assert SchedulerConfiguration.objects.count() == 1


def test_an_earlier_revision_becomes_current_again(administrator: Client) -> None:
    store(administrator, TWO_PROFILES)
    store(administrator, TWO_PROFILES + "parallelism: 8\n")
    first, second = SchedulerConfiguration.objects.order_by("revision")
    data = {"action": "make_current", "_selected_action": [str(first.pk)]}
    page = text(administrator.post(LIST, data, follow=True))
    assert f"Revision {first.pk} is in force again, as revision" in page
    stored = decisions.configuration()
    assert stored is not None
    assert stored.revision > second.pk
    assert stored.document == first.document
    again = {"action": "make_current", "_selected_action": [str(stored.revision)]}
    same = "is the same as the configuration in force"
    assert same in text(administrator.post(LIST, again, follow=True))
    both = {"action": "make_current", "_selected_action": [str(first.pk), str(second.pk)]}
    assert "Choose one revision" in text(administrator.post(LIST, both, follow=True))
    assert SchedulerConfiguration.objects.count() == 3


def test_a_form_starts_from_any_revision(administrator: Client) -> None:
    store(administrator, TWO_PROFILES)
    store(administrator, TWO_PROFILES.replace("packed", "other"))
    first = SchedulerConfiguration.objects.earliest("revision")
    assert "packed" in form_data(administrator, f"{ADD}?from={first.pk}")["document"]
    assert "other" in form_data(administrator, f"{ADD}?from=x")["document"]


def test_who_may_only_look_changes_nothing(administrator: Client) -> None:
    store(administrator, TWO_PROFILES)
    viewer = person("vera", "view_schedulerconfiguration")
    (stored,) = SchedulerConfiguration.objects.all()
    assert "packed" in text(viewer.get(LIST))
    assert viewer.get(f"{LIST}{stored.pk}/change/").status_code == 200
    assert viewer.get(ADD).status_code == 403
    data = {"action": "make_current", "_selected_action": [str(stored.pk)]}
    viewer.post(LIST, data, follow=True)
    assert SchedulerConfiguration.objects.count() == 1
    assert administrator.post(f"{LIST}{stored.pk}/delete/", {"post": "yes"}).status_code == 403
