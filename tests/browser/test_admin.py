"""The admin as a person uses it, scripts, styles and content security policy included."""

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, User

from clusterstate import catalogue
from clusterstate.actions.pods.queue import Unschedulable, set_unschedulable
from clusterstate.models import Node, Pod, SchedulerConfiguration
from tests.browser.conftest import Browser
from tests.browser.looks import LOOKS, emulate, load_axe, serious
from tests.clusterstate.support import NOW, bind, create_node, manifest, new_pod
from tests.forms import few

pytestmark = pytest.mark.django_db(transaction=True)

PASSWORD = "pass word 123"
PACKED = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated}}
"""
REFUSAL = (
    "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu. preemption: 0/3"
    " nodes are available: 3 Preemption is not helpful for scheduling."
)


@pytest.fixture(autouse=True)
def cluster() -> None:
    catalogue.reload()
    User.objects.create_superuser("anna", password=PASSWORD)
    zone = "topology.kubernetes.io/zone"
    create_node(
        "node-1",
        labels={"disktype": "ssd", zone: "a"},
        taints=[{"key": "maintenance", "effect": "PreferNoSchedule"}],
    )
    create_node(
        "node-2",
        labels={zone: "b"},
        taints=[{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}],
    )
    create_node("node-3", unschedulable=True)
    for number in range(5):
        assert bind(new_pod(f"web-{number}", cpu="700m"), "node-1")
    waiting = new_pod("too-big", cpu="64")
    set_unschedulable(
        [Unschedulable(pod_id=waiting, message=REFUSAL, rejected_by=("NodeResourcesFit",))],
        now=NOW,
    )


def test_an_administrator_labels_and_taints_a_node_and_previews_a_cordon(browser: Browser) -> None:
    browser.open("/admin/")
    browser.find("#id_username")
    browser.keep("1-log-in")
    browser.log_in("anna", PASSWORD)
    browser.sees("Waiting longest")
    browser.keep("2-overview")

    browser.open("/admin/clusterstate/node/")
    browser.sees("3.5 / 4")
    browser.keep("3-nodes")
    node_1 = Node.objects.get(name="node-1").pk
    browser.click(f'a[href*="/clusterstate/node/{node_1}/change/"]')
    browser.keep("4-node")
    browser.fill("#id_labels", "disktype=hdd\nteam=search")
    browser.click("#taints-group .add-row a, #taints-group a.add-row")
    row = f"#id_taints-{Node.objects.get(name='node-1').taints.count()}"
    browser.fill(f"{row}-key", "dedicated")
    browser.fill(f"{row}-value", "search")
    browser.choose(f"{row}-effect", "NoSchedule")
    browser.keep("4-node-edited")
    browser.click("button[name=_save], input[name=_save]")

    browser.sees("dedicated=search:NoSchedule")
    browser.sees("team=search")
    browser.click(f'input[name=_selected_action][value="{node_1}"]')
    browser.choose("select[name=action]", "cordon")
    browser.keep("5-action")
    browser.click("button[name=index]")
    browser.sees("What will happen")
    browser.find("#confirm")
    browser.keep("6-cordon")

    stored = manifest("Node", "", "node-1")
    labels = stored["metadata"]["labels"]
    assert (labels["disktype"], labels["team"]) == ("hdd", "search")
    values = {taint["key"]: taint.get("value") for taint in stored["spec"]["taints"]}
    assert values["dedicated"] == "search"
    # The server of this test answers no streams.
    assert [one for one in browser.complaints() if "/console/stream" not in one] == []


def test_wrong_fields_say_what_is_wrong(browser: Browser) -> None:
    browser.log_in("anna", PASSWORD)
    browser.open("/admin/clusterstate/node/add/")
    browser.fill("#id_name", "Not A Name")
    browser.fill("#id_labels", "not a key=x")
    browser.click("#taints-group .add-row a, #taints-group a.add-row")
    browser.fill("#id_taints-0-key", "also not a key")
    browser.click("button[name=_save], input[name=_save]")
    browser.sees("metadata.name: Invalid value")
    browser.sees("metadata.labels: Invalid value")
    browser.keep("7-errors")
    assert not Node.objects.filter(name="Not A Name").exists()
    assert browser.complaints() == []


@pytest.mark.long
def test_a_waiting_pod_tells_why(browser: Browser) -> None:
    browser.log_in("anna", PASSWORD)
    browser.open("/admin/clusterstate/pod/?placement=waiting")
    browser.sees("Insufficient cpu")
    browser.keep("8-pods")
    browser.click('th a[href*="/clusterstate/pod/"], td a[href*="/clusterstate/pod/"]')
    browser.sees("NodeResourcesFit")
    browser.keep("9-pod")
    browser.open("/admin/auth/user/")
    browser.sees("anna")
    browser.keep("10-users")
    assert browser.complaints() == []


def test_the_schedulers_configuration_is_edited_and_brought_back(browser: Browser) -> None:
    browser.log_in("anna", PASSWORD)
    browser.open("/admin/clusterstate/schedulerconfiguration/add/")
    browser.fill("#id_document", PACKED.replace("MostAllocated", "Everything"))
    browser.click("button[name=_save], input[name=_save]")
    browser.sees("profiles[0].pluginConfig[0].args.scoringStrategy.type")
    browser.keep("11-configuration-errors")
    assert not SchedulerConfiguration.objects.exists()
    browser.fill("#id_document", PACKED)
    browser.click("button[name=_save], input[name=_save]")
    browser.sees("was added successfully")
    first = SchedulerConfiguration.objects.get()
    assert "MostAllocated" in first.document
    browser.open("/admin/clusterstate/schedulerconfiguration/add/")
    browser.fill("#id_document", PACKED.replace("MostAllocated", "LeastAllocated"))
    browser.click("button[name=_save], input[name=_save]")
    browser.sees("was added successfully")
    browser.keep("12-configurations")
    browser.click(f'input[name=_selected_action][value="{first.pk}"]')
    browser.choose("select[name=action]", "make_current")
    browser.click("button[name=index]")
    browser.sees(f"Revision {first.pk} is in force again")
    assert SchedulerConfiguration.objects.count() == 3
    assert SchedulerConfiguration.objects.latest("revision").document == first.document
    browser.open(f"/admin/clusterstate/schedulerconfiguration/{first.pk}/change/")
    browser.sees("MostAllocated")
    browser.keep("13-configuration")
    assert browser.complaints() == []


def _screens() -> list[str]:
    """Return the addresses of every list, its form to add, and the screens of its first row."""
    paths = ["", "password_change/"]
    for model in admin.site._registry:
        place = f"{model._meta.app_label}/{model._meta.model_name}/"
        paths += [place, f"{place}add/"]
        if (row := model._default_manager.first()) is not None:
            paths += [f"{place}{row.pk}/{screen}/" for screen in ("change", "history", "delete")]
    return paths


def test_every_screen_runs_without_compiling_scripts(browser: Browser) -> None:
    """Scripts that compile text are refused by the policy, and so is what they would have done."""
    Group.objects.create(name="people")
    browser.log_in("anna", PASSWORD)
    wrong = []
    for path in _screens():
        browser.open(f"/admin/{path}")
        browser.find("body")
        hints = "status of 40", "[DOM]"  # a form that nobody may open; advice about autocomplete
        found = browser.complaints()
        wrong += [(path, one) for one in found if not any(hint in one for hint in hints)]
    assert not wrong, "\n".join(map(str, wrong))


def test_menus_filters_rows_and_the_sidebar_work(browser: Browser) -> None:
    browser.log_in("anna", PASSWORD)
    sidebar = "#nav-sidebar-apps"
    browser.find(sidebar)
    toggle = '[x-on\\:click^="sidebarDesktopOpen"]'
    browser.click(toggle)
    browser.gone(sidebar)
    browser.open("/admin/clusterstate/node/")
    browser.gone(sidebar)  # it stays as it was left
    browser.click(toggle)
    browser.find(sidebar)

    emulate(browser, "-dark")
    browser.find("html.dark")  # nobody chose: it follows the browser, without another request
    emulate(browser)
    browser.gone("html.dark")
    browser.click('[x-on\\:click="openUserLinks = !openUserLinks"]')
    browser.click("[x-on\\:click*=\"'dark'\"]")
    browser.find("html.dark")
    browser.find('form[action="/admin/logout/"] button')

    browser.driver.execute_script("document.activeElement.blur()")
    browser.press("/")
    assert browser.driver.switch_to.active_element.get_attribute("name") == "q"
    browser.click('[x-on\\:click="filterOpen = true"]')
    browser.find('a[href*="cordoned=yes"]')
    browser.keep("14-filter")
    browser.click('a[href*="cordoned=yes"]')
    browser.sees("1 result")

    browser.open(f"/admin/clusterstate/node/{Node.objects.get(name='node-1').pk}/change/")
    browser.click("#taints-group .add-row a, #taints-group a.add-row")
    browser.find("#id_taints-1-key")
    browser.click(".delete-template")
    browser.gone("#id_taints-1-key")
    assert browser.complaints() == []


MAIN = 4
"""So many screens, the first, does axe look at in the suite."""
PHONE = ("", "clusterstate/node/", "clusterstate/pod/")


@pytest.mark.parametrize("every", few([False, True]), ids=["main", "every"])
def test_every_screen_is_readable(browser: Browser, every: bool) -> None:
    browser.log_in("anna", PASSWORD)
    group = Group.objects.create(name="people")
    node = Node.objects.get(name="node-1").pk
    pod = Pod.objects.get(name="too-big").pk
    found = []
    paths = (
        "", "clusterstate/node/", f"clusterstate/node/{node}/change/",
        f"auth/group/{group.pk}/change/", f"clusterstate/node/{node}/delete/",
        f"clusterstate/node/{node}/history/",
        "clusterstate/node/add/", "clusterstate/pod/", f"clusterstate/pod/{pod}/change/",
        "clusterstate/eviction/", "clusterstate/runtimeclass/",
        "clusterstate/schedulerconfiguration/add/", "clusterstate/auditline/",
        "auth/user/", "nothing/",
    )  # fmt: skip
    for path in paths if every else paths[:MAIN]:
        for look in LOOKS if path in PHONE else ("", "-dark"):
            emulate(browser, look)
            browser.open(f"/admin/{path}")
            browser.find("main, #main")
            load_axe(browser)
            found += [(path + look, *one) for one in serious(browser, look)]
    assert not found, "\n".join(map(str, found))
