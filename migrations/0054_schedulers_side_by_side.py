from django.db import migrations, models

# A class with hard rules about other pods: `actions.pods.bind` tells what the number is for. The
# lock is `locks.PLACEMENT`, shared: whoever binds holds it exclusively, and so sees the number as
# soon as a pod of the class can be seen. A class of which the text only looks as if it had such
# rules costs a look at the classes, and nothing else.
FORWARD = """
CREATE SEQUENCE reach_seq AS bigint CACHE 1;
SELECT nextval('reach_seq');

CREATE FUNCTION class_reaches(spec text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN spec LIKE '%"podAffinity"%' OR spec LIKE '%"podAntiAffinity"%'
       OR spec LIKE '%"DoNotSchedule"%';

CREATE FUNCTION note_reach() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared((x'5358'::bigint << 48) + 2);
    PERFORM nextval('reach_seq');
    RETURN NULL;
END $$;

CREATE TRIGGER scheduling_class_reaches AFTER INSERT ON scheduling_class FOR EACH ROW
WHEN (class_reaches(NEW.spec)) EXECUTE FUNCTION note_reach();

CREATE FUNCTION forget_node_binder() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM node_binder WHERE node_id IN (SELECT id FROM removed);
    RETURN NULL;
END $$;

CREATE TRIGGER node_binder_forgotten AFTER DELETE ON node REFERENCING OLD TABLE AS removed
FOR EACH STATEMENT EXECUTE FUNCTION forget_node_binder();

-- Each bind writes them, so there is room for the new version of a row on its own page.
ALTER TABLE node_binder SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02,
                             autovacuum_vacuum_threshold = 1000);

INSERT INTO binder (id, holder, revision)
SELECT n, '', revision FROM binder, unnest(ARRAY[2, 3]) n WHERE id = 1;
"""
BACKWARD = """
DELETE FROM binder WHERE id IN (2, 3);
DROP TRIGGER node_binder_forgotten ON node;
DROP FUNCTION forget_node_binder();
DROP TRIGGER scheduling_class_reaches ON scheduling_class;
DROP FUNCTION note_reach();
DROP FUNCTION class_reaches(text);
DROP SEQUENCE reach_seq;
"""


class Migration(migrations.Migration):
    dependencies = [("clusterstate", "0053_atomic_spans")]

    operations = [
        migrations.RemoveConstraint(model_name="binder", name="binder_one_row"),
        migrations.AddConstraint(
            model_name="binder",
            constraint=models.CheckConstraint(
                condition=models.Q(("pk__in", [1, 2, 3])), name="binder_three_rows"
            ),
        ),
        migrations.CreateModel(
            name="NodeBinder",
            fields=[
                ("node_id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("holder", models.TextField()),
                ("revision", models.BigIntegerField()),
            ],
            options={"db_table": "node_binder"},
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
