"""Compiled code that is kept on disk: used again, but never after a change to what it calls."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CALL = """
import numpy as np
from scheduling.engine.compiled import shared
shared.link(*[np.zeros(0, np.int32)] * 5)
print(len(shared.link.stats.cache_hits), shared.link.stats.cache_path)
"""


def test_code_on_disk_holds_until_any_source_of_the_package_changes(tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "scheduling", tmp_path / "scheduling", ignore=shutil.ignore_patterns("__pycache__")
    )
    kept = tmp_path / "kept"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(kept), "PYTHONPATH": ""}

    def hits() -> int:
        told = subprocess.run(
            [sys.executable, "-c", CALL],
            env=environment, cwd=tmp_path, check=True, capture_output=True, text=True,
        )  # fmt: skip
        found, path = told.stdout.split()
        assert Path(path).is_relative_to(kept)
        return int(found)

    assert hits() == 0
    assert hits() == 1
    other = tmp_path / "scheduling/engine/compiled/terms.py"
    other.write_text(other.read_text() + "# a change\n")
    for index in kept.rglob("*.nbi"):  # the code of before names what an upgrade took away
        version, end, _ = index.read_bytes().partition(b"\x94.")
        index.write_bytes(version + end + b"cscheduling\nGone\n.")
    assert hits() == 0
