#!/usr/bin/env bash
# Installs what is missing, builds quire and runs every check; prints a summary and fails if one did.
#
#   scripts/test.sh [--quick]     --quick: only the release build and its tests
#
# Where there are a CUDA 13 toolkit and NCCL's header, the CUDA backend is built too, for one GPU
# architecture; its tests (label gpu) run where there is a GPU. Without a GPU its code is not optimised.
#
# Environment: QUIRE_FUZZ_SECONDS (20) for each fuzz target, QUIRE_TIDY_SECONDS (75) for clang-tidy in
# all, QUIRE_TIDY_BASE (where the branch left its upstream) the commit whose changes clang-tidy reads.
set -uo pipefail
cd "$(dirname "$0")/.."

quick=false
case "${1:-}" in
  "") ;;
  --quick) quick=true ;;
  *)
    echo "usage: scripts/test.sh [--quick]" >&2
    exit 2
    ;;
esac

summary=()
failures=0

# step NAME COMMAND...: runs one check and notes how it ended and how long it took.
step() {
  local name=$1 start=$SECONDS result=ok
  shift
  echo "=== $name"
  if ! "$@"; then
    result=FAILED
    failures=$((failures + 1))
  fi
  summary+=("$(printf '%-34s %-7s %5d s' "$name" "$result" $((SECONDS - start)))")
  [ "$result" = ok ]
}

# Shows what failed and ctest's closing lines, not each test that passed.
run_ctest() {
  # One more than there are cores: end-to-end tests wait for servers, browsers and timers.
  ctest --output-on-failure --no-tests=error --parallel "$(($(nproc) + 1))" "$@" |
    grep -vE '^ +Start +[0-9]+:|Test +#[0-9]+: .* Passed '
}

# The thread sanitizer of GCC 12 cannot place its shadow memory where the kernel randomises addresses widely.
run_ctest_tsan() {
  if setarch -R true 2>/dev/null; then
    setarch -R bash -c "$(declare -f run_ctest)"'; set -o pipefail; run_ctest "$@"' _ "$@"
  else
    run_ctest "$@"
  fi
}

# What shares memory between threads: the pools and queues, the nodes, the ranks, the engine and its API, the
# server.
tsan_targets() {
  local name
  for name in base_test cluster_test dist_test ops_test runner_test engine_test engine_cuda_test http_test server_test; do
    ninja -C build/tsan -t query "$name" >/dev/null 2>&1 && echo "$name"
  done
}

summarise() {
  echo "=== summary"
  printf '%s\n' "${summary[@]}"
  if [ "$failures" -gt 0 ]; then
    echo "$failures of ${#summary[@]} checks failed"
    exit 1
  fi
  echo "all ${#summary[@]} checks passed in $SECONDS s"
}

step "setup" scripts/setup.sh --test || summarise
# What a user's first build does; nothing is built there.
step "configure: as shipped" cmake --preset release -B build/shipped --log-level=ERROR
# One architecture builds in half of the time, and code that no GPU runs need not be optimised. It stays in
# build/release until that is configured again: scripts/build.sh release then builds what is shipped, and an
# installation without that warns.
cuda_options=(-DQUIRE_CUDA_ARCHITECTURES=90a-real)
[ -e /dev/nvidiactl ] || cuda_options+=(-DQUIRE_CUDA_OPTIMISE=OFF)
step "build: release" scripts/build.sh release -- -DQUIRE_WERROR=ON -DQUIRE_BUILD_TESTS=ON "${cuda_options[@]}" || summarise
gpu_tests=()
if [ ! -e /dev/nvidiactl ]; then
  echo "There is no GPU here: the tests labelled gpu are not run."
  gpu_tests=(-LE '^gpu$')
fi
step "tests: release" run_ctest --test-dir build/release "${gpu_tests[@]}"
if $quick; then summarise; exit; fi

step "layout (clang-format)" scripts/format.sh --check
step "clang-tidy" scripts/tidy.sh

step "build: asan-ubsan" scripts/build.sh asan-ubsan &&
  { step "tests: asan-ubsan" run_ctest --test-dir build/asan-ubsan -LE package
    step "fuzz targets" scripts/fuzz.sh "${QUIRE_FUZZ_SECONDS:-20}"; }

if step "configure: tsan" cmake --preset tsan --log-level=ERROR; then
  mapfile -t targets < <(tsan_targets)
  step "build: tsan" scripts/build.sh tsan "${targets[@]}" &&
    step "tests: tsan" run_ctest_tsan --test-dir build/tsan -R "^(simulated[a-z_]*\.)?($(IFS='|' && echo "${targets[*]}"))\.[0-3]$"
fi

summarise
