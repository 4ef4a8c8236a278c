#!/usr/bin/env bash
# Runs the init script in BusyBox's shell, as OpenWrt does, with stand-ins for procd, for UCI and for the daemon: what is started, with
# what, and what is not.
set -euo pipefail
cd "$(dirname "$0")"

place=$(mktemp --directory)
trap 'rm -r "$place"' EXIT

# The service with the values of /etc/config/bentpipe in `uci`, as SECTION_OPTION; prints what procd and the daemon are told.
service() { # COMMAND
  # shellcheck disable=SC2016 # BusyBox's shell is to expand it
  busybox ash -c '
    config_load() { :; }
    config_get() { eval "$1=\${uci_$2_$3:-\$4}"; }
    config_get_bool() { config_get "$@"; }
    procd_open_instance() { echo "instance $1"; }
    procd_set_param() { echo "  $*"; }
    procd_close_instance() { :; }
    mkdir() { :; }
    ln() { echo "ln $*"; }
    logger() { echo "logger $*"; }
    start() { start_service; }
    program() {
      echo "bentpipe $*"
      [ "$1" != check ] || ! grep -q faulty "$4"
    }
    . ./files/bentpipe.init
    PROGRAM=program SHARED_STATE=$2 RUN=$3
    eval "$1"' service "$1" "$place/state" "$place/run"
}

expect() { # WHAT LINE…: each is printed, in this order
  local what=$1 line seen
  shift
  seen=0
  for line; do
    next=$(grep --line-number --fixed-strings --line-regexp -- "$line" "$place/out" | cut --delimiter=: --fields=1 | tail -1)
    [ "${next:-0}" -gt "$seen" ] || { cat "$place/out"; echo "FAILED: $what: no \`$line\` in its place" >&2; exit 1; }
    seen=$next
  done
}

client=$place/client.toml server=$place/server.toml
export uci_client_enabled=1 uci_client_config=$client uci_client_guard=1 uci_server_enabled=1 uci_server_config=$server

mkdir "$place/run"
ln -s "$place" "$place/state"
service start_service >"$place/out"
[ ! -s "$place/out" ] || { cat "$place/out"; echo "FAILED: something is started without a file" >&2; exit 1; }

touch "$client" "$server"
rm "$place/state"
rmdir "$place/run"
service start_service >"$place/out"
expect "directories in which commands find the daemons, before these" \
  "ln -s /etc/bentpipe/state $place/state" "ln -s /var/run $place/run" "instance client"
expect "the client, and the guard before it" \
  "bentpipe check --role client $client" "bentpipe guard on --config $client" "instance client" \
  "  command program client --config $client" \
  "  env STATE_DIRECTORY=/etc/bentpipe/state RUNTIME_DIRECTORY=/var/run/bentpipe" "  respawn 3600 5 0"
mkdir "$place/state"
service start_service >"$place/out"
expect "a directory that a command has made, and left empty" "ln -s /etc/bentpipe/state $place/state" "instance client"
mkdir --parents "$place/state/ca"
service start_service >"$place/out"
expect "a directory that a command has filled" "instance client"
grep --quiet "^logger .*$place/state is a directory in memory" "$place/out" || { echo "FAILED: nothing is said of it" >&2; exit 1; }
rm -r "$place/state"
service start_service >"$place/out"
expect "the server" "bentpipe check --role server $server" "instance server" "  command program server --config $server" \
  "  reload_signal HUP"

echo faulty >"$client"
service start_service >"$place/out"
! grep --quiet "instance client\|guard" "$place/out" || { echo "FAILED: a faulty file is started" >&2; exit 1; }
expect "the server beside a faulty client" "instance server"

! service reload_service >"$place/out" || { echo "FAILED: a reload of a faulty file succeeds" >&2; exit 1; }
! grep --quiet instance "$place/out" || { echo "FAILED: a reload of a faulty file tells procd what is to run" >&2; exit 1; }
uci_client_enabled=0 service reload_service >"$place/out"
expect "a reload, with a faulty file that nothing uses" "bentpipe check --role server $server" "instance server"
echo sound >"$client"
service reload_service >"$place/out"
expect "a reload" "instance client" "instance server"

echo faulty >"$client"
uci_server_enabled=0 service start_service >"$place/out"
! grep --quiet instance "$place/out" || { echo "FAILED: what is disabled is started" >&2; exit 1; }

service guard_off >"$place/out"
expect "the guard" "bentpipe guard off"
echo "the init script of OpenWrt does as it should"
