#!/usr/bin/env python3
"""Do held-out texts leak into the training texts? Shares of common 12-word runs, worst first; exit status 1 above 1 %.

    python3 overlap.py TEXTS [--words 12]

White space, case and punctuation are ignored, so that another edition of a held-out book is found too. Held out: VALID.txt.
"""
import argparse
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def runs(text, n):
    w = re.findall(r"\w+", text.lower())
    return {hash(tuple(w[i:i + n])) for i in range(len(w) - n + 1)}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("texts")
    ap.add_argument("--words", type=int, default=12)
    a = ap.parse_args()
    held = {l.split("\t")[0].strip() for l in open(os.path.join(HERE, "VALID.txt"), encoding="utf-8") if l.strip()}
    files = sorted(f for f in os.listdir(a.texts) if f.endswith(".txt"))
    read = lambda f: open(os.path.join(a.texts, f), encoding="utf-8").read()
    own = {f: runs(read(f), a.words) for f in files if f in held}
    found = []
    for f in files:
        if f in held:
            continue
        r = runs(read(f), a.words)
        found += [(len(r & h) / max(1, len(h)), g, f) for g, h in own.items()]
    found.sort(reverse=True)
    for share, g, f in found[:8]:
        print(f"{share * 100:7.3f} % of {g} also in {f}")
    sys.exit(found[0][0] > 0.01)


if __name__ == "__main__":
    main()
