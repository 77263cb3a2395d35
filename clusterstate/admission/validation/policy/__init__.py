"""Policy kinds: ``access`` (RBAC), ``certificates``, ``flow_control``."""
