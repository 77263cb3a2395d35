"""HTTP: no rules of its own."""
