"""See design in the package docstring."""
