#!/usr/bin/env bash
# Builds quire, installing what that takes, and asks the bundled model a few questions: on the GPU, where this machine
# has one and a CUDA toolkit, else on the CPU. The build is build/demo, apart from what scripts/build.sh builds.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh
mapfile -t options < <(scripts/gpu_options.sh)
scripts/build.sh demo quire_runtime -- "${options[@]}"
quire=build/demo/src/quire

questions=(
  "What does candid mean?"
  "define apple"
  "run as a verb?"
  "give me a synonym for happy"
  "what is a blorptangle?"
)
for question in "${questions[@]}"; do
  printf '> %s\n' "$question"
  "$quire" generate --chat --temperature 0 -p "$question"
  echo
done
"$quire" plan --json | python3 -c '
import json, sys
plan = json.load(sys.stdin)
print("These answers were made on", plan["device_name"] or "the CPU", end=".\n")
if plan["device_note"]:
    print(plan["device_note"])'
echo "Ask your own: $quire chat"
