#!/usr/bin/env bash
# Configures and builds one preset; quiet where everything is up to date.
#
#   scripts/build.sh PRESET [TARGET...] [-- CMAKE_ARGUMENT...]
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -eq 0 ]; then
  echo "usage: scripts/build.sh PRESET [TARGET...] [-- CMAKE_ARGUMENT...]" >&2
  exit 2
fi
preset=$1
shift
targets=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  targets+=("$1")
  shift
done
[ $# -eq 0 ] || shift

log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! cmake --preset "$preset" "$@" >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
# A dry run stops at the check for new files that opens build.ninja's own rule; a copy has no such rule.
cp "build/$preset/build.ninja" "build/$preset/dry_run.ninja"
if ninja -C "build/$preset" -f dry_run.ninja -n "${targets[@]}" | grep -q 'no work to do'; then exit 0; fi
echo "Building build/$preset"
sed -n 's/^-- \(CUDA backend: OFF, .*\)/\1/p' "$log"
# On a terminal ninja shows its progress in one line.
if [ -t 1 ]; then
  exec ninja -C "build/$preset" "${targets[@]}"
fi
exec ninja --quiet -C "build/$preset" "${targets[@]}"
