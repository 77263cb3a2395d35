from django.db import migrations, models


# Old code writes changes without it: then followers do not know for whom room is made, as before.
class Migration(migrations.Migration):
    dependencies = [("clusterstate", "0029_audit_log")]
    operations = [
        migrations.AddField(
            model_name="change",
            name="nominated_node_name",
            field=models.TextField(db_collation="C", null=True),
        ),
    ]
