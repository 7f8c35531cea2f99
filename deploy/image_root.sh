#!/usr/bin/env bash
# Puts together the root of quire's image: quire as it was installed below PREFIX, and of Debian only the libraries that
# it loads, certificates, and the few programs that the image's health check and Kubernetes' manifest run.
# A whole Debian would be twice as large, and have more that could be misused.
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
  package=$(dpkg-query -S "$1" "/usr$1" 2>/dev/null | head -n 1 | cut -d : -f 1) || true
  [ -n "$package" ] || return 0
  dpkg-query -s "$package" >"$target/var/lib/dpkg/status.d/$package"
  install -D -m 644 "/usr/share/doc/$package/copyright" "$target/usr/share/doc/$package/copyright"
}

add() {
  mkdir -p "$target$(dirname "$1")"
  cp -L "$1" "$target$1"
  record "$1"
}

programs=(/usr/bin/curl /bin/dash /bin/sleep)
for file in "${programs[@]}" /etc/ssl/certs/ca-certificates.crt; do add "$file"; done
ln -s dash "$target/usr/bin/sh"
record /usr/sbin/update-ca-certificates
ldd "$prefix/bin/quire" "${programs[@]}" | grep -o '/[^ ]*\.so[^ ]*' | sort -u | while read -r library; do
  add "$library"
done
