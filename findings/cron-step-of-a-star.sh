#!/bin/sh
# cronsim 2.8 and croniter 7.0.0.
# Guess: "0 0 */10 * 1" comes round on the same days everywhere.
# Behaviour: cronsim takes */10 for a star, so both days have to agree: Mondays that are the 1st, 11th,
# 21st or 31st. croniter takes it for a restriction, so either will do: every Monday, and every 1st,
# 11th, 21st and 31st. Kubernetes reads a schedule with robfig/cron v3, whose parser.go drops the mark of
# a star when a step above 1 follows: as croniter. A preview of a CronJob made with cronsim shows another
# calendar than the cluster keeps.
# What the product does: it reads schedules as robfig/cron does (clusterstate/objects/values/cron.py).
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "cronsim==2.8" "croniter==7.0.0"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from datetime import datetime

from cronsim import CronSim
from croniter import croniter

begin, text = datetime(2026, 6, 1), "0 0 */10 * 1"
strict, either = CronSim(text, begin), croniter(text, begin)
seen = (
    [next(strict).strftime("%d.%m.") for _ in range(3)],
    [either.get_next(datetime).strftime("%d.%m.") for _ in range(5)],
)
print("cronsim ", *seen[0])
print("croniter", *seen[1])
as_stated = seen == (
    ["31.08.", "21.09.", "21.12."],
    ["08.06.", "11.06.", "15.06.", "21.06.", "22.06."],
)
sys.exit(0 if as_stated else 1)
PYTHON
