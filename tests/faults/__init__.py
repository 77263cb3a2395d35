"""What ends, is cut off or is killed while the service works, and what that must not do."""

import pytest

MARKS = [
    pytest.mark.db,
    pytest.mark.slow,
    pytest.mark.real_clock,
    pytest.mark.timeout(600),
]
