#!/bin/sh
# All that CI runs. Each step says what it is; the first that fails ends it.
set -eu
cd "$(dirname "$0")/.."

step() { printf '\n== %s\n' "$*"; }
tests() { meson test -C "$1" --print-errorlogs --num-processes 1; }
setup() { dir=$1; shift; [ -f "$dir/build.ninja" ] || meson setup "$dir" "$@" >/dev/null; ninja -C "$dir"; }
# ThreadSanitizer wants addresses where it expects them; not every container allows the switch
no_random() { if setarch -R true 2>/dev/null; then setarch -R "$@"; else "$@"; fi; }

step "gcc"
setup build
tests build
mote=$PWD/build/src/cli/mote

step "clang"
CC=clang setup build-clang
tests build-clang

step "CPU levels hidden"
for mask in avx512 avx512,avx2; do
    MOTE_CPU_MASK=$mask meson test -C build --print-errorlogs --num-processes 1
done

step "an old CPU (no AVX) under emulation says the same as this one"
qemu=$(command -v qemu-x86_64 || command -v qemu-x86_64-static)
want=$("$mote" run models/nano -p 'It was a truth' -n 4 --temp 0)
got=$("$qemu" -cpu Nehalem "$mote" run models/nano -p 'It was a truth' -n 4 --temp 0)
[ "$want" = "$got" ] || { echo "test.sh: '$got' instead of '$want'" >&2; exit 1; }

step "the public header alone, in C and C++; exports"
printf '#include <mote/mote.h>\nint main(void) { return mote_version() == 0; }\n' > build/header.c
gcc -std=c99 -pedantic -Wall -Wextra -Werror -Iinclude -fsyntax-only build/header.c
g++ -std=c++11 -pedantic -Wall -Wextra -Werror -Iinclude -fsyntax-only -x c++ build/header.c
foreign=$(nm -D --defined-only build/src/libmote.so | awk '{print $3}' | grep -v '^mote_[a-z]' || true)
[ -z "$foreign" ] || { echo "test.sh: exported without mote_: $foreign" >&2; exit 1; }

step "ASan and UBSan"
setup build-asan -Db_sanitize=address,undefined -Db_lundef=false -Doptimization=2
tests build-asan

step "TSan"
setup build-tsan -Db_sanitize=thread -Db_lundef=false -Doptimization=2
no_random meson test -C build-tsan --print-errorlogs --num-processes 1

step "fuzzers, ${MOTE_FUZZ_SECONDS:-10} s each"
tools/fuzz.sh "${MOTE_FUZZ_SECONDS:-10}"

step "all passed"
