from django.db import migrations

INDEX = """
    CREATE INDEX CONCURRENTLY IF NOT EXISTS scheduling_class_reaching ON scheduling_class (id)
        WHERE class_reaches(spec)
"""


class Migration(migrations.Migration):
    """The classes with hard rules about other pods are found without reading all classes."""

    atomic = False
    dependencies = [("clusterstate", "0054_schedulers_side_by_side")]

    operations = [
        migrations.RunSQL(INDEX, "DROP INDEX CONCURRENTLY IF EXISTS scheduling_class_reaching"),
    ]
