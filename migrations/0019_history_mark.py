from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("clusterstate", "0018_token_identities")]
    operations = [
        migrations.AddField(
            model_name="history",
            name="mark",
            field=models.BigIntegerField(db_default=0),
        ),
    ]
