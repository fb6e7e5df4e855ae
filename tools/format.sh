#!/bin/sh
# clang-format over all C of the tree, by .clang-format (version 14, as Debian 12 has it; others
# differ in details).   tools/format.sh [clang-format's options; default: -i]
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- -i
find include src tests fuzz -name '*.[ch]' ! -name unicode16.c -print0 | xargs -0 clang-format "$@"
