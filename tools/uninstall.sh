#!/bin/sh
# Remove the files that the last install wrote.
#   tools/uninstall.sh LOG      LOG: meson's install-log.txt of the build directory
set -eu

log=$1
if [ ! -f "$log" ]; then
    echo "uninstall.sh: no '$log': nothing was installed from here" >&2
    exit 1
fi
grep -v '^#' "$log" | while IFS= read -r path; do
    if [ -L "$path" ] || [ -f "$path" ]; then
        rm -f -- "$path"
        echo "removed $path"
    fi
    # a folder of our own, such as include/mote, goes with its last file
    folder=$(dirname "$path")
    [ "$(basename "$folder")" != mote ] || rmdir -- "$folder" 2>/dev/null || true
done
