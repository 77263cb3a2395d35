from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("clusterstate", "0031_past")]
    operations = [
        migrations.CreateModel(
            name="DecisionSeal",
            fields=[
                ("id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("last_id", models.BigIntegerField()),
                ("decisions", models.IntegerField()),
                ("first_at", models.DateTimeField()),
                ("last_at", models.DateTimeField()),
                ("rows_digest", models.BinaryField()),
                ("digest", models.BinaryField()),
            ],
            options={"db_table": "decision_seal"},
        ),
        migrations.CreateModel(
            name="SealHead",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("last_id", models.BigIntegerField(default=0)),
                ("sealed_decision", models.BigIntegerField(default=0)),
                ("digest", models.BinaryField(default=b"")),
                ("trimmed_id", models.BigIntegerField(default=0)),
                ("trimmed_digest", models.BinaryField(default=b"")),
                ("trimmed_decision", models.BigIntegerField(default=0)),
                ("trimmed_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "seal_head",
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("pk", 1)), name="seal_head_one_row")
                ],
            },
        ),
    ]
