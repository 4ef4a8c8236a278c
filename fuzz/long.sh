#!/usr/bin/env bash
# Every fuzz target under libFuzzer for FUZZ_SECONDS (60) seconds each, on stable Rust: rustc's own counters at the edges of
# the program tell libFuzzer which inputs go new ways. Fails if one panics, overflows, takes 10 s or 2 GB; the input that did
# it is printed. Arguments choose targets. With FUZZ_KEEP=1 the smallest set of inputs that goes all ways found becomes the
# corpus in the repository, which `make fuzz` runs.
set -euo pipefail
cd "$(dirname "$0")"

seconds=${FUZZ_SECONDS:-60}
host=$(rustc -vV | sed -n 's/^host: //p')
# No sanitizer, which would need nightly: there is no `unsafe` behind these parsers, but for the library of Zstandard, which its
# authors fuzz with sanitizers. Level 4 with compares traced is what
# libFuzzer expects. One codegen unit: the linker drops counters of others.
coverage="-Cpasses=sancov-module -Ccodegen-units=1"
for argument in level=4 inline-8bit-counters pc-table trace-compares; do
  coverage+=" -Cllvm-args=-sanitizer-coverage-$argument"
done
# A target of its own, so that programs which run while others are built get no counters.
RUSTFLAGS=$coverage cargo build --locked --profile fuzz --target "$host" -p bentpipe-fuzz-guided
program=${CARGO_TARGET_DIR:-target}/$host/fuzz/bentpipe-fuzz-guided

targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  mapfile -t targets < <(sed -n 's/^ *name: "\(.*\)",$/\1/p' src/lib.rs)
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

hex() { od -An -v -tx1 "$1" | tr -d ' \n'; echo; }

failed=0
for target in "${targets[@]}"; do
  mkdir -p "$work/$target/"{seeds,found,least}
  if FUZZ_TARGET=$target FUZZ_SEEDS=$work/$target/seeds "$program" -max_total_time="$seconds" -max_len=6000 \
    -timeout=10 -rss_limit_mb=2048 -artifact_prefix="$work/$target/crash-" -print_final_stats=1 \
    "$work/$target/found" "$work/$target/seeds" >"$work/$target/log" 2>&1; then
    # "#512 INITED cov: 301 ft: 372 ..." and at the end "#1015591 DONE cov: 604 ..."
    edges() { sed -n "s/^#\\([0-9]*\\)\\s*$1\\s*cov: \\([0-9]*\\).*/\\$2/p" "$work/$target/log" | head -1; }
    echo "$target: $(edges DONE 1) inputs, edges $(edges INITED 2) at first, $(edges DONE 2) at last"
  else
    failed=1
    echo "$target: FAILED" >&2
    tail -40 "$work/$target/log" >&2
    for crash in "$work/$target"/crash-*; do
      [ -e "$crash" ] && echo "input, for cargo run -- $target HEX: $(hex "$crash")" >&2
    done
  fi
  if [ "${FUZZ_KEEP:-}" ]; then
    FUZZ_TARGET=$target "$program" -merge=1 -max_len=6000 "$work/$target/least" "$work/$target/found" "$work/$target/seeds" \
      >"$work/$target/merge" 2>&1
    mkdir -p corpus
    for input in "$work/$target/least"/*; do hex "$input"; done | LC_ALL=C sort -u >"corpus/$target.hex"
  fi
done
exit $failed
