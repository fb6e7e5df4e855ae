#!/bin/sh
# Replay each fuzzer's corpus, then run it.   tools/fuzz.sh SECONDS [NAME...]
#   tools/fuzz.sh build: the library alone; after it several of these may run at once
set -eu
cd "$(dirname "$0")/.."
seconds=$1
shift

work=build-fuzz
mkdir -p "$work"
[ -f "$work/build.ninja" ] || CC=clang meson setup "$work" -Dtests=disabled -Db_ndebug=false -Db_sanitize=address,undefined -Db_lundef=false -Doptimization=1 \
    -Dc_args='-fsanitize=fuzzer-no-link -Wno-pass-failed' >/dev/null
[ "$seconds" != build ] && [ -n "${MOTE_FUZZ_BUILT:-}" ] || ninja -C "$work" libs >/dev/null
[ "$seconds" != build ] || exit 0
[ $# -gt 0 ] || set -- $(cd fuzz && ls *.c | sed 's/\.c$//')
libs=$(pkg-config --libs jansson libpcre2-8 libutf8proc sqlite3 liburing libcrypto hiredis)
kern=$(ls "$work"/src/kern/*.a 2>/dev/null || true)
for name; do
    # shellcheck disable=SC2086
    clang -g -O1 -std=c17 -D_GNU_SOURCE -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -Iinclude -Isrc \
        "fuzz/$name.c" -o "$work/fuzz-$name" "$work"/src/lab/liblab.a "$work"/src/libmote.a $kern $libs -lpthread -lm
    mkdir -p "$work/corpus-$name"
    echo "-- $name: corpus"
    "$work/fuzz-$name" -runs=0 "fuzz/corpus/$name" 2>&1 | tail -n 1
    echo "-- $name: $seconds s"
    "$work/fuzz-$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$work/$name-" "$work/corpus-$name" "fuzz/corpus/$name" >"$work/$name.log" 2>&1 ||
        { tail -n 40 "$work/$name.log"; echo "fuzz.sh: $name failed" >&2; exit 1; }
    grep -E 'stat::number_of_executed_units|stat::peak_rss_mb' "$work/$name.log" | sed 's/stat:://'
done
