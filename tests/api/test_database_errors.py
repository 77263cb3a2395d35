"""What the database says that is not about the request becomes a sentence that is."""

import errno
import os

import psycopg
import pytest
from django.db import OperationalError

from api.forms import errors


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "status", "part"),
    [
        (psycopg.errors.DiskFull("could not extend file"), 507, "the disk is full"),
        (psycopg.errors.InternalError_("could not extend file: Disk quota exceeded"), 507, "full"),
        (psycopg.errors.InternalError_("could not extend file: File too large"), 507, "full"),
        (psycopg.errors.IoError("could not fsync: No space left on device"), 507, "full"),
        (psycopg.errors.IoError("could not read block 3"), 503, "read or write its disk"),
        (psycopg.errors.OutOfMemory("out of memory"), 503, "no memory left"),
        (psycopg.errors.TooManyConnections("sorry"), 503, "no connection left"),
        (psycopg.errors.ReadOnlySqlTransaction("cannot execute INSERT"), 503, "is read-only"),
        (psycopg.errors.QueryCanceled("statement timeout"), 503, "took too long"),
        (psycopg.errors.LockNotAvailable("lock timeout"), 503, "locked for too long"),
        (psycopg.errors.CannotConnectNow("starting up"), 503, "is recovering from a crash"),
    ],
)
def test_what_the_database_runs_out_of_is_told(error, status, part):
    for raised in (error, caused(OperationalError(str(error)), error)):
        found = errors.translate(raised)
        assert (found.code, found.details["retryAfterSeconds"] > 0) == (status, True)
        assert part in found.message


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_file_that_finds_no_room_is_a_507(number):
    assert errors.translate(OSError(number, os.strerror(number))).code == 507


def test_a_defect_of_the_database_is_still_a_500():
    assert errors.translate(psycopg.errors.InternalError_("cache lookup failed")).code == 500
