#!/usr/bin/env bash
# Runs clang-tidy on the sources that changed since QUIRE_TIDY_BASE, the newest first. Without that
# variable: since the branch left its upstream, or all where it has not. Stops starting
# new files after QUIRE_TIDY_SECONDS (75) and says how many it did not reach.
set -uo pipefail
cd "$(dirname "$0")/.."

if ! command -v clang-tidy >/dev/null; then
  echo "tidy: clang-tidy is missing: run scripts/setup.sh --test" >&2
  exit 1
fi
# Each version knows other checks.
version=$(clang-tidy --version | grep -oE 'version [0-9]+' | cut -d' ' -f2)
if [ "$version" != 14 ]; then
  echo "tidy: not run: the sources are held to clang-tidy 14, and this is $version"
  exit 0
fi

if ! git rev-parse --verify -q HEAD >/dev/null; then
  echo "tidy: not run: without a git history nothing says which files changed"
  exit 0
fi
# The other presets compile several files as one, and list those.
cmake --preset debug -B build/tidy -DQUIRE_CUDA=OFF --log-level=ERROR >/dev/null || exit 1

base=${QUIRE_TIDY_BASE:-}
if [ -z "$base" ]; then
  base=$(git merge-base HEAD '@{upstream}' 2>/dev/null || true)
  [ "$base" != "$(git rev-parse HEAD)" ] || base=
fi
# The files in the order of their last change: not committed yet, then commit by commit.
changed() {
  git diff --name-only HEAD
  git log --format= --name-only ${base:+"$base..HEAD"}
}
mapfile -t files < <(changed | grep -E '^(src|examples)/.*\.cc$' | grep -v '_test\.cc$' | awk '!seen[$0]++' |
  while read -r file; do if grep -q "/$file\"" build/tidy/compile_commands.json; then echo "$file"; fi; done)

deadline=$(($(date +%s) + ${QUIRE_TIDY_SECONDS:-75}))
export deadline
check_one() {
  if [ "$(date +%s)" -ge "$deadline" ]; then
    echo "not reached: $1"
    return 0
  fi
  local findings
  # The flags are GCC's, and clang does not know all of them.
  if ! findings=$(clang-tidy --quiet --extra-arg=-Wno-unknown-warning-option -p build/tidy "$1" 2>/dev/null); then
    printf '%s\n' "$findings"
    return 1
  fi
}
export -f check_one

output=$(printf '%s\n' "${files[@]}" | xargs -r -P "$(nproc)" -I{} bash -c 'check_one "$1"' _ {})
status=$?
printf '%s\n' "$output" | grep -v '^not reached: ' | grep . || true
echo "tidy: ${#files[@]} changed files, $(printf '%s\n' "$output" | grep -c '^not reached: ') of them not reached in time"
exit "$status"
