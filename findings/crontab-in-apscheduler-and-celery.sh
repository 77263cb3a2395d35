#!/bin/sh
# APScheduler 3.11.3, Celery 5.7.0 and croniter 7.0.0.
# Guess: CronTrigger.from_crontab(TEXT) and celery.schedules.crontab.from_string(TEXT) come when cron would.
# Behaviour: from_crontab("0 0 * * 0") comes on Mondays: APScheduler counts days of the week from Monday.
# Names are safe ("sun"). And of "0 0 13 * fri", by cron every 13th and every Friday, both take only a Friday
# the 13th: the next one after June 2026 is in November.
# What the product does: it reads CronJobs' schedules itself, as robfig/cron (clusterstate/objects/values/
# cron.py), and gives none to Celery.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    "apscheduler==3.11.3" "celery==5.7.0" "croniter==7.0.0"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from datetime import UTC, datetime

from apscheduler.triggers.cron import CronTrigger
from celery.schedules import crontab
from croniter import croniter

BEGIN = datetime(2026, 6, 1, tzinfo=UTC)  # a Monday


def by_apscheduler(text):
    return CronTrigger.from_crontab(text, timezone=UTC).get_next_fire_time(None, BEGIN)


def by_celery(text):
    schedule = crontab.from_string(text)
    schedule.nowfun = lambda: BEGIN
    return BEGIN + schedule.remaining_estimate(BEGIN)


def by_croniter(text):
    return croniter(text, BEGIN).get_next(datetime)


seen = {}
for text in ("0 0 * * 0", "0 0 * * sun", "0 0 13 * fri"):
    seen[text] = [f"{read(text):%a %d.%m.}" for read in (by_croniter, by_apscheduler, by_celery)]
    print(f"{text:13} croniter {seen[text][0]}  APScheduler {seen[text][1]}  Celery {seen[text][2]}")
as_stated = seen == {
    "0 0 * * 0": ["Sun 07.06.", "Mon 01.06.", "Sun 07.06."],
    "0 0 * * sun": ["Sun 07.06."] * 3,
    "0 0 13 * fri": ["Fri 05.06.", "Fri 13.11.", "Fri 13.11."],
}
sys.exit(0 if as_stated else 1)
PYTHON
