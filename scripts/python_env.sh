#!/usr/bin/env bash
# Makes build/venv, the Python environment of the tests, from the pinned and hashed packages of
# tests/requirements/python.txt. Quiet, and without network, where it is there already.
#
#   scripts/python_env.sh
#
# Exits with 77, "skipped", and says why where the packages cannot be fetched: the tests that need
# them skip themselves then.
set -euo pipefail
cd "$(dirname "$0")/.."

requirements=tests/requirements/python.txt
venv=build/venv

# What the environment was made of: it is made anew when the packages or the interpreter change.
wanted=$({ python3 --version && cat "$requirements"; } | sha256sum)
[ "$(cat "$venv/made-of" 2>/dev/null)" = "$wanted" ] && exit 0

mkdir -p build
# Two at once would build in the same folder.
exec 9>build/venv.lock
flock 9
[ "$(cat "$venv/made-of" 2>/dev/null)" = "$wanted" ] && exit 0

log=$(mktemp)
trap 'rm -f "$log"' EXIT
rm -rf "$venv"
echo "python_env: installing the packages of $requirements"
if ! { python3 -m venv "$venv" &&
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-input --retries 1 --timeout 20 \
    --only-binary :all: --require-hashes --requirement "$requirements"; } >"$log" 2>&1; then
  cat "$log" >&2
  rm -rf "$venv"
  echo "python_env: skipped: the packages could not be installed; what pip said is above" >&2
  exit 77
fi
echo "$wanted" >"$venv/made-of"
