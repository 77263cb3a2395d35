#!/bin/sh
# cronsim 2.8, croniter 7.0.0 and APScheduler 3.11.3.
# Guess: "30 2 * * *" in Europe/Berlin comes at the same moments everywhere, also on the two days on which
# clocks change.
# Behaviour: in spring there is no half past two. cronsim and croniter come at 03:00, APScheduler at 03:30
# (it says 02:30+01:00). In autumn there are two: cronsim takes the first one, croniter and APScheduler take
# both. Kubernetes reads a CronJob's schedule with robfig/cron v3, whose spec_test.go has a fourth way: none
# in spring, both in autumn. So none of the three tells when a CronJob with a timeZone comes.
# What the product does: as robfig/cron (clusterstate/objects/values/cron.py).
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    "cronsim==2.8" "croniter==7.0.0" "apscheduler==3.11.3" "tzdata"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger
from croniter import croniter
from cronsim import CronSim

BERLIN, TEXT = ZoneInfo("Europe/Berlin"), "30 2 * * *"


def by_cronsim(begin):
    yield from CronSim(TEXT, begin)


def by_croniter(begin):
    schedule = croniter(TEXT, begin)
    while True:
        yield schedule.get_next(datetime)


def by_apscheduler(begin):
    trigger, last, now = CronTrigger.from_crontab(TEXT, timezone=BERLIN), None, begin
    while True:
        last = now = trigger.get_next_fire_time(last, now)
        yield now


def on(day, library):
    """Return the moments of that day, as clocks in Berlin show them."""
    found = []
    for moment in library(datetime(*day, tzinfo=BERLIN) - timedelta(hours=12)):
        shown = moment.astimezone(UTC).astimezone(BERLIN)
        if (shown.year, shown.month, shown.day) > day:
            return found
        if (shown.year, shown.month, shown.day) == day:
            found.append(shown.strftime("%H:%M%z")[:-2])


seen = {}
for library in (by_cronsim, by_croniter, by_apscheduler):
    name = library.__name__.removeprefix("by_")
    seen[name] = on((2026, 3, 29), library), on((2026, 10, 25), library)
    print(f"{name:12} spring {seen[name][0]}  autumn {seen[name][1]}")
both = ["02:30+02", "02:30+01"]
as_stated = seen == {
    "cronsim": (["03:00+02"], ["02:30+02"]),
    "croniter": (["03:00+02"], both),
    "apscheduler": (["03:30+02"], both),
}
sys.exit(0 if as_stated else 1)
PYTHON
