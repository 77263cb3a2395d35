from django.db import migrations

# PostgreSQL 18 cannot read an UNLOGGED sequence on a server that was promoted before its first
# restartpoint: a standby replays the page that promotion shall restore, but does not write it to
# the disk from which promotion copies. An unlogged table without an index is restored as an empty
# file, which is there as soon as it is replayed (`clusterstate.lineage`).
#
# `revisions_open` stays for processes of the version before, which ask it until they are replaced.
# Where it cannot be read already, it is made anew, so that they work again as well.
FORWARD = """
CREATE UNLOGGED TABLE revisions_marker (opened_at timestamptz NOT NULL);

CREATE FUNCTION revisions_are_open() RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF pg_is_in_recovery() THEN  -- an unlogged table cannot even be named there
        RETURN false;
    END IF;
    RETURN EXISTS (SELECT FROM revisions_marker);
END $$;

CREATE FUNCTION open_revisions() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO revisions_marker
        SELECT clock_timestamp() WHERE NOT EXISTS (SELECT FROM revisions_marker);
    BEGIN
        PERFORM setval('revisions_open', 1);
    EXCEPTION WHEN internal_error OR data_corrupted THEN
        DROP SEQUENCE revisions_open;
        CREATE UNLOGGED SEQUENCE revisions_open AS bigint CACHE 1;
        PERFORM setval('revisions_open', 1);
    END;
END $$;

-- The numbers stay open where they are, and closed where nobody can tell.
DO $$
BEGIN
    IF pg_sequence_last_value('revisions_open') IS NOT NULL THEN
        INSERT INTO revisions_marker VALUES (clock_timestamp());
    END IF;
EXCEPTION WHEN internal_error OR data_corrupted THEN
    DROP SEQUENCE revisions_open;
    CREATE UNLOGGED SEQUENCE revisions_open AS bigint CACHE 1;
END $$;

CREATE OR REPLACE FUNCTION next_revision() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('stowage.opened', true) IS DISTINCT FROM '1' THEN
        IF NOT revisions_are_open() THEN
            PERFORM revisions_closed();
        END IF;
        PERFORM pg_advisory_xact_lock_shared(
            (x'5357'::bigint << 48) + pg_sequence_last_value('change_revision'));
        PERFORM set_config('stowage.opened', '1', true);
    END IF;
    RETURN nextval('change_revision');
END $$;
"""
BACKWARD = """
CREATE OR REPLACE FUNCTION next_revision() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('stowage.opened', true) IS DISTINCT FROM '1' THEN
        IF pg_sequence_last_value('revisions_open') IS NULL THEN
            PERFORM revisions_closed();
        END IF;
        PERFORM pg_advisory_xact_lock_shared(
            (x'5357'::bigint << 48) + pg_sequence_last_value('change_revision'));
        PERFORM set_config('stowage.opened', '1', true);
    END IF;
    RETURN nextval('change_revision');
END $$;
DROP FUNCTION open_revisions();
DROP FUNCTION revisions_are_open();
DROP TABLE revisions_marker;
"""


class Migration(migrations.Migration):
    dependencies = [("clusterstate", "0044_informed_reservations")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
