"""The application's configuration and its numbered system checks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import connection
from django.db.models.signals import post_migrate, pre_save
from django.utils import timezone

from clusterstate.processes import memory

_NEEDED = (
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "axes.middleware.AxesMiddleware",
)


class ClusterstateConfig(AppConfig):
    """The only application with tables."""

    name = "clusterstate"
    label = "clusterstate"
    verbose_name = "Cluster"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the checks, and what every migrated database must contain."""
        post_migrate.connect(fill_database, sender=self, dispatch_uid="clusterstate.fill")
        from clusterstate.actions import model_rows
        from clusterstate.models import rows

        rows.written_by(model_rows.RowWriter())
        pre_save.connect(rows.refuse_alone, dispatch_uid="clusterstate.rows")
        register(check_admission)
        register(check_audit)
        register(check_browser_chain, Tags.security)
        register(check_ports)
        register(check_secret, Tags.security, deploy=True)


def fill_database(**_: Any) -> None:
    """Create system namespaces and classes after a migration, and after the tests' flush."""
    from clusterstate.actions.cluster import bootstrap

    memory.forget()
    if "history" in connection.introspection.table_names():
        bootstrap.ensure(now=timezone.now())  # noqa: TID251 - the edge: a command runs


def check_browser_chain(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """E001: the admin needs these links of the browser's chain (Django's own check is silenced)."""
    return [
        Error(
            f"BROWSER_MIDDLEWARE must contain {name!r}.",
            hint="The admin's log-in does not work without it.",
            id="clusterstate.E001",
        )
        for name in _NEEDED
        if name not in settings.BROWSER_MIDDLEWARE
    ]


def check_ports(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """E003: https and http cannot share a port."""
    if settings.HTTPS_PORT == settings.HTTP_PORT:
        return [
            Error(
                f"STOWAGE_HTTPS_PORT and STOWAGE_HTTP_PORT are both {settings.HTTP_PORT}.",
                hint="Give one of them another number.",
                id="clusterstate.E003",
            )
        ]
    return []


def check_admission(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """E005: admission has no such switch, or it takes another kind of value."""
    from clusterstate.admission.request import AdmissionSettings

    unknown = sorted(settings.ADMISSION.keys() - set(AdmissionSettings.__struct_fields__))
    problem = f"unknown: {', '.join(unknown)}" if unknown else ""
    try:
        msgspec.convert(settings.ADMISSION, AdmissionSettings)
    except msgspec.ValidationError as error:
        problem = problem or str(error)
    if not problem:
        return []
    keys = ", ".join(AdmissionSettings.__struct_fields__)
    return [
        Error(
            f"STOWAGE_ADMISSION: {problem}.",
            hint=f"Set a JSON object with some of these keys, in camel case: {keys}.",
            id="clusterstate.E005",
        )
    ]


def check_audit(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """E006: the audit policy cannot be used, or the file of the log has no folder."""
    from clusterstate.objects.rules import audit_policy

    found: list[CheckMessage] = []
    if settings.AUDIT_POLICY_FILE:
        try:
            audit_policy.parse(Path(settings.AUDIT_POLICY_FILE).read_text())
        except (OSError, ValueError) as error:
            found.append(
                Error(
                    f"STOWAGE_AUDIT_POLICY_FILE: {error}.",
                    hint="docs/audit.md shows a policy; without a file the default one is used.",
                    id="clusterstate.E006",
                )
            )
    if settings.AUDIT_LOG_FILE and not Path(settings.AUDIT_LOG_FILE).parent.is_dir():
        found.append(
            Error(
                f"STOWAGE_AUDIT_LOG_FILE: the folder of {settings.AUDIT_LOG_FILE} does not exist.",
                hint="Create that folder, and let the user that runs the web processes write"
                " to it.",
                id="clusterstate.E006",
            )
        )
    return found


def check_secret(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """W004 (deploy): several processes must share one signing key, or log-ins do not last."""
    if len(settings.SECRET_KEY) < 32:
        return [
            Warning(
                "STOWAGE_SECRET_KEY is shorter than 32 characters.",
                hint="Set it to 50 random characters.",
                id="clusterstate.W004",
            )
        ]
    return []
