"""What agents of nodes report: ``node_heartbeats`` (signs of life), ``usage`` (memory, disk)."""
