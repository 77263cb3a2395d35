import re
import zlib
from importlib import import_module

import msgspec
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

# What migration 0047 did for stored documents, for the versions in packed history: a block's
# ``body`` has them one behind the other, and its ``index`` how long each is (the fifteenth column;
# -1: there is none). What else a block tells of its versions has no times.
possible_times = import_module(".0047_possible_times", __package__)
LENGTHS = 14
LEVEL = 6
MANY = 100
TIME = re.compile(rb':"([^"-]{4,16}-[^"-]{2,8}-[^"T]{2,8}T[^"]*)"')


def mended(index: bytes, body: bytes) -> tuple[bytes, bytes] | None:
    """Return index and body of a block with possible times; None where it has no others."""
    versions = zlib.decompress(body)
    times = {time.decode() for time in TIME.findall(versions)}
    if all(possible_times.nearest(time) == time for time in times):
        return None
    columns = msgspec.msgpack.decode(zlib.decompress(index))
    made, start = [], 0
    for place, length in enumerate(columns[LENGTHS]):
        if length < 0:
            continue
        made.append(possible_times.mended(versions[start : start + length].decode()).encode())
        columns[LENGTHS][place] = len(made[-1])
        start += length
    return (
        zlib.compress(msgspec.msgpack.encode(columns), LEVEL),
        zlib.compress(b"".join(made), LEVEL),
    )


def mend_all(apps: object, schema_editor: BaseDatabaseSchemaEditor) -> None:
    with schema_editor.connection.cursor() as cursor:
        last = 0
        while True:
            cursor.execute(
                "SELECT id, at, index, body FROM past_block WHERE id > %s AND body <> ''"
                " ORDER BY id LIMIT %s",
                [last, MANY],
            )
            found = cursor.fetchall()
            for last, at, index, body in found:
                if block := mended(index, body):
                    cursor.execute(
                        "UPDATE past_block SET index = %s, body = %s WHERE id = %s AND at = %s",
                        [*block, last, at],
                    )
            if len(found) < MANY:
                return


class Migration(migrations.Migration):
    dependencies = [("clusterstate", "0051_classes_of_groups")]
    operations = [migrations.RunPython(mend_all, migrations.RunPython.noop)]
