#!/usr/bin/env bash
# Installs a .rpm into a clean root and takes it away again: `packaging/test-rpm.sh FILE.rpm FILE.deb`, as root. What it holds is what the
# .deb of the same architecture holds. The root is Debian: programs of a distribution with rpm may differ, and what it depends on is not
# looked up.
set -euo pipefail
cd "$(dirname "$0")/.."

rpm=$(realpath "$1")
deb=$(realpath "$2")
root=$(mktemp --directory)
trap 'rm -r "$root"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }

# Only Debian asks for a file of copyrights.
[ "$(rpm --query --list --package "$rpm" | sort)" = \
  "$(dpkg-deb --contents "$deb" | awk '$1 !~ /^d/ { print substr($6, 2) }' | grep --invert-match /copyright$ | sort)" ] ||
  fail "other files than in $(basename "$deb")"

tar --extract --file target/install-test/debian.tar --directory "$root"
rpm --root "$root" --install --nodeps "$rpm"
chroot "$root" bentpipe --version
[ "$(chroot "$root" stat --format '%U %G %a' /etc/bentpipe)" = "bentpipe bentpipe 750" ] || fail "/etc/bentpipe is not the daemons' own"
touch "$root/etc/bentpipe/server.toml"

rpm --root "$root" --erase bentpipe
[ ! -e "$root/usr/bin/bentpipe" ] || fail "the program stays"
[ -e "$root/etc/bentpipe/server.toml" ] || fail "what the operator wrote is gone"
left=$(find "$root/usr" "$root/lib" -name '*bentpipe*')
[ -z "$left" ] || fail "left behind: $left"
echo "the .rpm is fit to be installed"
