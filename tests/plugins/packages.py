"""Installing a package of plugins as an installer would, without a network or a build."""

import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scheduling.plugins import installed

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = Path(__file__).parent / "outside"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def guide_blocks() -> list[tuple[str, str]]:
    """Return language and text of the code blocks of `docs/plugins.md`."""
    return _BLOCK.findall((ROOT / "docs" / "plugins.md").read_text())


def write_guide(folder: Path) -> None:
    """Write the files of `docs/plugins.md`, as their first lines name them."""
    for _, text in guide_blocks():
        name = re.match(r"# ([\w.]+)\n", text)
        if name is not None:
            (folder / name[1]).write_text(text)


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
