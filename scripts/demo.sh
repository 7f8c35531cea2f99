#!/usr/bin/env bash
# Builds quire, installing what that takes, and asks the bundled model a few questions.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh
scripts/build.sh release quire

questions=(
  "What does candid mean?"
  "define apple"
  "run as a verb?"
  "give me a synonym for happy"
  "what is a blorptangle?"
)
for question in "${questions[@]}"; do
  printf '> %s\n' "$question"
  build/release/src/quire generate --chat --temperature 0 -p "$question"
  echo
done
echo "Ask your own: build/release/src/quire chat"
