"""English is the only language."""
