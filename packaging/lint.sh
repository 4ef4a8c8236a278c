#!/usr/bin/env bash
# Looks at what packages hold beside the program: shell scripts by shellcheck, units by systemd-analyze, OpenWrt's service by running it.
set -euo pipefail
cd "$(dirname "$0")/.."

shellcheck packaging/*.sh packaging/container/*.sh packaging/openwrt/*.sh packaging/openwrt/files/*.init \
  packaging/scripts/* site/*.sh .ci/older .ci/run
packaging/openwrt/test.sh

# How much a unit may reach, in tenths of systemd's exposure from 0 (nothing) to 10 (all).
limit=30
copies=$(mktemp --directory)
trap 'rm -r "$copies"' EXIT
for unit in packaging/systemd/*.service; do
  systemd-analyze security --offline=true --threshold="$limit" --no-pager "$unit" >"$copies/found" ||
    { cat "$copies/found" >&2; exit 1; }
  tail -1 "$copies/found"
  # The program is not installed here; that it is executable is all that is asked of it.
  sed "s|/usr/bin/bentpipe|/bin/true|" "$unit" >"$copies/$(basename "$unit")"
done
# It tells faults on standard error and may succeed all the same; units that the machine has are not asked about.
if systemd-analyze verify --man=no "$copies"/*.service 2>&1 | grep bentpipe; then
  exit 1
fi
