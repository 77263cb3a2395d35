from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("clusterstate", "0028_arrival_revision")]
    operations = [
        migrations.CreateModel(
            name="AuditHead",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("last_id", models.BigIntegerField(default=0)),
                ("digest", models.BinaryField(default=b"")),
                ("trimmed_id", models.BigIntegerField(default=0)),
                ("trimmed_digest", models.BinaryField(default=b"")),
            ],
            options={
                "db_table": "audit_head",
                "default_permissions": (),
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("pk", 1)), name="audit_head_one_row"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="AuditLine",
            fields=[
                ("id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("at", models.DateTimeField()),
                ("audit_id", models.UUIDField()),
                ("username", models.TextField(db_collation="C")),
                ("verb", models.TextField(db_collation="C")),
                ("resource", models.TextField(db_collation="C")),
                ("namespace", models.TextField(db_collation="C")),
                ("name", models.TextField(db_collation="C")),
                ("code", models.SmallIntegerField()),
                ("line", models.TextField()),
                ("digest", models.BinaryField()),
            ],
            options={
                "verbose_name": "audit line",
                "db_table": "audit_line",
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(fields=["username", "id"], name="audit_line_username"),
                    models.Index(fields=["audit_id"], name="audit_line_audit_id"),
                ],
            },
        ),
    ]
