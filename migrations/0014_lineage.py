from django.contrib.postgres.functions import RandomUUID
from django.db import migrations, models

# The marker is unlogged so that crash recovery and promotion reset it (`clusterstate.lineage`).
FORWARD = """
CREATE UNLOGGED SEQUENCE revisions_open AS bigint CACHE 1;

CREATE FUNCTION revisions_closed() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the database has crashed or moved: its revisions are being secured'
        USING ERRCODE = '57P03', HINT = 'Try again in a second, or run manage.py prepare.';
END $$;
"""
BACKWARD = """
DROP FUNCTION revisions_closed();
DROP SEQUENCE revisions_open;
"""


class Migration(migrations.Migration):
    dependencies = [("clusterstate", "0013_pod_bound_at")]
    operations = [
        migrations.AddField(
            model_name="history",
            name="uid",
            field=models.UUIDField(db_default=RandomUUID()),
        ),
        migrations.AddField(
            model_name="history",
            name="ceiling",
            field=models.BigIntegerField(db_default=0),
        ),
        migrations.AddField(
            model_name="history",
            name="first_revision",
            field=models.BigIntegerField(db_default=0),
        ),
        migrations.AddField(
            model_name="history",
            name="place",
            field=models.TextField(db_default=""),
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
