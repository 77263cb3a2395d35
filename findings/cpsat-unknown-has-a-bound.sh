#!/bin/sh
# OR-tools 9.15.6755, CP-SAT.
# Guess: a solver that was stopped before it knew anything has no bound, or an infinite one.
# Behaviour: status UNKNOWN comes with best_objective_bound 0.0, which reads like a proof when the
# objective is minimised and cannot be negative, and like nonsense when it is maximised.
# What the product does: a bound counts only with status FEASIBLE or OPTIMAL.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "ortools==9.15.6755"
"$folder/venv/bin/python" - <<'PY'
import sys

from ortools.sat.python import cp_model

model = cp_model.CpModel()
taken = [model.new_bool_var("") for _ in range(2000)]
for first in range(0, 2000, 3):
    model.add_at_most_one(taken[first : first + 7])
model.add(sum(taken) >= 10)
model.maximize(sum((n % 13 + 1) * one for n, one in enumerate(taken)))
solver = cp_model.CpSolver()
solver.parameters.num_workers = 1
solver.parameters.max_time_in_seconds = 0.0
status = solver.status_name(solver.solve(model))
print(status, solver.best_objective_bound)
sys.exit((status, solver.best_objective_bound) != ("UNKNOWN", 0.0))
PY
