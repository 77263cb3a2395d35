"""Who may do what: ``access`` (RBAC), ``certificates``, ``flow_control``."""
