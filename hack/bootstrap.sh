#!/usr/bin/env bash
# Makes the folder VENV a virtual environment that holds uv of one version, from nothing but
# Python 3.11 or newer. Usage: hack/bootstrap.sh VENV UV_VERSION
set -euo pipefail

venv=$1
uv_version=$2

fail() {
  echo "quire: error: $*" >&2
  exit 1
}

is_new_enough() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if is_new_enough "$candidate"; then
      echo "$candidate"
      return
    fi
  done
  fail "no Python 3.11 or newer found: install it (Debian, Ubuntu: apt-get install python3" \
    "python3-venv), or name it: make PYTHON=/path/to/python3.12"
}

if ! is_new_enough "$venv/bin/python"; then
  python=$(find_python)
  echo "Making $venv with $("$python" --version)."
  "$python" -m venv --clear "$venv" ||
    fail "$python cannot make a virtual environment: on Debian or Ubuntu, apt-get install" \
      "python3-venv; then run make again"
fi
if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
  "$venv/bin/python" -m ensurepip --default-pip >/dev/null ||
    fail "$venv has no pip and cannot make one: remove $venv and run make again"
fi
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check "uv==$uv_version" ||
  fail "pip could not install uv $uv_version: see its message above, and check the network or" \
    "the package index that pip is configured for"
