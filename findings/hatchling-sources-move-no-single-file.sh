#!/bin/sh
# hatchling 1.33.0.
# Guess: [tool.hatch.build.targets.wheel.sources] gives a file another place, as it does folders.
# Behaviour: only folders are moved; a single file stays at the top of the wheel, without a word, and
# would be installed as a module of everybody's.
# What the product does: `manage.py` and CHANGELOG.md are named under `force-include`, and a test
# looks at the top of the wheel.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "hatchling==1.33.0"
mkdir "$folder/project" "$folder/project/part"
cd "$folder/project"
echo 1 >part/__init__.py
echo 1 >single.py
cat >pyproject.toml <<'END'
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "moved"
version = "1"
[tool.hatch.build.targets.wheel]
only-include = ["part", "single.py"]
[tool.hatch.build.targets.wheel.sources]
"part" = "moved/part"
"single.py" = "moved/single.py"
END
"$folder/venv/bin/python" -m hatchling build -t wheel >/dev/null
"$folder/venv/bin/python" - <<'PY'
import sys
import zipfile
from pathlib import Path

(wheel,) = Path("dist").glob("*.whl")
names = sorted(name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".py"))
print(names)
sys.exit(names != ["moved/part/__init__.py", "single.py"])
PY
