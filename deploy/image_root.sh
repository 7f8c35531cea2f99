#!/usr/bin/env bash
# Puts together the root of quire's image: quire as it was installed below PREFIX, and of Debian only the libraries that
# it loads, certificates, and the few programs that the image's health check and Kubernetes' manifest run.
# A whole Debian would be twice as large, and have more that could be misused. Where the CUDA backend was installed, too,
# it comes with the libraries of NVIDIA's that it loads; the driver's come from the host.
#
#   deploy/image_root.sh PREFIX TARGET     e.g. /package/usr /image; TARGET must not exist
#
# Takes Debian's packages ca-certificates, curl and dash. Each package that a file comes from is recorded as scanners of
# images expect it (var/lib/dpkg/status.d), with its copyright.
set -euo pipefail
prefix=$1
target=$2

mkdir "$target"
mkdir -p "$target"/usr/{bin,lib,lib64,share/doc} "$target"/etc/ssl/certs "$target"/var/lib/dpkg/status.d
for folder in bin lib lib64; do ln -s "usr/$folder" "$target/$folder"; done
# Any user may be set: none owns what is written to.
install -d -m 1777 "$target"/tmp "$target"/models
printf 'root:x:0:0::/:/bin/sh\nquire:x:10001:10001::/models:/bin/sh\n' >"$target/etc/passwd"
printf 'root:x:0:\nquire:x:10001:\n' >"$target/etc/group"

cp "$prefix/bin/quire" "$target/usr/bin/"
cp -r "$prefix/share/quire" "$target/usr/share/"
install -D -m 644 "$prefix/share/doc/quire/copyright" "$target/usr/share/doc/quire/copyright"

# Records which package a file of this system belongs to.
record() {
  local package
  package=$(dpkg-query -S "$1" "/usr$1" "$(readlink -f "$1")" 2>/dev/null | head -n 1 | cut -d : -f 1) || true
  [ -n "$package" ] || return 0
  dpkg-query -s "$package" >"$target/var/lib/dpkg/status.d/$package"
  install -D -m 644 "/usr/share/doc/$package/copyright" "$target/usr/share/doc/$package/copyright"
}

# Adds a file of this system; a library from elsewhere goes to where the image's loader looks for it.
add() {
  local to=$1
  case "$1" in
    /usr/local/* | /opt/*) to=/usr/lib/$(basename "$1") ;;
  esac
  mkdir -p "$target$(dirname "$to")"
  cp -L "$1" "$target$to"
  record "$1"
}

programs=(/usr/bin/curl /bin/dash /bin/sleep)
for file in "${programs[@]}" /etc/ssl/certs/ca-certificates.crt; do add "$file"; done
ln -s dash "$target/usr/bin/sh"
record /usr/sbin/update-ca-certificates
loaders=("$prefix/bin/quire" "${programs[@]}")
backend=$(find "$prefix" -name libquire_cuda.so)
if [ -n "$backend" ]; then
  loaders+=("$backend")
  install -D -m 755 "$backend" "$target/usr/${backend#"$prefix/"}"
  # Which is loaded where a model has several GPUs.
  nccl=$(ldconfig -p | awk '$1 == "libnccl.so.2" && !found++ {print $NF}')
  nccl=${nccl:-/usr/local/cuda/lib64/libnccl.so.2}
  add "$nccl"
  loaders+=("$nccl")
fi
ldd "${loaders[@]}" | sed -n 's|^\t\(.* => \)\?\(/[^ ]*\) (.*|\2|p' | sort -u | while read -r library; do
  add "$library"
done
