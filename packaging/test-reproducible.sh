#!/usr/bin/env bash
# Builds packages of HEAD twice, in two clones of different paths and at different times, and compares them byte by byte:
# `packaging/test-reproducible.sh`. PACKAGES_FOR names architectures, as for packages.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

place=$PWD/target/reproducible
rm -rf "$place"
mkdir -p "$place"
trap 'rm -rf "$place"' EXIT

for path in one another/place/for/two; do
  clone=$place/$path
  git clone --quiet --local "$PWD" "$clone"
  # Nobody's settings but the script's.
  env -u CARGO_TARGET_DIR -u RUSTFLAGS -u CFLAGS -u SOURCE_DATE_EPOCH "$clone/packaging/packages.sh" >"$clone/sums"
done
if ! diff "$place/one/sums" "$place/another/place/for/two/sums"; then
  echo "the same commit gives other bytes in another place" >&2
  exit 1
fi
cat "$place/one/sums"
echo "the same commit gives the same bytes"
