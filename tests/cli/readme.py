#!/usr/bin/env python3
"""Every command of README.md is run as it stands, and what README shows of an output is looked for in the real one.

    readme.py MOTE SOURCE_ROOT

A block of README indented by four spaces is shell where its first line begins with `mote`, `build/src/cli/mote`, `make` or
`apt-get`: each line is a command, `#` begins a remark. Where the first line begins with `$ ` the lines behind it are its
output: words in order, `...` stands for what was left out. Commands run in a folder of their own that has models/, tests/ and
build/src/cli/mote; there a shorter held-out text stands in for the bundled one, except where an output is compared. `apt-get`
and `make` lines are left to the steps bare and install of tools/test.sh. Needs nothing but Python's library.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

MOTE, ROOT = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
SHORT_BYTES = 16_300
# what a person at the keyboard would type, for commands that wait for it
TYPED = {"chat": b"Tell me of the house.\n"}
passed = failed = 0
since = time.monotonic()


def blocks(text):
    """Lists of lines, their indent removed."""
    block = []
    for line in text.splitlines() + [""]:
        if line.startswith("    "):
            block.append(line[4:])
        elif not line.strip() and block and block[-1] != "":
            block.append("")
        elif line.strip() or block:
            if block:
                yield block
            block = []
    if block:
        yield block


def make_place(short):
    place = tempfile.mkdtemp(prefix="mote-readme-")
    os.makedirs(os.path.join(place, "build/src/cli"))
    os.symlink(MOTE, os.path.join(place, "build/src/cli/mote"))
    os.symlink(os.path.join(ROOT, "tests"), os.path.join(place, "tests"))
    nano = os.path.join(ROOT, "models/nano")
    if short:
        os.makedirs(os.path.join(place, "models/nano"))
        for name in os.listdir(nano):
            if name != "heldout.txt":
                os.symlink(os.path.join(nano, name), os.path.join(place, "models/nano", name))
        with open(os.path.join(nano, "heldout.txt"), "rb") as f, \
                open(os.path.join(place, "models/nano/heldout.txt"), "wb") as out:
            out.write(f.read(SHORT_BYTES).rsplit(b"\n", 1)[0] + b"\n")
    else:
        os.symlink(os.path.join(ROOT, "models"), os.path.join(place, "models"))
    with open(os.path.join(nano, "heldout.txt"), "rb") as f, open(os.path.join(place, "long.txt"), "wb") as out:
        out.write(f.read(9_000).rsplit(b"\n", 1)[0] + b"\n")
    return place


def run(command, place):
    env = {**os.environ, "HOME": place, "PATH": os.path.join(place, "build/src/cli") + ":" + os.environ["PATH"]}
    words = command.split()
    return subprocess.run(["bash", "-c", command], cwd=place, env=env, capture_output=True, timeout=1000,
                          input=TYPED.get(words[1] if len(words) > 1 else "", b""))


def result(ok, what, why=""):
    global passed, failed, since
    passed, failed, now = passed + ok, failed + (not ok), time.monotonic()
    print(f"{'ok' if ok else 'FAILED':7} {now - since:5.1f} s  {what}{': ' + why if why else ''}", flush=True)
    since = now


def shown_in(shown, real):
    """Each run of words between two `...` stands in `real`, one behind the other. -> what is missing, or None"""
    at, words = 0, real.split()
    for part in re.split(r"(?m)\s*\.\.\.\s*$", "\n".join(shown)):
        want = part.split()
        if not want:
            continue
        while at + len(want) <= len(words) and words[at:at + len(want)] != want:
            at += 1
        if at + len(want) > len(words):
            return part.strip()
        at += len(want)
    return None


def main():
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as f:
        text = f.read()
    place, full = make_place(True), make_place(False)
    n_left = 0
    for block in blocks(text):
        if block[0].startswith("$ "):
            at = [i for i, line in enumerate(block) if line.startswith("$ ")] + [len(block)]
            for a, b in zip(at, at[1:]):
                p = run(block[a][2:], full)
                missing = shown_in(block[a + 1:b], (p.stdout + b"\n" + p.stderr).decode())
                why = f"status {p.returncode}: {p.stderr.decode()[-300:]}" if p.returncode else missing and f"no '{missing}' in it"
                result(not why, block[a][2:], why or "")
        elif re.match(r"(mote|build/src/cli/mote|make|apt-get)\b", block[0]):
            for line in block:
                if re.match(r"(make|apt-get) ", line):
                    n_left += 1
                elif line.strip():
                    p = run(line, place)
                    result(not p.returncode, re.sub(r"\s+#.*", "", line),
                           f"status {p.returncode}: {p.stderr.decode()[-300:]}" if p.returncode else "")
    for d in (place, full):
        shutil.rmtree(d)
    result(passed + failed > 10, "README has its commands", f"{passed + failed} run, {n_left} left to other steps")
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


main()
