from django.db import migrations

INDEX = """
    CREATE INDEX CONCURRENTLY IF NOT EXISTS scheduling_class_group ON scheduling_class
        (namespace, (spec::jsonb #>> '{spec,schedulingGroup,podGroupName}'))
        WHERE spec LIKE '%"schedulingGroup"%'
"""


class Migration(migrations.Migration):
    """The classes of the pods of a PodGroup are found without reading all classes."""

    atomic = False
    dependencies = [("clusterstate", "0050_decision_check")]

    operations = [
        migrations.RunSQL(INDEX, "DROP INDEX CONCURRENTLY IF EXISTS scheduling_class_group"),
    ]
