"""PostgreSQL: statements, locks, sessions, bulk reads, backup files.

::

    postgres         sessions that notice a silent server (Django's database backend)
    sql              prepared statements with binary parameters and results
    locks            every advisory lock
    sessions         ends sessions that hold up everybody else
    schema           whether the database has the tables of this version
    bulk             a million rows as NumPy columns, by COPY
    archive, arrow   the file that a backup is; tables as an Arrow stream
"""
