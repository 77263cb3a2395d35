from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("clusterstate", "0032_seals")]
    operations = [
        migrations.CreateModel(
            name="Webhook",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.TextField(db_collation="C")),
                ("uid", models.UUIDField()),
                ("created_at", models.DateTimeField()),
                ("version", models.BigIntegerField(default=1)),
                ("spec", models.JSONField()),
                ("secret", models.TextField()),
                ("cursor", models.BigIntegerField()),
                ("failures", models.IntegerField(default=0)),
                ("next_at", models.DateTimeField(null=True)),
                ("moved_at", models.DateTimeField()),
                ("delivered", models.BigIntegerField(default=0)),
                ("refused", models.BigIntegerField(default=0)),
                ("lost", models.BigIntegerField(default=0)),
            ],
            options={
                "db_table": "webhook",
                "default_permissions": (),
                "constraints": [
                    models.UniqueConstraint(fields=["name"], name="webhook_name_unique")
                ],
            },
        ),
        migrations.CreateModel(
            name="WebhookDelivery",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("webhook_id", models.BigIntegerField()),
                ("at", models.DateTimeField()),
                ("first_event", models.TextField()),
                ("last_event", models.TextField()),
                ("events", models.IntegerField()),
                ("attempt", models.IntegerField()),
                ("outcome", models.TextField()),
                ("code", models.IntegerField()),
                ("error", models.TextField()),
                ("milliseconds", models.IntegerField()),
            ],
            options={
                "db_table": "webhook_delivery",
                "default_permissions": (),
                "indexes": [
                    models.Index(
                        fields=["webhook_id", "-id"], name="webhook_delivery_webhook"
                    )
                ],
            },
        ),
    ]
