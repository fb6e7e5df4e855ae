#!/bin/sh
# Every fuzzer for ten minutes, then the store under death and company; results go to docs/results/fuzz.txt and store-long.txt.
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

# the store: 1,000 deaths by kill -9, two processes for ten minutes, every crash point with more images
store=docs/results/store-long.txt
[ -f build-gcc/build.ninja ] || meson setup build-gcc -Dtests=enabled -Db_ndebug=false >/dev/null
ninja -C build-gcc >/dev/null
{
    echo "date      $(date -u +%Y-%m-%d)"
    echo "commit    $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
    build-gcc/tests/test-store-stress kill 1000
    build-gcc/tests/test-store-stress share 600
    build-gcc/tests/test-store-fault 20
} > "$part" 2>&1
mv "$part" "$store"
echo "written: $store"
