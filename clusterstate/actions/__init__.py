"""The only writers: each function is one transaction that writes rows and appends to the log."""
