#!/usr/bin/env bash
# Builds the container's image, `localhost/bentpipe`, with podman, buildah or docker, whichever is here.
set -euo pipefail
cd "$(dirname "$0")/../.."

binary=$(packaging/build.sh "$(uname -m)-unknown-linux-musl" --no-default-features)
context=$(mktemp --directory)
trap 'rm -r "$context"' EXIT
install -D --mode=755 "$binary" "$context/root/usr/bin/bentpipe"
mkdir -p "$context"/root/{etc,var/lib,run}/bentpipe
chmod 750 "$context"/root/{etc,var/lib,run}/bentpipe

for builder in podman buildah docker; do
  command -v "$builder" >/dev/null || continue
  "$builder" build --tag localhost/bentpipe --file packaging/container/Containerfile "$context"
  exit
done
echo "none of podman, buildah and docker is here" >&2
exit 1
