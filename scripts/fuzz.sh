#!/usr/bin/env bash
# Runs the fuzz targets of build/asan-ubsan, each from its kept corpus.
#
#   scripts/fuzz.sh [SECONDS [NAME...]]    SECONDS for each (20); all targets where none is named
#
# What crashes one lies in build/asan-ubsan/fuzz/artifacts/NAME/; new inputs that reach more code in
# build/asan-ubsan/fuzz/corpus/NAME/ (merge the best into tests/fuzz/corpus/NAME/).
set -uo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-20}
case "$seconds" in
  *[!0-9]* | "")
    echo "usage: scripts/fuzz.sh [SECONDS [NAME...]]" >&2
    exit 2
    ;;
esac
shift || true
names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  for source in tests/fuzz/*_fuzz.cc; do names+=("$(basename "$source" _fuzz.cc)"); done
fi

# fuzz_one SECONDS NAME
fuzz_one() {
  local seconds=$1 name=$2
  local out=build/asan-ubsan/fuzz
  local found=$out/corpus/$name artifacts=$out/artifacts/$name log=$out/$name.log
  mkdir -p "$found" "$artifacts"
  local kept=()
  [ -d "tests/fuzz/corpus/$name" ] && kept=("tests/fuzz/corpus/$name")
  local dictionary=()
  [ -f "tests/fuzz/$name.dict" ] && dictionary=("-dict=tests/fuzz/$name.dict")
  if "build/asan-ubsan/tests/${name}_fuzz" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -print_final_stats=1 "${dictionary[@]}" -artifact_prefix="$artifacts/" "$found" "${kept[@]}" \
    >"$log" 2>&1; then
    echo "fuzz: $name: $(awk '/number_of_executed_units/ {print $2}' "$log") inputs, nothing found"
  else
    tail -n 60 "$log"
    echo "fuzz: $name FAILED; the input is in $artifacts, the whole log in $log"
    return 1
  fi
}
export -f fuzz_one

printf '%s\n' "${names[@]}" | xargs -P "$(nproc)" -I{} bash -c 'fuzz_one "$1" "$2"' _ "$seconds" {}
