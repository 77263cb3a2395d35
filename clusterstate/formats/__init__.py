"""How the admin writes times: the same everywhere, in the order in which they sort."""
