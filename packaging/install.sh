#!/usr/bin/env bash
# Installs the program, its units, completions and man pages: the one list of what packages hold, too.
#
#   BINARY     the program
#   GENERATOR  the same program for the machine that this runs on, if BINARY is for another one
#   PREFIX     /usr/local; units and completions name it
#   DESTDIR    a root that is filled instead of the machine's own
set -euo pipefail
cd "$(dirname "$0")/.."

: "${BINARY:?}" "${PREFIX:=/usr/local}" "${GENERATOR:=$BINARY}"
to=${DESTDIR:-}$PREFIX

put() { # MODE FILE DIRECTORY [NAME]
  install -D --mode="$1" "$2" "$to/$3/${4:-$(basename "$2")}"
}

put 755 "$BINARY" bin bentpipe

for unit in packaging/systemd/*.service; do
  put 644 "$unit" lib/systemd/system
  sed --in-place "s|/usr/bin/bentpipe|$PREFIX/bin/bentpipe|" "$to/lib/systemd/system/$(basename "$unit")"
done
put 644 packaging/systemd/bentpipe.sysusers lib/sysusers.d bentpipe.conf
put 644 packaging/systemd/bentpipe.tmpfiles lib/tmpfiles.d bentpipe.conf

# As they lie in the repository, so that their links lead to each other, and with the files that they name.
documents=(README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT ARCHITECTURE.md CONTRIBUTING.md PROTOCOL.md SECURITY.md)
for document in "${documents[@]}" docs/*.md docs/*.svg docs/*/*.md packaging/monitoring/* scenarios/*.toml; do
  put 644 "$document" "share/doc/bentpipe/$(dirname "$document")"
done

generated=$(mktemp --directory)
trap 'rm -r "$generated"' EXIT
if "$GENERATOR" generate "$generated" 2>"$generated/refused"; then
  put 644 "$generated/completions/bentpipe.bash" share/bash-completion/completions bentpipe
  put 644 "$generated/completions/_bentpipe" share/zsh/site-functions
  put 644 "$generated/completions/bentpipe.fish" share/fish/vendor_completions.d
  for page in "$generated"/man/*.1; do
    gzip --best --no-name "$page"
    put 644 "$page.gz" share/man/man1
  done
else
  echo "no completions and man pages: $(head -1 "$generated/refused")" >&2
fi
