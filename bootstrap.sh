#!/bin/sh
# Makes .venv with exactly the locked packages, checked by hash: "./bootstrap.sh run" or "dev".
# Packages with plugins that plugins.txt names (docs/plugins.md) are installed after them.
# Needs Python 3.11 to 3.14. Quick when nothing changed, and then it asks no network.
set -eu
cd "$(dirname "$0")"

set_name=${1:-run}
case $set_name in
  run) requirements=requirements.txt ;;
  dev) requirements=requirements-dev.txt ;;
  *) echo "usage: ./bootstrap.sh [run|dev]" >&2; exit 2 ;;
esac

say() { echo "==> $*" >&2; }
fail() { echo "error: $*" >&2; exit 1; }

# Names and packages of the plugins that are installed, a line each.
plugins() {
  [ ! -x .venv/bin/python ] || .venv/bin/python -c '
from importlib.metadata import entry_points
for one in sorted(entry_points(group="stowage.plugins"), key=lambda one: one.name):
    print(one.name, one.dist.name)' 2>/dev/null
}

wanted() { cat "$1" plugins.txt 2>/dev/null | sha256sum; }

# The stamp names what is installed, so a changed lock file or another Python installs again.
# The development set contains the running set.
installed() {
  [ -x .venv/bin/python ] || return 1
  if [ -n "${PY:-}" ]; then # another Python was asked for: set up anew
    [ "$("$PY" --version 2>&1)" = "$(.venv/bin/python --version 2>&1)" ] || return 1
  fi
  for name in "$set_name" dev; do
    [ -f ".venv/.ready-$name" ] || continue
    file=requirements.txt
    [ "$name" = dev ] && file=requirements-dev.txt
    [ "$(cat ".venv/.ready-$name")" = "$(wanted "$file")" ] || continue
    .venv/bin/python -c '' 2>/dev/null && return 0
  done
  return 1
}
if installed; then exit 0; fi

# Two makes at once: the second waits, and then finds everything done.
if command -v flock >/dev/null 2>&1; then
  exec 9>.bootstrap.lock || fail "$(pwd) cannot be written: run as its owner, or in a copy of yours."
  flock 9
  if installed; then exit 0; fi
fi

fits() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; }
python=${PY:-}
if [ -z "$python" ]; then
  for candidate in python3 python3.13 python3.12 python3.11 python3.14; do
    if fits "$candidate"; then python=$candidate; break; fi
  done
fi
[ -n "$python" ] || fail "Python 3.11 to 3.14 is needed, and there is none on the PATH. Install one (on" \
  "Debian or Ubuntu: apt-get install python3 python3-venv), or name it: make PY=/path/to/python3.12"
fits "$python" || fail "Python 3.11 to 3.14 is needed, but $python is" \
  "$("$python" --version 2>&1 || true). Name another: make PY=/path/to/python3.12"

began=$(date +%s)
work=$(mktemp -d)
log=$work/log
trap 'rm -rf "$work"' EXIT
step() { # step TITLE COMMAND...: run it quietly; on failure show the end of what it printed
  title=$1; shift
  from=$(date +%s)
  if "$@" >"$log" 2>&1; then
    say "$title ($(($(date +%s) - from)) s)"
  else
    tail -n 4 "$log" >&2
    return 1
  fi
}
OFFLINE="could not download the packages. If this machine reaches the network through a mirror or a
proxy, set PIP_INDEX_URL or HTTPS_PROXY and run again; nothing is downloaded once this has worked."

say "setting up .venv with $("$python" --version) (once; about half a minute)"
had=$(plugins || true)
if [ -e .venv ] && [ "$("$python" --version 2>&1)" != "$(.venv/bin/python --version 2>&1)" ]; then
  rm -rf .venv
fi
rm -f .venv/.ready-run .venv/.ready-dev
if [ ! -x .venv/bin/python ]; then
  # Nothing of the service needs pip or setuptools: what is not there has no holes.
  "$python" -m venv --without-pip .venv >"$log" 2>&1 || {
    tail -n 5 "$log" >&2
    fail "cannot make .venv. On Debian or Ubuntu: apt-get install python3-venv"
  }
fi
# Return a pip that installs into .venv: this Python's own, or that of a .venv for the moment. Debian
# without python3-venv has no ensurepip, but may have a pip of its own.
pip() {
  if ! "$python" -m pip --version >/dev/null 2>&1; then
    [ -x "$work/venv/bin/pip" ] || "$python" -m venv "$work/venv" >/dev/null 2>&1 || return 3
    "$work/venv/bin/python" -m pip --python .venv/bin/python "$@"
  else
    "$python" -m pip --python .venv/bin/python "$@"
  fi
}
if [ ! -x .venv/bin/uv ] || ! .venv/bin/uv --version 2>/dev/null | grep -q "$(sed -n 's/^uv==\([^ ]*\).*/\1/p' requirements-uv.txt)"; then
  if pip --version >/dev/null 2>&1; then
    step "installer" pip install -q --disable-pip-version-check --require-hashes -r requirements-uv.txt || fail "$OFFLINE"
  elif command -v uv >/dev/null 2>&1; then
    ln -sf "$(command -v uv)" .venv/bin/uv
  elif [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    say "this Python has neither pip nor ensurepip: installing the system's python3-venv"
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-venv; } >"$log" 2>&1 ||
      { tail -n 5 "$log" >&2; fail "cannot install python3-venv; install it or python3-pip yourself and run again."; }
    rm -rf .venv
    flock -u 9 2>/dev/null || true
    exec "./$(basename "$0")" "$set_name"
  else
    fail "this Python has neither pip nor ensurepip. On Debian or Ubuntu: sudo apt-get install python3-venv"
  fi
fi

# uv reads its own variables; people know pip's.
if [ -n "${PIP_INDEX_URL:-}" ] && [ -z "${UV_DEFAULT_INDEX:-}" ]; then export UV_DEFAULT_INDEX="$PIP_INDEX_URL"; fi
if [ -n "${PIP_CERT:-}" ] && [ -z "${SSL_CERT_FILE:-}" ]; then export SSL_CERT_FILE="$PIP_CERT"; fi
# The certificates that this machine trusts, also a company's own, as pip and curl do.
export UV_SYSTEM_CERTS="${UV_SYSTEM_CERTS:-1}"
if [ ! -w "${HOME:-/nonexistent}" ]; then export UV_NO_CACHE=1; fi
export UV_LINK_MODE="${UV_LINK_MODE:-copy}"  # the cache may lie on another file system

packages=$(grep -c '^[a-z0-9].*==' "$requirements")
if .venv/bin/uv --version >/dev/null 2>&1; then
  step "$packages packages" .venv/bin/uv pip sync -q --require-hashes --compile-bytecode -p .venv/bin/python "$requirements" || fail "$OFFLINE"
else # a platform without uv: slower, the same packages
  step "$packages packages" pip install -q --disable-pip-version-check --require-hashes -r "$requirements" || fail "$OFFLINE"
fi
# uv's sync leaves what earlier versions of this script brought.
for old in pip setuptools; do
  ls .venv/lib/python3*/site-packages/"$old"-*.dist-info >/dev/null 2>&1 || continue
  .venv/bin/uv pip uninstall -q -p .venv/bin/python "$old" >"$log" 2>&1 || true
done
if [ -f plugins.txt ]; then
  # None of the locked packages changes for them.
  sed -n 's/^\([A-Za-z0-9].*==[^\\]*[^ \\]\) *\\*$/\1/p' "$requirements" >"$work/locked"
  if .venv/bin/uv --version >/dev/null 2>&1; then
    set -- .venv/bin/uv pip install -q --compile-bytecode -p .venv/bin/python
  else
    set -- pip install -q --disable-pip-version-check
  fi
  step "the packages of plugins.txt" "$@" -c "$work/locked" -r plugins.txt ||
    fail "the packages of plugins.txt cannot be installed beside the locked ones (see above)."
fi
have=$(plugins || true)
echo "$had" | while read -r plugin package; do
  [ -z "$plugin" ] || echo "$have" | grep -q "^$plugin " ||
    say "the plugin $plugin is gone: name its package, $package, in plugins.txt (docs/plugins.md)"
done
wanted "$requirements" >".venv/.ready-$set_name"
say "set up in $(($(date +%s) - began)) s"
