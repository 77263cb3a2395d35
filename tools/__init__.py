"""Programs for developers: they write files of the project and run in no service."""
