#!/usr/bin/env python3
"""The law of the tree (CONTRIBUTING.md): a room of src/ includes its own headers and those of rooms above it, never below.

    law.py SOURCE_ROOT

The order is read from CONTRIBUTING.md. talk/, lab/ and cli/ stand on the public header: of the library's rooms they may include base/
alone. fuzz/ and tests/ may include anything. Needs nothing but Python's library.
"""
import os
import re
import sys

ROOT = os.path.abspath(sys.argv[1])
ON_THE_PUBLIC_HEADER = {"talk": {"base"}, "lab": {"base"}, "cli": {"base", "talk", "lab"}}
DOORS = {"bench/run.h",        # what a library beside the engine shows to the command
         "model/score.h"}      # the policy that lab/ replays
passed = failed = 0


def result(ok, what):
    global passed, failed
    passed, failed = passed + ok, failed + (not ok)
    if not ok:
        print("FAILED ", what)


def rooms():
    """The rooms from above to below, as CONTRIBUTING.md lists them."""
    with open(os.path.join(ROOT, "CONTRIBUTING.md"), encoding="utf-8") as f:
        return re.findall(r"^src/([a-z/]+)/ ", f.read(), re.M)


def room_of(path, known):
    """The longest known room that `path` (relative to src/) lies in."""
    fits = [r for r in known if path.startswith(r + "/")]
    return max(fits, key=len) if fits else None


def includes():
    for folder, _, files in sorted(os.walk(os.path.join(ROOT, "src"))):
        for name in sorted(files):
            if not name.endswith((".c", ".h")):
                continue
            path = os.path.join(folder, name)
            with open(path, encoding="utf-8") as f:
                for n, line in enumerate(f, 1):
                    found = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
                    if found:
                        yield os.path.relpath(path, os.path.join(ROOT, "src")), n, found.group(1)


def main():
    order = rooms()
    result(len(order) > 8, f"CONTRIBUTING.md lists {len(order)} rooms")
    folders = {e.name for e in os.scandir(os.path.join(ROOT, "src")) if e.is_dir()}
    result(folders == {r.split("/")[0] for r in order}, f"rooms listed {sorted(order)}, folders {sorted(folders)}")
    n = 0
    for path, line, header in includes():
        n += 1
        own, other = room_of(path, order), room_of(header, order)
        where = f"src/{path}:{line} includes {header}"
        if other is None:
            result(False, where + ": no room of src/")
        elif own in ON_THE_PUBLIC_HEADER:
            result(header in DOORS or other == own or other in ON_THE_PUBLIC_HEADER[own], where + f": {own}/ stands on the public header")
        else:
            result(order.index(other) <= order.index(own), where + f": {other}/ is below {own}/")
        result(os.path.isfile(os.path.join(ROOT, "src", header)), where + ": no such file")
    result(n > 100, f"{n} includes were read")
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


main()
