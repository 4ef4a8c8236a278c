# `make test` is what CI runs: it starts from nothing but Rust on Debian 12, as root. See README.md.

.PHONY: help quick demo test test-full limits ablation leak-test selftest deps privileges lint check-targets compat-test docs fuzz fuzz-long tests slow soak bench wire lab seeds deny packages install install-test container-test reproducible-test site
# Each goal takes the machine for itself, but for what `make seeds` runs abreast.
ifndef ABREAST
.NOTPARALLEL:
endif

# One directory for the workspace and for fuzz/, which is a workspace of its own.
export CARGO_TARGET_DIR ?= $(CURDIR)/target

CARGO_DENY_VERSION := 0.20.2
CARGO_DENY := $(CURDIR)/target/tools/cargo-deny-$(CARGO_DENY_VERSION)
CARGO_DEB_VERSION := 3.8.0
CARGO_DEB := $(CURDIR)/target/tools/cargo-deb-$(CARGO_DEB_VERSION)
CARGO_GENERATE_RPM_VERSION := 0.21.1
CARGO_GENERATE_RPM := $(CURDIR)/target/tools/cargo-generate-rpm-$(CARGO_GENERATE_RPM_VERSION)
CARGO_CYCLONEDX_VERSION := 0.5.9
CARGO_CYCLONEDX := $(CURDIR)/target/tools/cargo-cyclonedx-$(CARGO_CYCLONEDX_VERSION)

# Spelling checker: its wheel is there in seconds, where cargo compiles for minutes.
TYPOS_VERSION := 1.52.0
TYPOS := $(CURDIR)/target/tools/typos-$(TYPOS_VERSION)
# Page generator of the site.
MDBOOK_VERSION := 0.5.4
MDBOOK := $(CURDIR)/target/tools/mdbook-$(MDBOOK_VERSION)

help:
	@echo "make quick       format, lints, units and whole systems in virtual time: no root, no namespaces; two minutes once built"
	@echo "make demo        the emulated satellite, with and without bentpipe; about two minutes after the build"
	@echo "make test        format, lints, docs, all tests; as root"
	@echo "make test-full   make test, then the slow tests, benches, licences and sources of dependencies"

	@echo "make fuzz-long   every parser of network input under libFuzzer, FUZZ_SECONDS (60) each, on stable Rust; needs a C++ compiler"
	@echo "make selftest    the link emulator against closed forms, standards and published figures; as root"
	@echo "make leak-test   what crosses the link in clear, in every state of bentpipe's life, killed and restarted; as root."
	@echo "                 LEAK_CONTENDERS=\"openvpn-udp wireguard\" tries others; without a leak it succeeds"
	@echo "make check-targets  the daemon compiles for aarch64, musl, and a unix other than Linux; compiled only, not run"
	@echo "make compat-test  the last release at either end of a link, today's program at the other; as root. COMPAT_WITH=COMMIT, another"
	@echo "make soak        work of every kind over a link that breaks down again and again, SOAK_MINUTES (a day) for each of the tunnel"
	@echo "                 over UDP, over TLS, and sealed connections: nothing is lost and no memory grows; as root"
	@echo "make packages    .deb, .rpm and static .tar.gz for x86_64 and aarch64; make install, with PREFIX and DESTDIR, without them"
	@echo "make install-test  the packages on clean Debian that boot in namespaces, and the static archives; as root"
	@echo "make container-test  the image in podman, a server and a client; as root"
	@echo "make reproducible-test  packages of this machine's architecture, built twice in different places, are the same to the byte"
	@echo "make site        the documentation as a site, in target/site"
	@echo "make lab         bentpipe, plain TCP, OpenVPN and WireGuard over emulated satellites, files and pages in Chromium: half an"
	@echo "                 hour after the build; as root. LAB_EXPERIMENTS=\"rain policer\" runs others of scenarios/"
	@echo "make seeds       every experiment after the papers that bentpipe came from, beside what they published, on one page: an"
	@echo "                 hour after the build; as root. SEEDS_BINARIES=\"qpep=/opt/qpep\" lets that program take part"
	@echo "make limits      how close to the physical limit, and how fair, in virtual time: the whole table; LIMITS_FILTER=G5,"
	@echo "                 LIMITS_SEEDS=3, LIMITS_CONTROLLER=cubic,satellite run a part of it"
	@echo "make ablation    what each part of the controller is for: the rows without one after the other, in a day;"
	@echo "                 LIMITS_FILTER=, ABLATION_PARTS=ceiling,stuck run a part of it"

demo: deps
	cargo build --release --locked
	$(CARGO_TARGET_DIR)/release/bentpipe demo

# What needs no privileges and no particular machine; without the rows of `limits`, which take as long as all of it. All of the
# workspace is named, so that `make test` finds it built with the same features.
QUICK_TESTS := --lib --bins --test workspace --test operator --test sim --test flows
quick:
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo test --locked --workspace --no-fail-fast $(QUICK_TESTS)

# In this order so that cheap checks fail first. All use the dev profile: dependencies are compiled once.
test: deps privileges lint check-targets docs fuzz tests

test-full: test compat-test slow fuzz-long selftest bench wire deny site install-test container-test reproducible-test

deps:
	@.ci/deps

# Without these the tests in namespaces would have to skip themselves.
privileges: deps
	@unshare --net sh -c 'ip tuntap add dev probe mode tun && nft list tables' >/dev/null || \
		{ echo "the tests need root with network namespaces, /dev/net/tun and nftables; see above" >&2; exit 1; }

# The second one looks at the daemon without the lab, as the small packages hold it.
lint:
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo clippy --locked --workspace --no-default-features --bin bentpipe -- -D warnings
	cargo clippy --locked --manifest-path fuzz/Cargo.toml --all-targets -- -D warnings
	@.ci/deps lint
	packaging/lint.sh
	@$(MAKE) --no-print-directory $(TYPOS)/bin/typos
	$(TYPOS)/bin/typos

# What README says that the daemon runs on.
check-targets: deps
	.ci/check-targets

docs:
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps

# The same inputs every time: the corpus and mutations of valid inputs.
fuzz:
	cargo test --locked --manifest-path fuzz/Cargo.toml

# Guided by coverage, from the corpus on: FUZZ_SECONDS for each target, FUZZ_TARGETS="control hello" for some.
FUZZ_SECONDS ?= 60
fuzz-long:
	@.ci/deps fuzz
	FUZZ_SECONDS=$(FUZZ_SECONDS) fuzz/long.sh $(FUZZ_TARGETS)

# Tests at once, two for each processor: those with daemons wait for the satellite nine tenths of their time. With six for each, some
# of two processors take longer than they permit themselves, and with three now and then one.
TEST_THREADS ?= $(shell expr 2 \* $$(nproc))

# Arrows between crates (tests/workspace), units, whole systems in virtual time, daemons and VPNs in namespaces, and pages in
# Chromium.
tests: privileges
	@.ci/deps lab
	RUST_TEST_THREADS=$(TEST_THREADS) BENTPIPE_REQUIRE_ROOT=1 cargo test --locked --workspace --no-fail-fast

# Work of every kind for SOAK_MINUTES, a day, over each way that connections have: nothing is lost, and no memory grows.
SOAK_MINUTES ?= 1440
soak: privileges
	SOAK_MINUTES=$(SOAK_MINUTES) BENTPIPE_REQUIRE_ROOT=1 cargo test --locked --workspace --test tunnel endurance -- --ignored --nocapture

slow: privileges
	@.ci/deps lab
	BENTPIPE_REQUIRE_ROOT=1 cargo test --locked --workspace --no-fail-fast -- --ignored

# Client of the last release with the server of today, and the reverse. COMPAT_WITH=COMMIT takes another one for the release.
COMPAT_WITH ?=
compat-test: privileges
	older=$$(.ci/older $(COMPAT_WITH)) && BENTPIPE_OLDER=$$older BENTPIPE_REQUIRE_ROOT=1 \
		cargo test --locked --workspace --test tunnel everything_crosses_between -- --ignored

# Fails if a row is above its ceiling. LIMITS_FILTER: parts of titles, with commas between.
limits: deps
	cargo test --locked --profile limits -p bentpipe-tunnel --test limits -- --all \
		$(if $(LIMITS_SEEDS),--seeds $(LIMITS_SEEDS)) \
		$(if $(LIMITS_CONTROLLER),--controller $(LIMITS_CONTROLLER)) \
		$(if $(LIMITS_FILTER),--filter "$(LIMITS_FILTER)")

# Prints the rows that leave the spread of three seeds without one part of `satellite`. The switch for that is compiled here alone.
ABLATION_PARTS ?= each
ablation: deps
	cargo test --locked --profile limits -p bentpipe-tunnel --features ablation --test limits -- --all \
		--without $(ABLATION_PARTS) $(if $(LIMITS_FILTER),--filter "$(LIMITS_FILTER)")

# The emulator against closed forms, standards and published figures: the whole table. Fails if a row fails; rows that this
# machine is too busy for say INVALID.
selftest: privileges
	cargo build --release --locked
	$(CARGO_TARGET_DIR)/release/bentpipe emulate --selftest

# Everything that a machine can send, through start, kills, restarts, outages and stop, with a capture on the link.
LEAK_CONTENDERS ?= bentpipe bentpipe-tls bentpipe-sle bentpipe-les
leak-test: privileges
	cargo build --release --locked
	for name in $(LEAK_CONTENDERS); do $(CARGO_TARGET_DIR)/release/bentpipe lab leaks $$name || failed=1; done; \
		exit $${failed:-0}

# CPU seconds per gigabyte, beside plain quinn-proto in the same run; fails above its ceiling.
bench:
	cargo bench --locked --bench cpu
	cargo bench --locked --bench tunnels

# Downloads over the emulated satellite, beside the kernel's CUBIC and BBR in the same run.
wire: privileges
	cargo bench --locked --bench wire

# The quick size of the experiments in scenarios/. Ended and started again it goes on where it was; a run that this machine was
# too busy for says `invalid`, and LAB_OPTIONS=--retry makes it again.
LAB_EXPERIMENTS ?= cnes qpep-goodput qpep-pages fau starlink
lab: privileges
	@.ci/deps lab
	cargo build --release --locked
	for name in $(LAB_EXPERIMENTS); do \
		$(CARGO_TARGET_DIR)/release/bentpipe lab run scenarios/$$name.toml --quick $(LAB_OPTIONS) || exit 1; \
	done
	$(CARGO_TARGET_DIR)/release/bentpipe lab report --page lab-results/quick.html \
		$(LAB_EXPERIMENTS:%=lab-results/%-quick)

# The experiments after the seed papers, each as NAME-SIZE, on one page: lab-results/seeds.html; the findings are in seeds.md
# beside it and each figure in figures/. A run whose figures are doubted is made again once. Ended and started again it goes on
# where it was. A program of SEEDS_BINARIES is given to those that name it. Links of half a megabit, and transactions of 22 kB a
# second, take next to no processor time: three of their runs are made at a time, beside the others.
SEEDS_THIN := skycasters-published skycasters-rtt-quick les-published
SEEDS_OTHERS := dssl-published cnes-quick cnes-lan-quick qpep-pages-quick qpep-goodput-quick qpep-snr-published qpep-tuning-quick qpep-leo-quick qpep-plr-quick
SEEDS_BINARIES ?=
# Runs experiments $(1), with options $(2).
define run-seeds
	for retry in "" --retry=invalid; do for experiment in $(1); do \
		file=scenarios/$${experiment%-*}.toml binaries=; \
		for binary in $(SEEDS_BINARIES); do \
			if grep -q "\"$${binary%%=*}\"" $$file; then binaries="$$binaries --binary $$binary"; fi; \
		done; \
		$(CARGO_TARGET_DIR)/release/bentpipe lab run $$file --$${experiment##*-} $(2) $$retry $$binaries || exit 1; \
	done; done
endef
SEEDS_SHARDS := 1 2 3
.PHONY: seeds-others $(SEEDS_SHARDS:%=seeds-thin-%)
$(SEEDS_SHARDS:%=seeds-thin-%): seeds-thin-%:
	$(call run-seeds,$(SEEDS_THIN),--shard $*/3)
seeds-others:
	$(call run-seeds,$(SEEDS_OTHERS))
seeds: privileges
	@.ci/deps lab
	cargo build --release --locked
	$(MAKE) --no-print-directory ABREAST=yes --jobs=4 seeds-others $(SEEDS_SHARDS:%=seeds-thin-%)
	for experiment in $(SEEDS_THIN); do \
		rm -rf lab-results/$$experiment-merged; \
		$(CARGO_TARGET_DIR)/release/bentpipe lab merge --output lab-results/$$experiment-merged lab-results/$$experiment-?-of-3 || exit 1; \
	done
	$(CARGO_TARGET_DIR)/release/bentpipe lab report --page lab-results/seeds.html --markdown lab-results/seeds.md \
		--figures lab-results/figures $(SEEDS_THIN:%=lab-results/%-merged) $(SEEDS_OTHERS:%=lab-results/%)

# target/site, from docs/ and the pages beside it; the page of commands comes from the program. tests/workspace follows its links.
site: $(MDBOOK)/bin/mdbook
	[ -x $(BINARY) ] || cargo build --release --locked
	MDBOOK=$(MDBOOK)/bin/mdbook BINARY=$(BINARY) site/build.sh target/site

deny: $(CARGO_DENY)/bin/cargo-deny
	$< check bans licenses sources

# Built in directories of their own, which cargo removes again.
$(CARGO_DENY)/bin/cargo-deny:
	env -u CARGO_TARGET_DIR cargo install --locked --root $(CARGO_DENY) --version $(CARGO_DENY_VERSION) cargo-deny
$(CARGO_DEB)/bin/cargo-deb:
	env -u CARGO_TARGET_DIR cargo install --locked --root $(CARGO_DEB) --version $(CARGO_DEB_VERSION) cargo-deb
$(CARGO_GENERATE_RPM)/bin/cargo-generate-rpm:
	env -u CARGO_TARGET_DIR cargo install --locked --root $(CARGO_GENERATE_RPM) --version $(CARGO_GENERATE_RPM_VERSION) \
		cargo-generate-rpm
$(CARGO_CYCLONEDX)/bin/cargo-cyclonedx:
	env -u CARGO_TARGET_DIR cargo install --locked --root $(CARGO_CYCLONEDX) --version $(CARGO_CYCLONEDX_VERSION) cargo-cyclonedx

$(TYPOS)/bin/typos:
	python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target $(TYPOS) typos==$(TYPOS_VERSION)
# Without the server and what watches files.
$(MDBOOK)/bin/mdbook:
	env -u CARGO_TARGET_DIR cargo install --locked --root $(MDBOOK) --version $(MDBOOK_VERSION) --no-default-features \
		--features search mdbook

# target/packages: .deb, .rpm and static .tar.gz for x86_64 and aarch64, SHA256SUMS and what is in them. PACKAGES_FOR="x86_64"
# makes those of one architecture.
packages: $(CARGO_DEB)/bin/cargo-deb $(CARGO_GENERATE_RPM)/bin/cargo-generate-rpm $(CARGO_CYCLONEDX)/bin/cargo-cyclonedx
	@.ci/deps packages
	CARGO_DEB=$(CARGO_DEB)/bin/cargo-deb CARGO_GENERATE_RPM=$(CARGO_GENERATE_RPM)/bin/cargo-generate-rpm \
		CARGO_CYCLONEDX=$(CARGO_CYCLONEDX)/bin/cargo-cyclonedx packaging/packages.sh

# Two clean Debian that boot in namespaces: install, configure, start, a page through the tunnel, upgrade, remove, purge. Then the
# static archives, of another architecture under qemu.
install-test: privileges packages
	@.ci/deps install
	packaging/test.sh "$$(ls target/packages/*_$$(dpkg --print-architecture).deb)"
	packaging/test-rpm.sh target/packages/*.$$(uname -m).rpm target/packages/*_$$(dpkg --print-architecture).deb
	for archive in target/packages/*.tar.gz; do packaging/test-static.sh $$archive || exit 1; done

container-test: privileges
	@if command -v podman >/dev/null; then packaging/container/build.sh && packaging/container/test.sh; \
		else echo "skipped: the container's image, which is tried with podman"; fi

# The committed state, twice: what is not committed is in neither.
reproducible-test: $(CARGO_DEB)/bin/cargo-deb $(CARGO_GENERATE_RPM)/bin/cargo-generate-rpm $(CARGO_CYCLONEDX)/bin/cargo-cyclonedx
	@.ci/deps packages
	CARGO_DEB=$(CARGO_DEB)/bin/cargo-deb CARGO_GENERATE_RPM=$(CARGO_GENERATE_RPM)/bin/cargo-generate-rpm \
		CARGO_CYCLONEDX=$(CARGO_CYCLONEDX)/bin/cargo-cyclonedx PACKAGES_FOR="$${PACKAGES_FOR:-$$(uname -m)}" \
		packaging/test-reproducible.sh

# Program, units, completions and man pages below PREFIX; DESTDIR fills another root. BINARY installs what was built elsewhere.
PREFIX ?= /usr/local
BINARY ?= $(CARGO_TARGET_DIR)/release/bentpipe
install:
	[ -x $(BINARY) ] || cargo build --release --locked
	PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) BINARY=$(BINARY) packaging/install.sh
