#!/usr/bin/env python3
"""Figures of the source tree, room by room: a Markdown table for docs/architecture.md.

    tools/tree.py

Rooms and their order are those of CONTRIBUTING.md. A function is what lies between a line that is
`{` alone and the next that is `}` alone; its length leaves both out. Needs nothing but Python's
library.
"""
import os
import re
import statistics
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def rooms():
    with open(os.path.join(ROOT, "CONTRIBUTING.md"), encoding="utf-8") as f:
        return re.findall(r"^src/([a-z/]+)/ ", f.read(), re.M)


def sources(folder):
    for where, _, names in os.walk(os.path.join(ROOT, folder)):
        for name in names:
            if name.endswith((".c", ".h")):
                yield os.path.relpath(os.path.join(where, name), ROOT)


def functions(lines):
    start = None
    for n, line in enumerate(lines):
        if line == "{":
            start = n
        elif line == "}" and start is not None:
            yield n - start - 1
            start = None


def main():
    order = rooms()
    table = {room: [] for room in order}
    for path in sources("src"):
        inside = path[len("src/"):]
        room = max((r for r in order if inside.startswith(r + "/")), key=len, default=None)
        if room is None:
            sys.exit(f"tree.py: {path} lies in no room that CONTRIBUTING.md names")
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            table[room].append((path, f.read().split("\n")[:-1]))
    print("| room | files | lines | median file | longest file | median function | longest |")
    print("|---|---|---|---|---|---|---|")
    files, long_lines, all_functions = [], 0, []
    for room in order:
        lengths = {path: len(lines) for path, lines in table[room]}
        found = [n for _, lines in table[room] for n in functions(lines)]
        longest = max(lengths, key=lengths.get)
        print(f"| `{room}/` | {len(lengths)} | {sum(lengths.values()):,} "
              f"| {statistics.median(lengths.values()):.0f} "
              f"| `{os.path.basename(longest)}` {lengths[longest]} "
              f"| {statistics.median(found or [0]):.0f} | {max(found or [0])} |")
        files += lengths.values()
        all_functions += found
        long_lines += sum(len(line) > 100 for _, lines in table[room] for line in lines)
    all_functions.sort()
    print(f"| all | {len(files)} | {sum(files):,} | {statistics.median(files):.0f} | {max(files)} "
          f"| {statistics.median(all_functions):.0f} | {all_functions[-1]} |")
    print()
    print(f"Of {len(all_functions):,} functions nine in ten have at most "
          f"{all_functions[len(all_functions) * 9 // 10]} lines; "
          f"{long_lines} lines are longer than 100 columns.")
    header = sum(len(open(os.path.join(ROOT, p), encoding="utf-8").read().split("\n")) - 1
                 for p in sources("include"))
    print(f"The public headers have {header} lines together.")


main()
