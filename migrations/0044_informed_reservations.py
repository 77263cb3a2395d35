from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('clusterstate', '0043_deferred_resize'),
    ]

    operations = [
        migrations.RemoveConstraint(model_name='reservation', name='reservation_step_known'),
        migrations.AddConstraint(
            model_name='reservation',
            constraint=models.CheckConstraint(
                condition=models.Q(
                    step__in=['waiting', 'binding', 'ready', 'bound', 'informed', 'refused']
                ),
                name='reservation_step_known',
            ),
        ),
    ]
