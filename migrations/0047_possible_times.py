import json
import re
from calendar import monthrange

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

# A version of before stored times that no calendar has, such as 2026-02-30T00:00:00Z. Typed clients
# fail on every list that holds one. Each becomes the nearest moment that there is: the last day of
# its month, the last hour of its day, the last second of its minute.
#
# Documents are changed where they stand, without a new revision: the objects say what they said.
# Times are found by the name of their field; members that are free for anything are left alone.
TIMES = frozenset((
    "acquireTime", "allocationTimestamp", "completionTime", "creationTimestamp",
    "deletionTimestamp", "eventTime", "finishedAt", "firstTimestamp", "lastHeartbeatTime",
    "lastObservedTime", "lastPhaseTransitionTime", "lastProbeTime", "lastScaleTime",
    "lastScheduleTime", "lastSuccessfulTime", "lastTimestamp", "lastTransitionTime",
    "lastUpdateTime", "renewTime", "startTime", "startedAt", "time", "timeAdded",
))  # fmt: skip
TIMES_OF_MEMBERS = frozenset(["disruptedPods"])
FREE = frozenset((
    "allocatedResourceStatuses", "annotations", "attachmentMetadata", "binaryData", "data",
    "deprecatedTopology", "fieldsV1", "labels", "matchLabels", "nodeSelector", "options",
    "parameters", "selector", "stringData", "userAnnotations", "volumeAttributes",
))  # fmt: skip
POSSIBLE = (
    "([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    "|02-(0[1-9]|1[0-9]|2[0-8]))"
    "|([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)"
    "T([01][0-9]|2[0-3])(:[0-5][0-9]){2}([.][0-9]+)?(Z|[+-]([01][0-9]|2[0-4]):[0-5][0-9])"
)
ONCE_A_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)\s*")
IS_POSSIBLE = re.compile(POSSIBLE)
SUSPICIOUS = f'"({"|".join(sorted(TIMES))})":"(?!{POSSIBLE}")|"disruptedPods":[{{]"'
TEXTS = (
    ("document", "id", "text"),
    ("pod", "id", "unschedulable"),
    ("change", "revision", "unschedulable"),
    ("change", "revision", "previous_unschedulable"),
)
MANY = 500


def nearest(text: str) -> str:
    """Return the possible time that is nearest to what was taken for one; other texts as they are."""
    match = ONCE_A_TIME.fullmatch(text)
    if match is None or IS_POSSIBLE.fullmatch(text):
        return text
    year, month, day, hour, minute, second = map(int, match.groups()[:6])
    month = min(max(month, 1), 12)
    last = monthrange(year or 4, month)[1]
    day = min(max(day, 1), last)
    if hour > 23:
        hour, minute, second = 23, 59, 59
    minute, second = min(minute, 59), min(second, 59)
    fraction = "." + "".join(str(int(digit)) for digit in match[7][1:]) if match[7] else ""
    zone = match[8]
    if zone != "Z":
        zone = f"{zone[0]}{min(int(zone[1:3]), 24):02d}:{min(int(zone[4:]), 59):02d}"
    return f"{year:04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}{fraction}{zone}"


def mended(text: str) -> str:
    """Return a stored text in which times are possible.

    Its slots, control characters between members, stay where they are.
    """
    made, done = [], 0
    above = []  # keys that lead here; None for the place in a list
    key, is_key = None, False
    for token in TOKENS.finditer(text):
        found = token[0]
        if found in "{[":
            above.append(key)
            key, is_key = None, found == "{"
        elif found in "}]":
            key, is_key = above.pop(), False
        elif found == ",":
            is_key = key is not None
        elif found == ":":
            is_key = False
        elif is_key:
            key = json.loads(found)
        elif (key in TIMES or above[-1] in TIMES_OF_MEMBERS) and not FREE.intersection(above):
            made += (text[done : token.start()], json.dumps(nearest(json.loads(found))))
            done = token.end()
    return "".join([*made, text[done:]])


TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]')


def mend_all(apps: object, schema_editor: BaseDatabaseSchemaEditor) -> None:
    with schema_editor.connection.cursor() as cursor:
        for table, key, column in TEXTS:
            cursor.execute(
                f"SELECT {key} FROM {table} WHERE {column} ~ %s ORDER BY {key}",  # noqa: S608  # above
                [SUSPICIOUS],
            )
            found = [row[0] for row in cursor]
            for start in range(0, len(found), MANY):
                cursor.execute(
                    f"SELECT {key}, {column} FROM {table} WHERE {key} = ANY(%s)",  # noqa: S608
                    [found[start : start + MANY]],
                )
                wrong = [(mended(text), at) for at, text in cursor if mended(text) != text]
                cursor.executemany(
                    f"UPDATE {table} SET {column} = %s WHERE {key} = %s",  # noqa: S608
                    wrong,
                )


class Migration(migrations.Migration):
    dependencies = [("clusterstate", "0046_loop_patience")]
    operations = [migrations.RunPython(mend_all, migrations.RunPython.noop)]
