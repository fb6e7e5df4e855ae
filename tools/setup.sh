#!/bin/sh
# Install the Debian packages that mote needs and this machine lacks. Nothing is touched when all are there.
#   tools/setup.sh [build|test]     build: compiler, build system, libraries (default); test: all that `make test` uses
set -eu

what=${1:-build}
packages="gcc libc6-dev make meson ninja-build pkg-config libjansson-dev libpcre2-dev libutf8proc-dev libedit-dev scdoc"
packages="$packages libsqlite3-dev liburing-dev libssl-dev libhiredis-dev"
case $what in
build) ;;
test) packages="$packages libcmocka-dev python3 clang clang-format libclang-rt-14-dev g++ binutils python3-numpy npm xz-utils qemu-user redis-server" ;;
*) echo "setup.sh: unknown word '$what' (build or test)" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null 2>&1; then
    echo "setup.sh: this is not Debian: please install what these packages hold: $packages" >&2
    exit 1
fi
missing=
for p in $packages; do
    case $(dpkg-query -W -f '${Status}' "$p" 2>/dev/null || true) in
    "install ok installed") ;;
    *) missing="$missing $p" ;;
    esac
done
# another package may provide the same tool
provided() {
    case $1 in
    npm|clang|clang-format|meson|scdoc|python3|make|redis-server) command -v "$1" >/dev/null 2>&1 ;;
    pkg-config) command -v pkg-config >/dev/null 2>&1 ;;
    qemu-user) command -v qemu-x86_64 >/dev/null 2>&1 || command -v qemu-x86_64-static >/dev/null 2>&1 ;;
    *) return 1 ;;
    esac
}
wanted=
for p in $missing; do
    provided "$p" || wanted="$wanted $p"
done
[ -n "$wanted" ] || exit 0

sudo=
if [ "$(id -u)" -ne 0 ]; then
    sudo=sudo
    echo "setup.sh: installing$wanted (asking for your password if sudo needs it)" >&2
else
    echo "setup.sh: installing$wanted" >&2
fi
$sudo apt-get update -qq
# RUNLEVEL=1: a package that brings a service does not start it
# shellcheck disable=SC2086
$sudo env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $wanted >/dev/null
