from django.db import migrations

# Both sequences give one value away here, so that last_value always means "given out", and both
# must keep CACHE 1: a cached range would hand out revisions below an announced low watermark.
FORWARD = """
CREATE SEQUENCE change_revision AS bigint CACHE 1;
SELECT nextval('change_revision');
CREATE SEQUENCE admission_epoch AS bigint CACHE 1;
SELECT nextval('admission_epoch');

-- Room for the new version of a row on its own page.
ALTER TABLE pod SET (fillfactor = 70);
ALTER TABLE pending_pod SET (fillfactor = 70);
ALTER TABLE node SET (fillfactor = 50);
-- Queues: small, but every row soon dies.
ALTER TABLE pending_pod SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
"""
BACKWARD = """
DROP SEQUENCE change_revision;
DROP SEQUENCE admission_epoch;
"""


class Migration(migrations.Migration):
    dependencies = [("clusterstate", "0001_initial")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
