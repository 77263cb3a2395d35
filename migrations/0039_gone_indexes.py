from django.db import migrations, models

# Who had to go for whom, and what became of an object that is gone, were looked for in the whole
# log. Of the log only deletions are indexed, so what comes and is bound pays nothing.
#
# Built while others write. Building may be killed and leave an index that nobody uses; so each is
# dropped before, and the migration may be run again after a kill at any point.
BUILD = {
    "change_gone_for": "(cause) WHERE cause IS NOT NULL AND (verb = 3 OR deletion_at IS NOT NULL)",
    "change_gone": "(kind, namespace, name, revision) WHERE verb = 3",
}


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("clusterstate", "0038_canaries")]
    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    [
                        f"DROP INDEX CONCURRENTLY IF EXISTS {name}",
                        f"CREATE INDEX CONCURRENTLY {name} ON change {of}",
                    ],
                    [f"DROP INDEX CONCURRENTLY IF EXISTS {name}"],
                )
                for name, of in BUILD.items()
            ],
            state_operations=[
                migrations.AddIndex(
                    model_name="change",
                    index=models.Index(
                        fields=["cause"],
                        condition=models.Q(cause__isnull=False)
                        & (models.Q(verb=3) | models.Q(deletion_at__isnull=False)),
                        name="change_gone_for",
                    ),
                ),
                migrations.AddIndex(
                    model_name="change",
                    index=models.Index(
                        fields=["kind", "namespace", "name", "revision"],
                        condition=models.Q(verb=3),
                        name="change_gone",
                    ),
                ),
            ],
        ),
    ]
