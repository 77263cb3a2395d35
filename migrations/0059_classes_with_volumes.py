from django.db import migrations

INDEX = """
    CREATE INDEX CONCURRENTLY IF NOT EXISTS scheduling_class_volumes ON scheduling_class (id)
        WHERE spec LIKE '%"persistentVolumeClaim"%' OR spec LIKE '%"ephemeral"%'
"""


class Migration(migrations.Migration):
    """The classes of pods that may have claims of volumes are found without reading all classes."""

    atomic = False
    dependencies = [("clusterstate", "0058_tables_keep_their_pages")]

    operations = [
        migrations.RunSQL(INDEX, "DROP INDEX CONCURRENTLY IF EXISTS scheduling_class_volumes"),
    ]
