"""Admin screens by noun; every save calls an action."""
