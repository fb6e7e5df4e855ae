#!/bin/sh
# All that CI runs; make test calls it. A step that fails is reported and the others still run; the last line counts the tests
# ("N passed, N failed") and the exit status is 1 if any failed.
#   tools/test.sh [STEP...]     steps: bare format gcc clang levels oldcpu header install asan tsan fuzz (default: all)
# The product alone is built in build/, as `make build` does; a test build has a folder of its own (build-gcc, build-clang, ...).
set -u
cd "$(dirname "$0")/.." || exit 1
passed=0 failed=0
jobs=$(nproc)

note() { printf '\n== %s\n' "$*"; }
ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); printf 'FAILED  %s\n' "$*"; }
check() { what=$1; shift; if "$@"; then ok; else bad "$what"; fi; }

# the product, without its tests
product() { make build >build.log 2>&1 && rm -f build.log || { tail -n 40 build.log; return 1; }; }
setup() {
    dir=$1; shift
    # golden vectors take a minute: those of build-gcc serve the other builds
    golden=
    [ "$dir" = build-gcc ] || [ ! -f build-gcc/tests/model/golden-llama.stamp ] || golden=-Dgolden=$PWD/build-gcc/golden
    # shellcheck disable=SC2086
    [ -f "$dir/build.ninja" ] || meson setup "$dir" -Dtests=enabled -Db_ndebug=false $golden "$@" >"$dir.log" 2>&1 || { cat "$dir.log"; return 1; }
    # shellcheck disable=SC2086
    ninja -C "$dir" ${targets:-} >"$dir.log" 2>&1 || { grep -E 'error|warning|FAILED' "$dir.log" | head -n 40; return 1; }
    rm -f "$dir.log"
}
# suite DIR WRAPPER TESTS: run the tests of a build directory (all when TESTS is empty) and add up meson's own count
suite() {
    dir=$1 wrapper=$2 tests=$3
    log=$dir/meson-logs/testlog.txt
    rm -f "$log"
    # shellcheck disable=SC2086
    $wrapper meson test -C "$dir" --no-rebuild --print-errorlogs --num-processes "$jobs" $tests 2>&1 | grep -vE '^(ninja|$)'
    n() { sed -n "s/^$1: *\([0-9]*\) *$/\1/p" "$log" 2>/dev/null | tail -n 1; }
    [ -f "$log" ] || { bad "$dir: the tests did not run"; return; }
    good=$(n Ok) wrong=$(( $(n Fail) + $(n 'Unexpected Pass') + $(n Timeout) ))
    passed=$((passed + ${good:-0}))
    failed=$((failed + wrong))
}
# build_and_test TESTS DIR [meson options]
build_and_test() { which=$1; shift; if setup "$@"; then suite "$1" "" "$which"; else bad "$1 does not build"; fi; }

# What a newcomer's machine has: no NumPy, and no cmocka unless a test step installed it. Runs before those are installed.
step_bare() {
    note "bare: make demo with NumPy hidden"
    mkdir -p build-bare/numpy
    echo 'raise ImportError("hidden by tools/test.sh")' > build-bare/numpy/__init__.py
    if PYTHONPATH=$PWD/build-bare python3 -c 'import numpy' 2>/dev/null; then bad "NumPy is not hidden"; return; fi
    echo "NumPy: hidden; cmocka: $(pkg-config --modversion cmocka 2>/dev/null || echo not installed)"
    check "make demo without NumPy" env PYTHONPATH="$PWD/build-bare" make demo
}
step_gcc() {
    note "gcc"; build_and_test "" build-gcc
    note "gcc, without the store's remote tier"
    targets="tests/test-store-store tests/test-store-without_remote src/cli/mote"
    build_and_test "store/store store/without_remote" build-local -Dremote=disabled
    targets=
}
# what depends on the kernels; the scalar ones are a hundred times slower: there only what runs on small models
# tests of numbers, on small models
by_level="model/golden model/trace kern/few kern/kern kern/linear kern/attend kern/attend_dense kern/topk num/formats num/kvfmt kv/cache model/dense"
# another compiler: that it builds, and that numbers keep their bits
step_clang() { note "clang"; CC=clang build_and_test "$by_level model/bits base/mem base/threads file/config text/tokenizer" build-clang; }
step_levels() {
    note "CPU levels hidden: avx512"
    if setup build-gcc; then MOTE_CPU_MASK=avx512 suite build-gcc "" "$by_level model/bits engine/persist"; else bad "build-gcc"; return; fi
    note "CPU levels hidden: avx512 and avx2"
    MOTE_CPU_MASK=avx512,avx2 suite build-gcc "" "$by_level"
}
# ThreadSanitizer wants addresses where it expects them; not every container allows the switch
plain_addresses() { if setarch -R true 2>/dev/null; then setarch -R "$@"; else "$@"; fi; }
step_asan() {
    note "ASan and UBSan"
    build_and_test "--no-suite heavy" build-asan -Db_sanitize=address,undefined -Db_lundef=false -Doptimization=2
}
# what uses threads; the rest would only be slow
threaded="base/threads engine/beside io/reads model/streamed model/bits model/dense model/trace kern/linear kern/kern store/store store/remote"
step_tsan() {
    note "TSan"
    targets=$(for t in $threaded; do
        case $t in model/* | engine/*) echo "tests/model/test-${t%/*}-${t#*/}" ;; *) echo "tests/test-${t%/*}-${t#*/}" ;; esac
    done)
    if setup build-tsan -Db_sanitize=thread -Db_lundef=false -Doptimization=2; then suite build-tsan plain_addresses "$threaded"; else bad "build-tsan"; fi
    targets=
}
step_oldcpu() {
    note "an old CPU (no AVX) under emulation says the same as this one"
    product || { bad "build"; return; }
    qemu=$(command -v qemu-x86_64 || command -v qemu-x86_64-static)
    want=$(build/src/cli/mote run models/nano -p 'It was a truth' -n 4 --temp 0)
    got=$("$qemu" -cpu Nehalem build/src/cli/mote run models/nano -p 'It was a truth' -n 4 --temp 0)
    check "old CPU: '$got' instead of '$want'" test -n "$want" -a "$want" = "$got"
}
exports() { nm -D --defined-only build/src/libmote.so | awk '{print $3}' | grep -v '^mote_[a-z]'; }
step_header() {
    note "each public header alone, in C and C++; exports"
    product || { bad "build"; return; }
    for h in include/mote/*.h; do
        name=$(basename "$h")
        printf '#include <mote/%s>\nint main(void) { return mote_version() == 0; }\n' "$name" > build/header.c
        check "$name in C" gcc -std=c99 -pedantic -Wall -Wextra -Werror -Iinclude -fsyntax-only build/header.c
        check "$name in C++" g++ -std=c++11 -pedantic -Wall -Wextra -Werror -Iinclude -fsyntax-only -x c++ build/header.c
        check "$name has at most 400 lines" test "$(wc -l < "$h")" -le 400
    done
    foreign=$(exports || true)
    check "exported without mote_: $foreign" test -z "$foreign"
}
step_format() {
    note "clang-format"
    check "make format changes nothing" tools/format.sh --dry-run -Werror
    long=$(grep -rlE '.{101}' include src tests fuzz --include='*.[ch]')
    check "lines over 100 columns: $long" test -z "$long"
}
# an installed copy serves a stranger's program through pkg-config, shared and static
step_install() {
    note "install, pkg-config"
    product || { bad "build"; return; }
    root=$PWD/build/installed
    rm -rf "$root"
    DESTDIR=$root meson install -C build --no-rebuild >/dev/null
    pc=$(dirname "$(find "$root" -name mote.pc)")
    cat > build/stranger.c <<'EOF'
#include <mote/mote.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    mote_err err;
    mote_model *model;
    if (argc < 2 || mote_model_open(&model, argv[1], NULL, &err))
        return 1;
    mote_model_info info;
    mote_model_get_info(model, &info);
    printf("%zu layers\n", info.n_layers);
    mote_model_close(model);
    return 0;
}
EOF
    export PKG_CONFIG_SYSROOT_DIR="$root" PKG_CONFIG_PATH="$pc"
    # nothing that only our own sources need, and no other package
    flags="$(pkg-config --cflags mote)"
    check "mote.pc names '$flags'" test "$(echo $flags)" = "-I$root/usr/local/include"
    # shellcheck disable=SC2046
    check "links" gcc build/stranger.c $(pkg-config --cflags --libs mote) -o build/stranger
    check "runs" env LD_LIBRARY_PATH="$(dirname "$pc")" build/stranger models/nano
    check "command" env LD_LIBRARY_PATH="$(dirname "$pc")" "$(find "$root" -name mote -type f -perm -u+x | head -n 1)" --version
    check "man page" test -n "$(find "$root" -name mote.1)"
    # shellcheck disable=SC2046
    check "links statically" gcc build/stranger.c $(pkg-config --cflags mote) -Wl,-Bstatic -L"$pc/.." -lmote -Wl,-Bdynamic \
        $(pkg-config --static --libs-only-l mote | sed 's/-lmote//') -o build/stranger-static
    check "runs without the shared library" build/stranger-static models/nano
    unset PKG_CONFIG_SYSROOT_DIR PKG_CONFIG_PATH
    # a build made for one PREFIX installs into another that is asked for, and goes again
    other=$PWD/build/other
    rm -rf "$other"
    make install PREFIX="$other" >/dev/null 2>&1
    check "PREFIX is obeyed after a build" test -x "$other/bin/mote"
    check "mote.pc is of that PREFIX" grep -q "^prefix=$other\$" "$(find "$other" -name mote.pc)"
    make uninstall >/dev/null 2>&1
    left=$(find "$other" ! -type d)
    check "uninstall leaves: $left" test -z "$left"
    meson configure build --prefix=/usr/local >/dev/null
}
step_fuzz() {
    seconds=${MOTE_FUZZ_SECONDS:-6}
    note "fuzzers, $seconds s each"
    check "the fuzzers' library" tools/fuzz.sh build
    # shellcheck disable=SC2016
    for f in fuzz/*.c; do basename "$f" .c; done | MOTE_FUZZ_BUILT=1 xargs -P "$jobs" -I{} sh -c \
        'tools/fuzz.sh "$1" "$2" >"build-fuzz/$2.out" 2>&1; echo $? >"build-fuzz/$2.rc"' - "$seconds" {}
    for f in fuzz/*.c; do
        name=$(basename "$f" .c)
        cat "build-fuzz/$name.out"
        check "fuzz $f" test "$(cat "build-fuzz/$name.rc")" = 0
    done
}

[ $# -gt 0 ] || set -- bare format gcc clang levels oldcpu header install asan tsan fuzz
for s; do
    start=$(date +%s)
    [ "$s" = bare ] || tools/setup.sh test || exit 1
    "step_$s"
    echo "-- $s: $(( $(date +%s) - start )) s"
done
echo
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
