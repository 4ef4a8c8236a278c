#!/usr/bin/env bash
# `make packages`: target/packages/*.deb and *.rpm, which hold the whole program, *.tar.gz with the small daemon, linked
# statically, a list of what is in them (CycloneDX) and SHA256SUMS. The same commit gives the same bytes.
# PACKAGES_FOR="x86_64" makes those of one architecture.
set -euo pipefail
cd "$(dirname "$0")/.."

: "${PACKAGES_FOR:=x86_64 aarch64}" "${CARGO_DEB:?}" "${CARGO_GENERATE_RPM:?}" "${CARGO_CYCLONEDX:?}"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
umask 022

# A root as both kinds of packages and the archive fill it; Cargo.toml names it.
root=target/packages/root
version=$(cargo metadata --format-version 1 --no-deps --locked | python3 -c '
import json, sys
print(next(p["version"] for p in json.load(sys.stdin)["packages"] if p["name"] == "bentpipe"))')
host=$(uname -m)

fill() { # BINARY GENERATOR PREFIX DIRECTORY
  rm -rf "$4"
  BINARY=$1 GENERATOR=$2 PREFIX=$3 DESTDIR=$4 packaging/install.sh
  find "$4" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
}

# Fails if BINARY wants a newer C library than the packages ask for.
old_enough() { # BINARY
  local newest
  newest=$(readelf --wide --version-info "$1" | grep --only-matching 'GLIBC_[0-9.]*' | sort --version-sort | tail -1)
  if [ "$(printf '%s\nGLIBC_2.34\n' "$newest" | sort --version-sort | tail -1)" != GLIBC_2.34 ]; then
    echo "$1 wants $newest: name that in the packages' dependencies in Cargo.toml" >&2
    return 1
  fi
}

packages() { # ARCHITECTURE
  local triple=$1-unknown-linux-gnu
  local binary
  binary=$(packaging/build.sh "$triple")
  old_enough "$binary"
  # This machine's own program writes the completions and man pages of all.
  fill "$binary" "$(packaging/build.sh "$host-unknown-linux-gnu")" /usr "$root"
  "$CARGO_DEB" --quiet --no-build --no-strip --locked --target "$triple" --output target/packages
  "$CARGO_GENERATE_RPM" --target "$triple" --auto-req disabled --source-date "$SOURCE_DATE_EPOCH" --output target/packages
}

# Everything below one directory, which is unpacked anywhere; its units are for /usr/local.
archive() { # ARCHITECTURE
  local name=bentpipe-$version-$1-linux-musl
  local binary generator
  binary=$(packaging/build.sh "$1-unknown-linux-musl" --no-default-features)
  generator=$(packaging/build.sh "$host-unknown-linux-musl" --no-default-features)
  fill "$binary" "$generator" /usr/local "target/packages/$name"
  mv "target/packages/$name/usr/local" "target/packages/$name.d"
  rm -r "target/packages/$name"
  tar --create --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
    --directory target/packages --transform "s|^$name.d|$name|" "$name.d" |
    gzip --best --no-name >"target/packages/$name.tar.gz"
  rm -r "target/packages/$name.d"
}

# Asked of a copy, for it writes beside every manifest.
contents() {
  local copy=target/packages/sources
  rm -rf "$copy"
  mkdir -p "$copy"
  git ls-files -z | tar --create --null --files-from=- | tar --extract --directory "$copy"
  "$CARGO_CYCLONEDX" cyclonedx -qq --manifest-path "$copy/Cargo.toml" --format json --spec-version 1.5 --target all \
    --no-build-deps --override-filename sbom
  sed "s|$PWD/$copy|/bentpipe|g" "$copy/sbom.json" >"target/packages/bentpipe-$version.cdx.json"
  rm -r "$copy"
}

mkdir -p target/packages
rm -f target/packages/*.{deb,rpm,tar.gz,cdx.json} target/packages/SHA256SUMS
for architecture in $PACKAGES_FOR; do
  packages "$architecture"
  archive "$architecture"
done
contents
rm -r "$root"
(cd target/packages && sha256sum -- *.deb *.rpm *.tar.gz *.cdx.json | tee SHA256SUMS)
