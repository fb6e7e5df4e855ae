#!/usr/bin/env python3
"""The page, the independent reader, and the command agree.     reader.py MOTE SOURCE_ROOT

The golden file is imported; tools/store_read.py reads the directory without the index and must find what `mote kv ls` finds; every byte of the
page's hex dump is that of the file; damage ends with status 1 in both."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

MOTE, ROOT = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
GOLDEN = os.path.join(ROOT, "tests", "data", "store", "v1.kvx")
READER = os.path.join(ROOT, "tools", "store_read.py")
TMP = tempfile.mkdtemp(prefix="mote-reader-")
DIR = os.path.join(TMP, "store")


def run(*argv, status=0):
    p = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=120)
    if p.returncode != status:
        sys.exit(f"{argv}: status {p.returncode}, expected {status}: {p.stdout[-500:]} {p.stderr[-500:]}")
    return p


def kv(*argv, status=0):
    return json.loads(run(MOTE, "kv", *argv, "--json", status=status).stdout)


def read(path, status=0):
    return json.loads(run(sys.executable, READER, path, "--json", status=status).stdout)


def expect(ok, what):
    if not ok:
        sys.exit(f"reader.py: {what}")


def same(a, b, *keys):
    pick = lambda rows: sorted([r[k] for k in keys] for r in rows)
    expect(pick(a) == pick(b), f"{keys}: {pick(a)} and {pick(b)}")


# the page's hex dump
data = open(GOLDEN, "rb").read()
lines = re.findall(r"^([0-9a-f]{8})  ((?:[0-9a-f]{2} ){15}[0-9a-f]{2})", open(os.path.join(ROOT, "docs", "format-store.md")).read(), re.M)
expect(len(lines) > 15, "no hex dump in the page")
for at, text in lines:
    expect(data[int(at, 16):int(at, 16) + 16] == bytes.fromhex(text), f"docs/format-store.md: line {at} is not what the file holds")

# command, reader of the directory, reader of the export
taken = kv("import", DIR, GOLDEN)
expect(taken["blocks"] == 3 and taken["snapshots"] == 1, taken)
listed, found, exported = kv("ls", DIR), read(DIR), read(GOLDEN)
for got in (found, exported):
    same(listed["blocks"], got["blocks"], "id", "parent", "tokens", "provenance", "payload_bytes")
    same(listed["snapshots"], got["snapshots"], "id", "on", "tokens", "provenance", "bytes")
same(listed["blocks"], found["blocks"], "id", "segment", "slot", "generation")
same(exported["blocks"], found["blocks"], "id", "payload_sha256", "ids", "context", "label")
expect(sorted(b["ids"][1] for b in found["blocks"]) == sorted((256 * k + 1) * 7 % 1000 for k in range(3)), "token ids")
stat = kv("stat", DIR)
expect(stat["blocks"] == 3 and stat["exact_blocks"] == 2 and stat["payload_bytes"] == 3000 and stat["snapshots"] == 1, stat)
expect(abs(stat["bytes_per_token"] - stat["disk_bytes"] / 768) < 1e-9, stat)
on_disk = sum(os.stat(os.path.join(DIR, n)).st_blocks * 512 for n in os.listdir(DIR) if not n.startswith("snap-"))
expect(abs(stat["disk_bytes"] - on_disk) <= 65536, f"{stat['disk_bytes']} and {on_disk} bytes on the disk")   # the log comes and goes
expect(os.stat(DIR).st_mode & 0o777 == 0o700, "mode of the directory")
out = os.path.join(TMP, "again.kvx")
kv("export", DIR, out)
same(read(out)["blocks"], exported["blocks"], "id", "payload_sha256")
expect(run(MOTE, "kv", "ls", DIR).stdout.count("exact") == 2 and "snapshot" in run(MOTE, "kv", "ls", DIR).stdout, "ls for people")
expect(kv("verify", DIR)["damaged"] == 0, "a sound store")

# damage: both see it; verify says so once, and drops it
seg = os.path.join(DIR, "seg-00000001.mote")
with open(seg, "r+b") as f:
    f.seek(4096 + 4096 * max(found["blocks"], key=lambda b: b["tokens"])["slot"] + 2000)
    byte = f.read(1)
    f.seek(-1, 1)
    f.write(bytes([byte[0] ^ 1]))
expect(len(read(DIR, status=1)["damaged"]) == 1, "the reader does not see the damage")
p = run(MOTE, "kv", "verify", DIR, status=1)
expect("1 damaged" in p.stderr and p.stderr.count("\n") == 1, p.stderr)
expect(kv("verify", DIR)["damaged"] == 0 and kv("stat", DIR)["blocks"] == 2, "verify does not drop")

# an index that is gone, and one that is nonsense: made anew, said once
for name, content in (("index.db", None), ("index.db", b"nonsense" * 1000)):
    for n in os.listdir(DIR):
        if n.startswith("index"):
            os.unlink(os.path.join(DIR, n))
    if content:
        with open(os.path.join(DIR, name), "wb") as f:
            f.write(content)
    v = json.loads(subprocess.run([MOTE, "kv", "verify", DIR, "--json"], capture_output=True, text=True).stdout)
    expect(v["blocks"] == 2 and v["index"] == "made anew" and v["damaged"] == 1, v)
    expect(kv("verify", DIR)["damaged"] == 0, "once is enough")
expect(kv("verify", DIR, "--rebuild")["index"] == "made anew", "--rebuild")
kv("gc", DIR)

# removing, and what the command refuses
ids = [b["id"] for b in kv("ls", DIR)["blocks"]]
expect(kv("rm", DIR, ids[0][:10])["removed_blocks"] >= 1, "rm")
kv("rm", DIR, "--all")
expect(kv("stat", DIR)["blocks"] == 0 and kv("stat", DIR)["bytes_per_token"] is None, "rm --all")
expect(read(DIR)["blocks"] == [], "removed bytes are still there")
for argv, status, word in (
    (("ls",), 2, "DIR"), (("fly", DIR), 2, "'fly'"), (("rm", DIR), 2, "--all"), (("rm", DIR, "--all", "abcdef"), 2, "--all"),
    (("ls", DIR, "--rebuild"), 2, "--rebuild"), (("export", DIR), 2, "FILE"), (("stat", TMP + "/none"), 1, "no store"),
    (("verify", TMP + "/none"), 1, "no store"), (("rm", DIR, "zz"), 1, "'zz'"), (("rm", DIR, "abcdef"), 1, "abcdef"),
    (("import", DIR, READER), 1, "no export"), (("import", DIR, TMP + "/none"), 1, "none"), (("stat", READER), 1, "not a directory"),
    (("export", DIR, "/nonexistent/x"), 1, "/nonexistent/x"),
):
    p = run(MOTE, "kv", *argv, status=status)
    expect(word in p.stderr and p.stderr.count("\n") == 1 and p.stdout == "", f"{argv}: {p.stderr!r} {p.stdout!r}")
expect(not os.path.exists(TMP + "/none"), "a directory was made for looking at it")
shutil.rmtree(TMP)
print("reader.py: passed")
