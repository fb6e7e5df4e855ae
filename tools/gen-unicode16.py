#!/usr/bin/env python3
"""Prints src/text/unicode16.c from tests/data/tokenizer/unicode16_classes.json.

usage: tools/gen-unicode16.py > src/text/unicode16.c

The JSON file holds, for L, M, N, P, S (general categories) and s (White_Space), the code point ranges as the reference
tokenizer library classifies them (Unicode 16). PCRE2 and utf8proc of a system may know another Unicode version, and the
classes differ on thousands of code points between versions, so patterns use this table instead."""
import json
import os

here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "../tests/data/tokenizer/unicode16_classes.json"), encoding="utf-8") as f:
    classes = json.load(f)

print("/* Unicode 16 character classes as code point ranges, by tools/gen-unicode16.py: do not edit. */")
print('#include "text/unicode16.h"')
rows = []
for name in ("L", "M", "N", "P", "S", "s"):
    ranges = classes[name]
    assert all(a <= b for a, b in ranges) and all(x[1] + 1 < y[0] for x, y in zip(ranges, ranges[1:]))
    print(f"\nstatic const mote__cp_range class_{name}[] = {{")
    line = "   "
    for a, b in ranges:
        item = f" {{ 0x{a:X}, 0x{b:X} }},"
        if len(line) + len(item) > 98:
            print(line)
            line = "   "
        line += item
    print(line + "\n};")
    rows.append(f"    {{ '{name}', class_{name}, sizeof class_{name} / sizeof class_{name}[0] }},")
print("\nconst mote__cp_class mote__unicode16[] = {\n" + "\n".join(rows) + "\n    { 0, 0, 0 },\n};")
