"""Forms as a browser would send them."""

import html
import re
from typing import Any

from django.test import Client

from clusterstate.models import Node, Pod

NODES = "/admin/clusterstate/node/"
PODS = "/admin/clusterstate/pod/"


def node_page(name: str) -> str:
    return f"{NODES}{Node.objects.get(name=name).pk}/change/"


def pod_page(name: str) -> str:
    return f"{PODS}{Pod.objects.get(name=name).pk}/change/"


def form_data(client: Client, page: str) -> dict[str, Any]:
    """Return what the browser would send back for the form on a page, unchanged."""
    context = client.get(page).context
    form = context["adminform"].form
    data = {bound.html_name: bound.value() for bound in form}
    for inline in context["inline_admin_formsets"]:
        formset = inline.formset
        for bound in formset.management_form:
            data[bound.html_name] = bound.value()
        for row in formset.forms:
            data |= {bound.html_name: bound.value() for bound in row}
    return {name: value for name, value in data.items() if value is not None and value is not False}


def add_taint(data: dict[str, Any], key: str, value: str, effect: str) -> None:
    """Fill in one more row of the taints."""
    number = int(data["taints-TOTAL_FORMS"])
    data["taints-TOTAL_FORMS"] = str(number + 1)
    data |= {
        f"taints-{number}-key": key,
        f"taints-{number}-value": value,
        f"taints-{number}-effect": effect,
    }


def text(response: Any) -> str:
    """Return what a person reads on the page, on one line."""
    content = re.sub(r"(?s)<(script|style).*?</\1>", " ", response.content.decode())
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", content)))


def run(client: Client, page: str, action: str, *names: str) -> Any:
    """Send a list's action for the nodes with these names."""
    chosen = [str(Node.objects.get(name=name).pk) for name in names]
    data = {"action": action, "_selected_action": chosen}
    return client.post(page, data, follow=True)
