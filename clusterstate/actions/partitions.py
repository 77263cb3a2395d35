"""Partitions of the tables that grow with time: made and dropped while others read and write.

``CREATE TABLE ... PARTITION OF`` wants the parent for itself: it waits for every transaction that
has read any of its rows, a backup of minutes, and all writers wait behind it, the scheduler too. A
table that is made alone and then attached asks for no more than VACUUM does. To drop one needs the
parent, too, and can be done later.
"""

from clusterstate import sql

_MAKE = """DO $$ BEGIN
    PERFORM pg_advisory_xact_lock({lock});
    IF to_regclass('{name}') IS NULL THEN
        CREATE TABLE {name} (LIKE {parent} INCLUDING DEFAULTS INCLUDING CONSTRAINTS
                             INCLUDING STORAGE INCLUDING COMPRESSION) {options};
        ALTER TABLE {parent} ATTACH PARTITION {name} FOR VALUES FROM ('{first}') TO ('{end}');
    END IF;
END $$"""


def make(*, parent: str, name: str, first: str, end: str, lock: int, options: str = "") -> None:
    """Make the partition ``name`` of rows from ``first`` to before ``end``, unless it is there.

    ``lock``: the advisory lock of who makes partitions of this parent. One statement.
    """
    sql.run(
        _MAKE.format(lock=lock, name=name, parent=parent, first=first, end=end, options=options)
    )
