"""Installing a package of plugins as an installer would, without a network or a build."""

import shutil
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scheduling.plugins import installed

OUTSIDE = Path(__file__).parent / "outside"


def install(source: Path, target: Path) -> None:
    """Put the modules of a project and the metadata of its pyproject.toml into a folder."""
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    name, version = project["name"].replace("-", "_"), project["version"]
    target.mkdir(parents=True, exist_ok=True)
    for module in source.glob("*.py"):
        shutil.copy(module, target)
    info = target / f"{name}-{version}.dist-info"
    info.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n"
    (info / "METADATA").write_text(metadata)
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in entries.items()), ""]
    (info / "entry_points.txt").write_text("\n".join(lines))


@contextmanager
def on_path(folder: Path) -> Iterator[None]:
    """Let this process find what is installed in a folder, and forget it again."""
    modules = {path.stem for path in folder.glob("*.py")}
    sys.path.insert(0, str(folder))
    installed.plugins.cache_clear()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        installed.plugins.cache_clear()
        for name in modules:
            sys.modules.pop(name, None)
