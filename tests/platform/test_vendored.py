"""What others made stands in the tree as its notice says."""

import hashlib
import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
NOTICE = (PROJECT / "NOTICE").read_text()


def test_what_others_made_is_what_its_notice_says() -> None:
    told = re.findall(
        r"^(\S+/(?:vendor|alpine)/\S+) is (?:.+\n)+?SHA-256 of the file: (\w+)",
        NOTICE,
        re.MULTILINE,
    )
    folders = "api/static/*/vendor/*", "clusterstate/static/unfold/js/*/*", "tests/*/vendor/*"
    there = [one for folder in folders for one in PROJECT.glob(folder)]
    assert dict(told) == {
        str(one.relative_to(PROJECT)): hashlib.sha256(one.read_bytes()).hexdigest() for one in there
    }
