#!/usr/bin/env bash
# Makes the site: `MDBOOK=… BINARY=… site/build.sh DIRECTORY`. Pages keep the places that they have in the repository, so that a link
# leads to the same page here and there; the page of commands is written by the program.
set -euo pipefail
cd "$(dirname "$0")/.."

: "${MDBOOK:?}" "${BINARY:?}"
to=$(realpath --canonicalize-missing "$1")
stage=$(mktemp --directory)
trap 'rm -r "$stage"' EXIT

mkdir "$stage/src"
cp site/book.toml "$stage"
cp site/SUMMARY.md ./*.md LICENSE-* "$stage/src"
cp --recursive docs "$stage/src"
"$BINARY" generate "$stage/generated"
cp "$stage/generated/commands.md" "$stage/src/docs"

rm -rf "$to"
"$MDBOOK" build --dest-dir "$to" "$stage"
# The index of a directory takes its place; links in the pages say README.
find "$to" -name "*.html" -exec sed -i 's/\(href="[^"]*\)README\.html/\1index.html/g' {} +
site/links.py "$to"
echo "the site is $to/index.html"
