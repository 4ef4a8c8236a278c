#!/usr/bin/env bash
# Tries a .deb as a new operator does: `packaging/test.sh FILE.deb`, as root.
#
#   lan ── terminal: Debian, systemd, the package ══ gateway: the same ── web
#
# Two clean Debian 12 boot in namespaces (systemd-nspawn). The package is installed on both, configured, started, asked for a page
# from the LAN, reloaded, killed, removed and purged.
set -euo pipefail
cd "$(dirname "$0")/.."

deb=$(realpath "$1")
place=$PWD/target/install-test
world=bp-inst-$$
mkdir -p "$place"
run=$(mktemp --directory "$place/run.XXXXXX")
declare -A leader=()
started=()

clean() {
  set +e
  # A container does not end with the program that started it.
  for pid in "${leader[@]}" "${started[@]}"; do kill -KILL "$pid"; wait "$pid"; done 2>/dev/null
  for name in terminal gateway; do umount --lazy "$run/$name/root" 2>/dev/null; done
  for name in lan terminal gateway web; do ip netns delete "$world-$name" 2>/dev/null; done
  rm -rf "$run"
}
trap clean EXIT

fail() {
  echo "FAILED: $*" >&2
  for name in "${!leader[@]}"; do
    inside "$name" journalctl --no-pager --unit 'bentpipe*' | tail -40 >&2 || true
  done
  exit 1
}

# Runs a command in a Debian of these: as its root, in its namespaces.
inside() {
  local name=$1
  shift
  nsenter --target "${leader[$name]}" --all -- env -i PATH=/usr/sbin:/usr/bin LC_ALL=C.UTF-8 "$@"
}

expect() { # WHAT COMMAND…
  local what=$1
  shift
  "$@" >"$run/out" 2>&1 || { cat "$run/out" >&2; fail "$what"; }
  echo "ok: $what"
}

not() { ! "$@"; }

eventually() { # COMMAND…
  for _ in $(seq 60); do
    "$@" >/dev/null 2>&1 && return
    sleep 0.5
  done
  "$@"
}

# The archive is kept: what is downloaded for it does not change from one run to the next.
if [ ! -e "$place/debian.tar" ]; then
  mmdebstrap --quiet --format=tar --variant=minbase --include=systemd,systemd-sysv,dbus,nftables,iproute2,procps \
    bookworm "$place/debian.tar.new"
  mv "$place/debian.tar.new" "$place/debian.tar"
fi
mkdir "$run/debian"
tar --extract --file "$place/debian.tar" --directory "$run/debian"
# Here the network is ready before the machine is.
for unit in systemd-networkd systemd-networkd-wait-online systemd-firstboot; do
  ln -sf /dev/null "$run/debian/etc/systemd/system/$unit.service"
done
systemd-id128 new >"$run/debian/etc/machine-id"

for name in lan terminal gateway web; do
  ip netns add "$world-$name"
  ip -netns "$world-$name" link set lo up
done
link() { # NAMESPACE DEVICE ADDRESS NAMESPACE DEVICE ADDRESS
  ip -netns "$world-$1" link add "$2" type veth peer name "$5" netns "$world-$4"
  ip -netns "$world-$1" addr add "$3" dev "$2"
  ip -netns "$world-$4" addr add "$6" dev "$5"
  ip -netns "$world-$1" link set "$2" up
  ip -netns "$world-$4" link set "$5" up
}
link lan eth0 10.1.7.2/24 terminal lan0 10.1.7.1/24
link terminal sat0 192.0.2.2/24 gateway sat0 192.0.2.1/24
link gateway wan0 93.184.216.1/24 web eth0 93.184.216.34/24
ip -netns "$world-lan" route add default via 10.1.7.1
ip -netns "$world-terminal" route add default via 192.0.2.1
ip -netns "$world-gateway" route add default via 93.184.216.34
ip -netns "$world-gateway" -6 route add default dev wan0

mkdir "$run/web"
echo "a page from the web" >"$run/web/index.html"
ip netns exec "$world-web" python3 -m http.server --directory "$run/web" 80 >/dev/null 2>&1 &
started+=($!)

# As udev makes it, which does not run in a container.
mknod --mode=666 "$run/tun" c 10 200

boot() {
  local name=$1
  mkdir -p "$run/$name"/{root,upper,work}
  mount -t overlay overlay "$run/$name/root" \
    -o "lowerdir=$run/debian,upperdir=$run/$name/upper,workdir=$run/$name/work"
  cp "$deb" "$run/$name/root/root/bentpipe.deb"
  SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 systemd-nspawn --quiet --directory "$run/$name/root" --machine "$world-$name" --boot \
    --register=no --keep-unit --network-namespace-path="/run/netns/$world-$name" --bind="$run/tun:/dev/net/tun" \
    --capability=CAP_NET_ADMIN \
    --system-call-filter="landlock_create_ruleset landlock_add_rule landlock_restrict_self" \
    --console=pipe </dev/null >"$run/$name/log" 2>&1 &
  started+=($!)
  local nspawn=$!
  for _ in $(seq 60); do
    leader[$name]=$(pgrep --parent "$nspawn" || true)
    [ -n "${leader[$name]}" ] && inside "$name" systemctl is-system-running 2>/dev/null | grep --quiet 'running\|degraded' && break
    sleep 0.5
  done
  [ -n "${leader[$name]}" ] || { cat "$run/$name/log" >&2; fail "$name does not boot"; }
}
boot gateway
boot terminal

began=$SECONDS
steps=0
for name in gateway terminal; do
  steps=$((steps + 1))
  expect "$name: installs" inside "$name" dpkg --install /root/bentpipe.deb
  expect "$name: nothing runs that has no configuration" not inside "$name" pgrep bentpipe
  expect "$name: /etc/bentpipe is the daemons' own" \
    test "$(inside "$name" stat --format '%U %G %a' /etc/bentpipe)" = "bentpipe bentpipe 750"
  expect "$name: units are as systemd wants them" inside "$name" systemd-analyze verify --man=no \
    bentpipe-server.service bentpipe-client.service bentpipe-guard.service bentpipe-pep.service bentpipe-origin.service
done

# What an operator types from here to the first page, on both machines: the package's installation is two more.
step() { # NAME COMMAND…
  local name=$1
  shift
  steps=$((steps + 1))
  inside "$name" "$@" >"$run/out" 2>&1 || { cat "$run/out" >&2; fail "$name: $*"; }
  echo "ok: $name# $*"
}

page() {
  ip netns exec "$world-lan" curl --silent --max-time 5 http://93.184.216.34/ | grep --quiet "a page from the web"
}
runs() { # NAME UNIT
  [ "$(inside "$1" systemctl show --property ActiveState --value "$2")" = active ]
}
property() { # NAME UNIT PROPERTY
  inside "$1" systemctl show --property "$3" --value "$2"
}

step gateway bentpipe server init --public 192.0.2.1
step gateway systemctl enable --now bentpipe-server
step gateway bentpipe server add terminal-1
code=$(grep --only-matching 'bentpipe://[^ ]*' "$run/out")
step terminal bentpipe client join "$code" --lan lan0
step terminal systemctl enable --now bentpipe-guard
step terminal systemctl enable --now bentpipe-client
expect "a page comes through the tunnel" eventually page
took=$((SECONDS - began))
echo "from nothing to a page: $steps commands, $took s"
expect "in at most ten commands and three minutes" test "$steps" -le 10 -a "$took" -le 180
expect "the tunnel is up" inside terminal bentpipe status --check
expect "ping comes through the tunnel" eventually ip netns exec "$world-lan" ping -c 1 -W 3 93.184.216.34
expect "root sees the server's status" inside gateway bentpipe status
cat "$run/out"
expect "the sandbox holds as well" inside gateway sh -c "bentpipe status | grep 'sandbox.*enforced'"
expect "systemd shows how the client fares" \
  sh -c "echo '$(property terminal bentpipe-client StatusText)' | grep 'tunnel to 192.0.2.1:4433'"
expect "no daemon had to be started anew" \
  test "$(property gateway bentpipe-server NRestarts) $(property terminal bentpipe-client NRestarts)" = "0 0"
expect "daemons are not root" not inside terminal pgrep --uid 0 bentpipe
expect "nothing is logged that a journal would call a warning" \
  not inside gateway sh -c "journalctl --unit bentpipe-server | grep -E ' (WARN|ERROR) ' | grep -v 'open files'"
expect "nothing is logged that a journal would call a warning, at the terminal" \
  not inside terminal sh -c "journalctl --unit bentpipe-client | grep -E ' (WARN|ERROR) ' | grep -v 'open files'"

expect "the daemons' user may add a client to the running server" \
  inside gateway sh -c "runuser -u bentpipe -- bentpipe server add terminal-2 2>&1 | grep 'reads its clients again'"
expect "and finds who has joined" \
  not inside gateway sh -c "runuser -u bentpipe -- bentpipe server list | grep '^terminal-1 .*not joined'"
expect "what its documents link to is installed" inside gateway sh -c 'cd /usr/share/doc/bentpipe &&
  ls docs/tutorial.md docs/pages.svg docs/sealed.md docs/tasks/guard.md docs/tasks/tls.md packaging/monitoring/alerts.yml scenarios/cnes.toml'
expect "completions and man pages are installed" inside gateway sh -c 'cd /usr/share &&
  ls bash-completion/completions/bentpipe zsh/site-functions/_bentpipe fish/vendor_completions.d/bentpipe.fish \
    man/man1/bentpipe.1.gz man/man1/bentpipe-server-add.1.gz'
inside gateway bentpipe --version | tr '\n' ' ' >"$run/version"
expect "the version names commit, target and features" \
  grep --extended-regexp 'commit: [0-9a-f]{12}.* target: .*-gnu .*features: .*lab' "$run/version"

expect "a reload is taken" inside gateway systemctl reload bentpipe-server
expect "and is over" eventually runs gateway bentpipe-server
inside gateway sh -c 'echo "no_such_key = 1" > /etc/bentpipe/more && cp /etc/bentpipe/server.toml /root/ &&
  cat /etc/bentpipe/more /root/server.toml > /etc/bentpipe/server.toml && rm /etc/bentpipe/more'
expect "a reload of a faulty file is refused" not inside gateway systemctl reload bentpipe-server
expect "and the server goes on" page
inside gateway dpkg --install /root/bentpipe.deb >"$run/upgrade" 2>&1 || fail "an upgrade with a faulty file"
expect "an upgrade names the faulty file" grep "bentpipe-server goes on with the old program: .*/etc/bentpipe/server.toml" "$run/upgrade"
expect "and the server goes on after the upgrade" page
inside gateway systemctl restart bentpipe-server >/dev/null 2>&1 || true
sleep 7
expect "a wrong configuration waits for its operator" \
  test "$(property gateway bentpipe-server ActiveState) $(property gateway bentpipe-server NRestarts)" = "failed 0"
inside gateway sh -c 'cp /root/server.toml /etc/bentpipe/server.toml && systemctl restart bentpipe-server'
expect "the tunnel comes back after the server's restart" eventually page

inside terminal systemctl kill --signal=KILL bentpipe-client
expect "a client that was killed is started anew" eventually page
expect "once" test "$(property terminal bentpipe-client NRestarts)" = 1
expect "a client's reload is taken" inside terminal systemctl reload bentpipe-client
expect "and the client goes on" page
expect "the client stops" inside terminal systemctl stop bentpipe-client
expect "and its table goes" not inside terminal nft list table inet bentpipe_client
expect "the guard's stays" inside terminal nft list table inet bentpipe_guard
inside terminal systemctl start bentpipe-client
expect "the package is installed again, which starts the daemons anew" inside terminal dpkg --install /root/bentpipe.deb
expect "the guard's rules are replaced before the client starts anew" inside terminal sh -c 'journalctl --no-pager --output cat \
    --unit bentpipe-guard --unit bentpipe-client | grep -E "^(Reloaded bentpipe-guard|Stopping bentpipe-client)" | tail -2 |
    head -1 | grep Reloaded'
expect "the guard stood through that" inside terminal nft list table inet bentpipe_guard
expect "a page comes through the tunnel after that" eventually page

# Before the web server, in clear on its way there; the site's certificate is the machine's own.
etc=$run/gateway/root/etc/bentpipe
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=site.test \
  -addext subjectAltName=DNS:site.test -keyout "$etc/site.key" -out "$etc/site.crt" 2>/dev/null
key=$(inside gateway bentpipe genkey | inside gateway bentpipe pubkey)
cat >"$etc/origin.toml" <<EOF
[origin]
listen = "192.0.2.1:443"
upstream = "http://93.184.216.34:80"
certificate = "site.crt"
key = "site.key"
hubs = ["$key"]
EOF
inside gateway sh -c 'chmod 600 /etc/bentpipe/site.key && chown bentpipe: /etc/bentpipe/origin.toml /etc/bentpipe/site.*'
site() {
  ip netns exec "$world-gateway" curl --silent --max-time 5 --cacert "$etc/site.crt" --resolve site.test:443:192.0.2.1 \
    https://site.test/ | grep --quiet "a page from the web"
}
expect "an origin starts" inside gateway systemctl enable --now bentpipe-origin
expect "a page comes through it" eventually site
expect "its reload is taken" inside gateway systemctl reload bentpipe-origin
expect "and it goes on" eventually site

for name in gateway terminal; do
  expect "$name: removes" inside "$name" dpkg --remove bentpipe
  expect "$name: nothing runs" not inside "$name" pgrep bentpipe
  expect "$name: nothing is left in the kernel" not inside "$name" sh -c "nft list tables | grep bentpipe"
  expect "$name: configuration and state are left" inside "$name" sh -c \
    'ls /etc/bentpipe/*.toml /etc/bentpipe/*.key && test -d /var/lib/bentpipe'
  expect "$name: purges" inside "$name" dpkg --purge bentpipe
  expect "$name: nothing is left" not inside "$name" sh -c \
    'find /etc /run /usr /var/lib -xdev -name "*bentpipe*" | grep . || getent passwd bentpipe'
done
echo "the package is fit to be installed"
