from django.db import migrations, models

# Rows that say a part of an object's document (`clusterstate.models`): taints, and of a RuntimeClass
# handler, scheduling and overhead. Whoever writes such a row, whichever way, has it composed into a
# new version of the document when the transaction commits, with a revision and an entry in the log.
# An action writes both sides itself; then nothing differs and nothing is written.
#
# Codes and lock keys are those of `clusterstate.changes`; tests hold both together.
FORWARD = r"""
-- A document's members behind "metadata", which ends with the slot of the resourceVersion.
CREATE FUNCTION document_rest(given text) RETURNS json LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE substr(split_part(given, chr(1), 2), 3, 1)
           WHEN ',' THEN ('{' || substr(split_part(given, chr(1), 2), 4))::json
           ELSE '{}'::json END
$$;

-- An object with one member replaced, or without it (NULL): compact, and sorted as documents are.
CREATE FUNCTION json_put(object json, name text, member text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT '{' || coalesce(
        string_agg(to_json(m.key)::text || ':' || m.text, ',' ORDER BY m.key COLLATE "C"), ''
    ) || '}'
    FROM (SELECT e.key, e.value::text AS text
          FROM json_each(CASE json_typeof(object) WHEN 'object' THEN object ELSE '{}'::json END) e
          WHERE e.key <> name
          UNION ALL SELECT name, member WHERE member IS NOT NULL) m
$$;

CREATE FUNCTION document_put(given text, name text, member text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT split_part(given, chr(1), 1) || chr(1) || '"}'
        || CASE put.text WHEN '{}' THEN '}' ELSE ',' || substr(put.text, 2) END
    FROM (SELECT json_put(document_rest(given), name, member) AS text) put
$$;

-- JSON as documents write it: compact, members sorted by code point.
CREATE FUNCTION canonical_json(given jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN CASE jsonb_typeof(given)
    WHEN 'object' THEN '{' || coalesce((
        SELECT string_agg(to_json(e.key)::text || ':' || canonical_json(e.value), ','
                          ORDER BY e.key COLLATE "C")
        FROM jsonb_each(given) e), '') || '}'
    WHEN 'array' THEN '[' || coalesce((
        SELECT string_agg(canonical_json(e.value), ',' ORDER BY e.place)
        FROM jsonb_array_elements(given) WITH ORDINALITY AS e(value, place)), '') || ']'
    ELSE given::text END;
END $$;

-- A revision, taken as every writer takes it: the low watermark's lock first.
CREATE FUNCTION next_revision() RETURNS bigint LANGUAGE plpgsql AS $$
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

-- A new version of a locked object without a namespace: document, row, log.
CREATE FUNCTION write_version(class regclass, code smallint, object bigint, new_text text)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    old record;
    new_revision bigint := next_revision();
    new_document bigint;
BEGIN
    EXECUTE format('SELECT name, document_id, revision, deletion_at FROM %s WHERE id = $1', class)
        INTO old USING object;
    INSERT INTO document (text) VALUES (new_text) RETURNING id INTO new_document;
    EXECUTE format('UPDATE %s SET document_id = $2, revision = $3 WHERE id = $1', class)
        USING object, new_document, new_revision;
    INSERT INTO superseded_document (document_id, revision)
        VALUES (old.document_id, new_revision);
    INSERT INTO change (revision, at, kind, verb, object_id, namespace, name, document_id,
                        previous_document_id, previous_revision, deletion_at)
        VALUES (new_revision, clock_timestamp(), code, 2, object, '', old.name, new_document,
                old.document_id, old.revision, old.deletion_at);
END $$;


-- Taints -----------------------------------------------------------------------------------------

-- A node's taints as its document writes them, NULL for none.
CREATE FUNCTION taints_json(node bigint) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT '[' || string_agg(
        '{"effect":' || to_json(t.effect)::text || ',"key":' || to_json(t.key)::text
        || coalesce(',"timeAdded":"'
                    || to_char(t.added_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') || '"', '')
        || CASE t.value WHEN '' THEN '' ELSE ',"value":' || to_json(t.value)::text END || '}',
        ',' ORDER BY t.position, t.id) || ']'
    FROM taint t WHERE t.node_id = node
$$;

-- What a row may leave out when it is written by hand.
CREATE FUNCTION complete_taint() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF NEW.position IS NULL THEN
        NEW.position := 1 + coalesce(
            (SELECT max(t.position) FROM taint t WHERE t.node_id = NEW.node_id), 0);
    END IF;
    IF NEW.added_at IS NULL AND NEW.effect = 'NoExecute' THEN
        NEW.added_at := clock_timestamp();
    END IF;
    NEW.added_at := date_trunc('second', NEW.added_at);
    RETURN NEW;
END $$;

CREATE TRIGGER taint_complete BEFORE INSERT OR UPDATE ON taint FOR EACH ROW
WHEN (NEW.position IS NULL OR (NEW.added_at IS NULL AND NEW.effect = 'NoExecute')
      OR NEW.added_at <> date_trunc('second', NEW.added_at))
EXECUTE FUNCTION complete_taint();

CREATE FUNCTION compose_node(node_id bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    current text;
    wanted text;
BEGIN
    SELECT document_rest(d.text) -> 'spec' ->> 'taints', taints_json(n.id) INTO current, wanted
    FROM node n JOIN document d ON d.id = n.document_id WHERE n.id = node_id;
    IF current IS NOT DISTINCT FROM wanted THEN
        RETURN;
    END IF;
    -- A bind that was decided before must wait, or be refused: the order of locks of all writers.
    PERFORM pg_advisory_xact_lock_shared((x'5358'::bigint << 48) + 2);
    PERFORM 1 FROM node n WHERE n.id = node_id FOR NO KEY UPDATE;
    SELECT d.text, taints_json(n.id) INTO current, wanted
    FROM node n JOIN document d ON d.id = n.document_id WHERE n.id = node_id;
    IF NOT FOUND OR (document_rest(current) -> 'spec' ->> 'taints') IS NOT DISTINCT FROM wanted THEN
        RETURN;
    END IF;
    PERFORM write_version('node', 2::smallint, node_id, document_put(
        current, 'spec', json_put(document_rest(current) -> 'spec', 'taints', wanted)));
    UPDATE node n SET placement_revision = n.revision WHERE n.id = node_id;
END $$;

CREATE FUNCTION compose_tainted_node() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP <> 'DELETE' THEN
        PERFORM compose_node(NEW.node_id);
    END IF;
    IF TG_OP = 'DELETE' OR (TG_OP = 'UPDATE' AND OLD.node_id <> NEW.node_id) THEN
        PERFORM compose_node(OLD.node_id);
    END IF;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER taint_composed AFTER INSERT OR UPDATE OR DELETE ON taint
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION compose_tainted_node();


-- RuntimeClasses ---------------------------------------------------------------------------------

UPDATE runtime_class c
SET scheduling = nullif((document_rest(d.text) -> 'scheduling')::jsonb, 'null'),
    overhead = nullif((document_rest(d.text) -> 'overhead')::jsonb, 'null')
FROM document d WHERE d.id = c.document_id;

-- A new document fills the columns; columns that are written by themselves make a new document.
CREATE FUNCTION compose_runtime_class() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    stored record;
    rest json;
    composed text;
BEGIN
    PERFORM 1 FROM runtime_class c WHERE c.id = NEW.id FOR NO KEY UPDATE;
    SELECT c.*, d.text INTO stored
    FROM runtime_class c JOIN document d ON d.id = c.document_id WHERE c.id = NEW.id;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    rest := document_rest(stored.text);
    IF stored.handler = coalesce(rest ->> 'handler', '')
        AND stored.scheduling IS NOT DISTINCT FROM nullif((rest -> 'scheduling')::jsonb, 'null')
        AND stored.overhead IS NOT DISTINCT FROM nullif((rest -> 'overhead')::jsonb, 'null') THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'INSERT' OR OLD.document_id <> NEW.document_id THEN
        UPDATE runtime_class c
        SET handler = coalesce(rest ->> 'handler', ''),
            scheduling = nullif((rest -> 'scheduling')::jsonb, 'null'),
            overhead = nullif((rest -> 'overhead')::jsonb, 'null')
        WHERE c.id = NEW.id;
        RETURN NULL;
    END IF;
    PERFORM pg_advisory_xact_lock((x'5358'::bigint << 48) + 1);
    composed := document_put(stored.text, 'handler', to_json(stored.handler)::text);
    composed := document_put(composed, 'scheduling', canonical_json(stored.scheduling));
    composed := document_put(composed, 'overhead', canonical_json(stored.overhead));
    PERFORM write_version('runtime_class', 4::smallint, stored.id, composed);
    PERFORM nextval('admission_epoch');
    PERFORM pg_logical_emit_message(false, 'stowage', 'admission epoch', true);
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER runtime_class_composed AFTER INSERT OR UPDATE ON runtime_class
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION compose_runtime_class();
"""
BACKWARD = """
DROP TRIGGER runtime_class_composed ON runtime_class;
DROP FUNCTION compose_runtime_class();
DROP TRIGGER taint_composed ON taint;
DROP FUNCTION compose_tainted_node();
DROP FUNCTION compose_node(bigint);
DROP TRIGGER taint_complete ON taint;
DROP FUNCTION complete_taint();
DROP FUNCTION taints_json(bigint);
DROP FUNCTION write_version(regclass, smallint, bigint, text);
DROP FUNCTION next_revision();
DROP FUNCTION canonical_json(jsonb);
DROP FUNCTION document_put(text, text, text);
DROP FUNCTION json_put(json, text, text);
DROP FUNCTION document_rest(text);
"""
# The rules of admission, so that what is written by hand is not what admission would refuse.
PART = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
PREFIX = "[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*"


class Migration(migrations.Migration):
    dependencies = [("clusterstate", "0020_decision_turns")]
    operations = [
        migrations.AddField(
            model_name="runtimeclass", name="scheduling", field=models.JSONField(null=True)
        ),
        migrations.AddField(
            model_name="runtimeclass", name="overhead", field=models.JSONField(null=True)
        ),
        migrations.AlterField(
            model_name="taint", name="value", field=models.TextField(default="", db_default="")
        ),
        migrations.AddConstraint(
            model_name="taint",
            constraint=models.CheckConstraint(
                condition=models.Q(("key__regex", f"^({PREFIX}/)?{PART}$")), name="taint_key_valid"
            ),
        ),
        migrations.AddConstraint(
            model_name="taint",
            constraint=models.CheckConstraint(
                condition=models.Q(("value__regex", f"^({PART})?$")), name="taint_value_valid"
            ),
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
