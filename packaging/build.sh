#!/usr/bin/env bash
# Builds the program for packages: `packaging/build.sh TRIPLE [CARGO OPTION…]`. Prints the path of what it built.
# The same commit gives the same bytes: no path of this machine is in them, and no time but the commit's.
set -euo pipefail
cd "$(dirname "$0")/.."

triple=$1
shift
to=$PWD/target/packages/build
cargo_home=${CARGO_HOME:-$HOME/.cargo}
export CARGO_TARGET_DIR=$to
export RUSTFLAGS="--remap-path-prefix=$PWD=/bentpipe --remap-path-prefix=$cargo_home=/cargo"
# aws-lc is written in C and assembler.
export CFLAGS="-ffile-prefix-map=$PWD=/bentpipe -ffile-prefix-map=$cargo_home=/cargo"

# Debian's cross compiler also compiles and links for musl, with the headers that Rust's own C library was made of left out: what
# aws-lc takes from the C library is the same in both.
if [[ $triple == aarch64-* && $(uname -m) != aarch64 ]]; then
  name=${triple//-/_}
  export "CC_$name=aarch64-linux-gnu-gcc" "CARGO_TARGET_${name^^}_LINKER=aarch64-linux-gnu-gcc"
fi
cargo build --quiet --locked --profile dist --bin bentpipe --target "$triple" "$@" >&2
echo "$to/$triple/dist/bentpipe"
