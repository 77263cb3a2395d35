import django.contrib.postgres.indexes
from django.db import migrations, models

# Decisions are looked for by when they were made, packed changes by the pod that room was made for.
#
# What was dropped from the old end of the chain over decisions is said by a seal of the chain. A
# chain that was trimmed by a version of before says so now.
SAY_WHAT_WAS_DROPPED = """
WITH said AS (
    SELECT h.*, (extract(epoch FROM h.trimmed_at) * 1000000)::bigint || ' ' || h.trimmed_id || ' '
        || h.trimmed_decision || ' ' || encode(h.trimmed_digest, 'hex') AS dropped
    FROM seal_head h WHERE h.trimmed_at IS NOT NULL),
summed AS (SELECT said.*, sha256(convert_to(dropped, 'UTF8')) AS rows_digest FROM said),
made AS (
    SELECT summed.*, sha256(summed.digest || convert_to(sealed_decision || ' 0 ', 'UTF8')
                            || rows_digest) AS next
    FROM summed),
moved AS (
    UPDATE seal_head h SET last_id = h.last_id + 1, digest = made.next
    FROM made WHERE h.id = made.id)
INSERT INTO decision_seal (id, last_id, decisions, first_at, last_at, rows_digest, digest, dropped)
SELECT last_id + 1, sealed_decision, 0, now(), now(), rows_digest, next, dropped FROM made
"""


class Migration(migrations.Migration):
    dependencies = [("clusterstate", "0035_brakes")]
    operations = [
        # Partitioned tables have no concurrent way; a BRIN index is built by reading them once.
        migrations.AddIndex(
            model_name="decision",
            index=django.contrib.postgres.indexes.BrinIndex(
                fields=["at"], pages_per_range=16, name="decision_at"
            ),
        ),
        migrations.AddField(
            model_name="pastblock", name="causes", field=models.BinaryField(null=True)
        ),
        migrations.RunSQL(
            "ALTER TABLE past_block ALTER causes SET STORAGE EXTERNAL", migrations.RunSQL.noop
        ),
        migrations.AddField(
            model_name="decisionseal", name="dropped", field=models.TextField(null=True)
        ),
        migrations.RunSQL(SAY_WHAT_WAS_DROPPED, migrations.RunSQL.noop),
    ]
