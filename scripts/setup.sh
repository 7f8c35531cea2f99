#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that quire is built from and that are missing; with --test
# also the Python packages of tests/requirements, where they can be fetched.
# Prints nothing, and needs neither network nor root, where there is nothing to install.
#
#   scripts/setup.sh          what building takes
#   scripts/setup.sh --test   and what scripts/test.sh takes
set -euo pipefail

packages=(
  build-essential cmake ninja-build pkg-config ccache
  nlohmann-json3-dev libcli11-dev libfmt-dev libpcre2-dev libutf8proc-dev
  libxxhash-dev libhwloc-dev libedit-dev liblzma-dev
  libboost-dev libssl-dev libcurl4-openssl-dev prometheus-cpp-dev
  libjs-marked node-dompurify libjs-highlight.js libjs-chart.js
  libgtest-dev libgmock-dev libbenchmark-dev python3
)
# dpkg-dev and file are what CPack makes the Debian package with; clang-format is pinned, because
# each version lays code out differently.
test_packages=(
  git clang lld clang-tidy clang-format-14 libclang-rt-dev dpkg-dev file xz-utils
  python3-venv openssl podman runc iproute2 openmpi-bin
)
# The web page is tested in a real browser. Ubuntu has Chromium only as a snap: there these tests are skipped.
if grep -qx 'ID=debian' /etc/os-release 2>/dev/null; then
  test_packages+=(chromium fonts-dejavu-core)
fi

for_tests=false
case "${1:-}" in
  "") ;;
  --test)
    packages+=("${test_packages[@]}")
    for_tests=true
    ;;
  *)
    echo "usage: scripts/setup.sh [--test]" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "setup: this is no Debian or Ubuntu system; install what these packages hold: ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done

# Tests that need these packages skip themselves where there are none.
python_packages() {
  ! $for_tests || "$(dirname "$0")/python_env.sh" || [ $? -eq 77 ]
}

if [ ${#missing[@]} -eq 0 ]; then
  python_packages
  exit
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "setup: these packages are missing and installing them takes root: ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@"
}

echo "setup: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { apt update && apt install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  cat "$log" >&2
  echo "setup: installing failed; what apt-get said is above" >&2
  exit 1
fi
python_packages
