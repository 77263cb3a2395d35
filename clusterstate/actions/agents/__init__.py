"""Reports of node agents: ``node_heartbeats``, and ``usage`` of memory and disk."""
