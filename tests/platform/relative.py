"""A process of a family, and its parent: ``python -m tests.platform.relative``; see test_family."""

import gc
import json
import os
import signal
import sys
from pathlib import Path

import django
from django.conf import settings

from clusterstate.local import family
from clusterstate.processes import collector


def shown() -> dict[str, object]:
    """Return what this process is, and what others see of it."""
    collector.calm()
    return {
        "process": settings.PROCESS,
        "session": settings.DATABASES["default"]["OPTIONS"]["application_name"],
        "arguments": sys.argv[1:],
        "leads": os.getsid(0) == os.getpid(),
        "frozen": gc.get_freeze_count(),
        "seen": Path("/proc/self/cmdline").read_text().split("\0")[:-1],
        "variables": Path("/proc/self/environ").read_text().split("\0")[:-1],
        "handled": signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL,
    }


def main() -> None:
    django.setup()
    signal.signal(signal.SIGTERM, lambda *_: None)
    family.share(("json.tool",), ("platform:machine",))
    variables = {"STOWAGE_PROCESS": "timers", "DJANGO_SETTINGS_MODULE": "clusterstate.settings"}
    child = family.fork(
        ("-m", "tests.platform.relative", "child", "--name", "timers"),
        environment={**variables, "STOWAGE_STATE": os.environ["STOWAGE_STATE"]},
        output=os.dup(1),
        forget=lambda: None,
        prepare=lambda: None,
    )
    print(json.dumps({"code": child.wait(30), "process": settings.PROCESS}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        print(json.dumps(shown()))
        sys.exit(7)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "clusterstate.settings")
    main()
