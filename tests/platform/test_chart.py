"""The Helm chart: its templates hold values alone, so they are filled in here as Helm would."""

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/chart"
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
_EXPRESSION = re.compile(r"\{\{ (\.[\w.]+) \}\}")


def filled(text: str) -> str:
    """Fill a template in.

    An expression other than a path of a value is left, and fails to be read as YAML.
    """

    def value(found: re.Match[str]) -> str:
        path = found[1].removeprefix(".").split(".")
        known: Any = {"Values": VALUES, "Release": {"Name": "mine"}}
        for name in path:
            known = known[name]
        return str(known)

    return _EXPRESSION.sub(value, text)


def objects() -> list[dict[str, Any]]:
    found = []
    for path in sorted((CHART / "templates").glob("*.yaml")):
        text = filled(path.read_text())
        assert "{{" not in text, path
        found += list(yaml.safe_load_all(text))
    return found


OBJECTS = {(one["kind"], one["metadata"]["name"]): one for one in objects()}
ROLES = sorted(
    {name for name, service in COMPOSE.items() if "build" in service} - {"migrate", "https"}
)
"""A Job prepares the database, and an Ingress ends TLS."""


def containers(manifest: dict[str, Any]) -> dict[str, Any]:
    (found,) = manifest["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def test_each_role_runs_the_command_of_the_composition() -> None:
    deployed = {name.removeprefix("mine-") for kind, name in OBJECTS if kind == "Deployment"}
    assert sorted(deployed) == ROLES
    for role in ROLES:
        container = containers(OBJECTS["Deployment", f"mine-{role}"])
        assert container["command"] == COMPOSE[role]["command"]
        assert {"name": "STOWAGE_PROCESS", "value": role} in container["env"]
        beats = COMPOSE[role]["healthcheck"]["test"][1:]
        assert container["livenessProbe"]["exec"]["command"] == beats
    prepare = containers(OBJECTS["Job", "mine-prepare"])
    # The composition's https makes a certificate of its own; here an Ingress has one.
    assert [*prepare["command"], "--certificate"] == COMPOSE["migrate"]["command"]


@pytest.mark.parametrize("key", sorted(OBJECTS), ids="/".join)
def test_an_object_has_the_fields_of_its_kind_and_no_others(key: tuple[str, str]) -> None:
    kubernetes_validate.validate(OBJECTS[key], "1.37", strict=True)


def test_services_lead_to_the_pods_of_their_role() -> None:
    for role in ("web", "console"):
        selector = OBJECTS["Service", f"mine-{role}"]["spec"]["selector"]
        labels = OBJECTS["Deployment", f"mine-{role}"]["spec"]["template"]["metadata"]["labels"]
        assert selector.items() <= labels.items()
    web = containers(OBJECTS["Deployment", "mine-web"])
    assert {"name": "STOWAGE_CONSOLE", "value": "http://mine-console:8080"} in web["env"]


def test_settings_are_those_that_the_service_reads_and_no_secret_is_a_value() -> None:
    settings = (ROOT / "clusterstate/settings.py").read_text()
    for name in OBJECTS["ConfigMap", "mine-settings"]["data"]:
        assert f'"{name}"' in settings
    assert not {"DATABASE_URL", "REDIS_URL", "STOWAGE_SECRET_KEY"} & set(str(VALUES).split())
