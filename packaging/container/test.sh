#!/usr/bin/env bash
# Tries the image `localhost/bentpipe` as docs/deploy/container.md has it, as root with podman: init, add and join by the image, a
# server and a client in containers, and a download through SOCKS5. Both are in one namespace without a way out.
set -euo pipefail

image=localhost/bentpipe
name=bp-cont-$$
run=$(mktemp --directory)
started=()

clean() {
  set +e
  podman rm --force --ignore "$name-server" "$name-client" >/dev/null
  podman volume rm --force "$name-server" "$name-client" >/dev/null
  for pid in "${started[@]}"; do kill "$pid" && wait "$pid"; done 2>/dev/null
  ip netns delete "$name"
  rm -r "$run"
}
trap clean EXIT

fail() {
  echo "FAILED: $*" >&2
  for role in server client; do podman logs "$name-$role" >&2; done
  exit 1
}

eventually() { # COMMAND…
  for _ in $(seq 60); do
    "$@" >/dev/null 2>&1 && return
    sleep 0.5
  done
  "$@"
}

ip netns add "$name"
ip -netns "$name" link set lo up
# A server without a route refuses what clients ask for; what takes this one is dropped.
ip -netns "$name" link add wan0 type veth peer name wan1
ip -netns "$name" addr add 192.0.2.2/24 dev wan0
ip -netns "$name" link set wan1 up
ip -netns "$name" link set wan0 up
ip -netns "$name" route add default via 192.0.2.1

# Podman asks for more files and processes than a container of ours may have, and its usual runtime for one kind of control groups.
for options in "" "--runtime runc --ulimit nofile=4096:4096 --ulimit nproc=1024:1024"; do
  read -ra run_options <<<"$options"
  podman run --rm "${run_options[@]}" --network "ns:/run/netns/$name" "$image" --version && break
done 2>"$run/refused" || { cat "$run/refused" >&2; fail "podman cannot run the image"; }

in_container() { # ARGUMENT…: podman's arguments, the image, the program's
  podman run "${run_options[@]}" --network "ns:/run/netns/$name" --cap-drop all "$@"
}
once() { # ROLE ARGUMENT…
  local role=$1
  shift
  in_container --rm --volume "$run/$role:/etc/bentpipe" "$image" "$@"
}
start() { # ROLE
  in_container --detach --name "$name-$1" --volume "$run/$1:/etc/bentpipe:ro" --volume "$name-$1:/var/lib/bentpipe" \
    "$image" "$1" --config "/etc/bentpipe/$1.toml" >/dev/null
}

for role in server client; do
  mkdir --mode=750 "$run/$role"
  chown 4433:4433 "$run/$role"
done
once server server init --public 127.0.0.1
once server server add terminal-1 >"$run/added"
code=$(grep --only-matching 'bentpipe://[^ ]*' "$run/added")
# Clients reach public addresses only, unless the server's file says otherwise.
sed --in-place 's|^name = "terminal-1"|&\nallow = ["127.0.0.1:8000"]|' "$run/server/server.toml"
once client client join "$code"

mkdir "$run/web"
head --bytes 5000000 /dev/urandom >"$run/web/file"
ip netns exec "$name" python3 -m http.server --bind 127.0.0.1 --directory "$run/web" 8000 >/dev/null 2>&1 &
started+=($!)

start server
start client
eventually podman exec "$name-client" bentpipe status --check || fail "no tunnel"
podman exec "$name-server" bentpipe status --check || fail "the server is not well"
ip netns exec "$name" curl --silent --fail --max-time 60 --proxy socks5h://127.0.0.1:1080 http://127.0.0.1:8000/file |
  cmp - "$run/web/file" || fail "no download"
podman exec "$name-server" bentpipe status
for role in client server; do
  podman stop "$name-$role" >/dev/null
  code=$(podman inspect --format '{{.State.ExitCode}}' "$name-$role")
  [ "$code" = 0 ] || fail "the $role stops with exit code $code"
done
echo "the image is fit to be run"
