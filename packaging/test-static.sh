#!/usr/bin/env bash
# Runs the daemon of a static archive, on the loopback interface of a namespace of its own: `packaging/test-static.sh FILE.tar.gz`.
# A key, a server, a client, their status, and a download through SOCKS5. Of another architecture under qemu.
set -euo pipefail

archive=$(realpath "$1")
architecture=$(basename "$archive" | grep --only-matching 'x86_64\|aarch64')
if [ "${IN_NAMESPACE:-}" != yes ]; then
  IN_NAMESPACE=yes exec unshare --net --map-root-user --kill-child --fork "$0" "$archive"
fi
ip link set lo up

run=$(mktemp --directory)
started=()
clean() {
  kill "${started[@]}" 2>/dev/null || true
  wait
  rm -r "$run"
}
trap clean EXIT
cd "$run"
tar --extract --file "$archive" --strip-components 1

qemu=()
sandbox=true
if [ "$(uname -m)" != "$architecture" ]; then
  qemu=("qemu-$architecture-static")
  # It has a thread of its own in the daemon's process, which the sandbox would not hold.
  sandbox=false
fi
bentpipe() { "${qemu[@]}" bin/bentpipe "$@"; }

file=bin/bentpipe
! readelf --program-headers "$file" | grep --quiet INTERP || { echo "$file needs a dynamic loader" >&2; exit 1; }
bentpipe --version
for role in server client; do
  bentpipe genkey --out "$role.key"
done
cat >server.toml <<TOML
private_key_file = "server.key"
listen = "127.0.0.1:4433"
state_dir = "state"
status_socket = "server.sock"
sandbox = $sandbox

[[client]]
name = "terminal-1"
public_key = "$(bentpipe pubkey <client.key)"
allow = ["127.0.0.1:8000"]
TOML
cat >client.toml <<TOML
private_key_file = "client.key"
state_dir = "state"
status_socket = "client.sock"
sandbox = $sandbox

[server]
address = "127.0.0.1:4433"
public_key = "$(bentpipe pubkey <server.key)"

[socks5]
listen = "127.0.0.1:1080"
TOML
mkdir web
head --bytes 5000000 /dev/urandom >web/file
python3 -m http.server --bind 127.0.0.1 --directory web 8000 >/dev/null 2>&1 &
started+=($!)
for role in server client; do
  "${qemu[@]}" bin/bentpipe "$role" --config "$role.toml" >"$role.log" 2>&1 &
  started+=($!)
done
for _ in $(seq 60); do
  bentpipe status --check --socket client.sock >/dev/null 2>&1 && break
  sleep 0.5
done
bentpipe status --check --socket client.sock || { cat ./*.log >&2; exit 1; }
# The web server may still be starting.
curl --silent --fail --max-time 60 --retry 20 --retry-all-errors --retry-delay 1 --proxy socks5h://127.0.0.1:1080 \
  http://127.0.0.1:8000/file | cmp - web/file ||
  { cat ./*.log >&2; exit 1; }
bentpipe status --socket client.sock >report
head -8 report
echo "$(basename "$archive") runs"
