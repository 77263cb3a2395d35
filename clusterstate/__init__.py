"""The durable state of the cluster; the only user of the ORM."""
