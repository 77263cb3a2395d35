"""What ends, is cut off or is killed while the service works, and what that must not do."""

import pytest

# One worker has all: each starts a service of its own.
MARKS = [
    pytest.mark.db,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("faults"),
]
