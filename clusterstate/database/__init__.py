"""PostgreSQL: statements, locks, sessions, bulk reads, backup files.

::

    postgres         sessions that notice a silent server (Django's database backend)
    sql              prepared statements with binary parameters and results
    locks            the keys of all advisory locks
    sessions         ends sessions that block the service
    schema           whether the database has the tables of this version
    bulk             a million rows as NumPy columns, by COPY
    archive, arrow   the format of backup files; tables as an Arrow stream
"""
