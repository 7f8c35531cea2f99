#!/usr/bin/env bash
# Lays out every C++ and CUDA file as .clang-format says.
#
#   scripts/format.sh           changes the files
#   scripts/format.sh --check   changes nothing; fails and names the files that differ
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
  "") mode=(-i) ;;
  --check) mode=(--dry-run --Werror) ;;
  *)
    echo "usage: scripts/format.sh [--check]" >&2
    exit 2
    ;;
esac

# Other versions lay out differently.
if ! command -v clang-format-14 >/dev/null; then
  echo "format: clang-format-14 is missing: run scripts/setup.sh --test" >&2
  exit 1
fi
find bench examples include src tests \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) -print0 | xargs -0 -r -n 32 -P "$(nproc)" clang-format-14 "${mode[@]}"
