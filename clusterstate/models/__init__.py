"""Tables and constraints, no behaviour."""
