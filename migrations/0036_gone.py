import django.contrib.postgres.indexes
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models

# Who had to go for whom, and what became of an object that is gone, were looked for in the whole
# log. Of the log only deletions are indexed, so what comes and is bound pays nothing.


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("clusterstate", "0035_brakes")]
    operations = [
        AddIndexConcurrently(
            model_name="change",
            index=models.Index(
                fields=["cause"],
                condition=models.Q(cause__isnull=False)
                & (models.Q(verb=3) | models.Q(deletion_at__isnull=False)),
                name="change_gone_for",
            ),
        ),
        AddIndexConcurrently(
            model_name="change",
            index=models.Index(
                fields=["kind", "namespace", "name", "revision"],
                condition=models.Q(verb=3),
                name="change_gone",
            ),
        ),
        # Partitioned tables have no concurrent way; a BRIN index is built by reading them once.
        migrations.AddIndex(
            model_name="decision",
            index=django.contrib.postgres.indexes.BrinIndex(
                fields=["at"], pages_per_range=16, autosummarize=True, name="decision_at"
            ),
        ),
        migrations.AddField(
            model_name="pastblock", name="causes", field=models.BinaryField(null=True)
        ),
        migrations.RunSQL(
            "ALTER TABLE past_block ALTER causes SET STORAGE EXTERNAL", migrations.RunSQL.noop
        ),
    ]
