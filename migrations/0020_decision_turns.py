from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("clusterstate", "0019_history_mark")]
    operations = [
        migrations.CreateModel(
            name="Scheduler",
            fields=[
                ("id", models.SmallIntegerField(primary_key=True, serialize=False)),
                ("epoch", models.BigIntegerField(default=0)),
            ],
            options={"db_table": "scheduler"},
        ),
        migrations.AddField(
            model_name="decision",
            name="scheduler",
            field=models.SmallIntegerField(db_default=0),
        ),
        migrations.AddField(
            model_name="decision",
            name="epoch",
            field=models.BigIntegerField(db_default=0),
        ),
        migrations.AddField(
            model_name="decision",
            name="number",
            field=models.BigIntegerField(db_default=0),
        ),
    ]
