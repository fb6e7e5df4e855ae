#!/bin/sh
# Every fuzzer for ten minutes; what came of it goes to docs/results/fuzz.txt.
set -eu
cd "$(dirname "$0")/.."
seconds=${MOTE_FUZZ_SECONDS:-600}
mkdir -p docs/results
out=docs/results/fuzz.txt
part=build-fuzz-result.tmp
trap 'rm -f "$part"' EXIT
{
    echo "date      $(date -u +%Y-%m-%d)"
    echo "commit    $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
    echo "compiler  $(clang --version | head -n 1)"
    echo "seconds   $seconds a fuzzer"
} > "$part"
for f in fuzz/*.c; do
    name=$(basename "$f" .c)
    tools/fuzz.sh "$seconds" "$name" >> "$part"
    tail -n 4 "$part"
done
mv "$part" "$out"
echo "written: $out"
