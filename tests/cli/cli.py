#!/usr/bin/env python3
"""The mote command from outside: usage errors, help, JSON, pipes, signals, and a table of bad inputs.

    cli.py MOTE SOURCE_ROOT [--no-limits] [--quick] [WORD...]

One line per check, `N passed, M failed` at the end, exit status 1 if any failed. WORDs pick the checks whose name holds one of them.
--no-limits leaves out the checks that limit address space (sanitizers need a lot of it), --quick those that take many seconds. Needs nothing but Python's library.
"""
import itertools
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from xml.etree import ElementTree

args = [a for a in sys.argv[1:] if not a.startswith("--")]
MOTE, ROOT, WORDS = os.path.abspath(args[0]), os.path.abspath(args[1]), args[2:]
LIMITS = "--no-limits" not in sys.argv
QUICK = "--quick" in sys.argv
NANO = os.path.join(ROOT, "models", "nano")
HELDOUT = os.path.join(NANO, "heldout.txt")
TMP = tempfile.mkdtemp(prefix="mote-cli-")
CHECKS = []


class Failed(Exception):
    pass


def check(f):
    CHECKS.append((f.__name__.replace("_", " "), f))
    return f


def slow_check(f):
    return f if QUICK else check(f)


def add(name, f):
    CHECKS.append((name, f))


def expect(ok, what):
    if not ok:
        raise Failed(what)


class Result:
    def __init__(self, p, argv):
        self.rc, self.argv = p.returncode, argv
        self.out, self.err = p.stdout, p.stderr.decode("utf-8", "replace")

    @property
    def text(self):
        return self.out.decode("utf-8")

    def __str__(self):
        return f"mote {' '.join(self.argv)[:200]}: status {self.rc}, stdout {self.out[:300]!r}, stderr {self.err[-1500:]!r}"


def mote(*argv, stdin=b"", env=None, limit=None, timeout=240):
    def preexec():
        if limit:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    argv = [str(a) for a in argv]
    try:
        p = subprocess.run([MOTE, *argv], input=stdin, capture_output=True, timeout=timeout, preexec_fn=preexec,
                           env={**os.environ, **(env or {})})
    except subprocess.TimeoutExpired:
        raise Failed(f"mote {' '.join(argv)[:200]}: still running after {timeout} s")
    return Result(p, argv)


def good(*argv, **kw):
    r = mote(*argv, **kw)
    expect(r.rc == 0, str(r))
    return r


def good_json(*argv, **kw):
    r = good(*argv, **kw)
    expect(r.err == "", f"stderr not empty: {r}")
    try:
        return json.loads(r.text)
    except ValueError as e:
        raise Failed(f"not JSON ({e}): {r}")


def one_line_error(r, status, *words):
    """Exit status, nothing on stdout, exactly one line on stderr, holding each word ('a|b': one of them)."""
    expect(r.rc == status, f"expected status {status}: {r}")
    expect(r.out == b"", f"stdout is not empty: {r}")
    expect(r.err.count("\n") == 1 and r.err.endswith("\n") and r.err.startswith("mote"), f"not one line 'mote...': {r}")
    for w in words:
        expect(any(o in r.err for o in w.split("|")), f"'{w}' is not named: {r}")


# ---- bench ---------------------------------------------------------------------------------------------------------
@check
def bench_quick_json():
    r = good("bench", NANO, "--quick", "--json", "--only", "topk,load", "-t", "2")
    o = json.loads(r.text)
    expect({"limits", "rows", "threads", "total_seconds"} <= set(o), f"fields {sorted(o)}")
    expect({row["part"] for row in o["rows"]} == {"topk", "load"}, "parts")
    for row in o["rows"]:
        fields = {"name", "shape", "value", "unit", "limit", "ratio", "spread", "target", "lower_is_better"}
        expect(fields <= set(row), f"a row lacks {fields - set(row)}")


@slow_check
def bench_quick_table():
    r = good("bench", "--quick", "--only", "topk")
    expect("top-512, random" in r.text and "read" in r.text and "QUICK" in r.text, str(r))


@check
def bench_lists_its_parts():
    expect("weights" in good("bench", "--list").text, "no weights")


# ---- help and usage ------------------------------------------------------------------------------------------------
COMMANDS = ["run", "chat", "plan", "eval", "tune", "ladder", "experts", "bench", "inspect", "tokenize", "logits", "kv", "doctor"]
RUNS_A_MODEL = ["run", "chat", "eval", "logits"]


@check
def help_lists_the_commands():
    r = good("--help")
    expect(r.err == "", str(r))
    listed = [line.split()[0] for line in r.text.splitlines() if line.startswith("  ") and not line.startswith("   ")]
    expect(listed == COMMANDS, f"listed {listed}")
    expect(good("help").out == r.out and good("-h").out == r.out, "help, -h and --help differ")


@check
def version():
    expect(good("--version").text.startswith("mote "), "no version")


def help_of(command):
    r = good(command, "--help")
    expect(r.err == "", str(r))
    expect(good("help", command).out == r.out, "'mote help COMMAND' differs")
    need = ["usage: mote " + command, "--help", "--json", "example"]
    if command in RUNS_A_MODEL:
        need += ["--threads", "MOTE_THREADS", "--kv", "--math", "--weights", "--prefill", "published", "bounded", "default"]
    if command == "plan":
        need += ["--ctx", "--ram", "--kv", "890"]
    for w in need:
        expect(w in r.text, f"'{w}' is missing")
    longest = max(len(line) for line in r.text.splitlines())
    expect(longest <= 130, f"a line has {longest} characters")


for c in COMMANDS:
    add(f"help of {c}", lambda c=c: help_of(c))

USAGE = [
    ((), ["command"]),
    (("frobnicate",), ["frobnicate"]),
    (("--frobnicate",), ["--frobnicate"]),
    (("help", "frobnicate"), ["frobnicate"]),
    (("bench", NANO, "more"), ["more"]), (("bench", "--runs", "0"), ["--runs"]), (("bench", "--geometry", "huge"), ["--geometry", "nano"]),
    (("bench", "--only", "topk,flux"), ["--only", "flux"]),
    (("serve",), ["serve"]), (("kv",), ["kv"]),
    (("run",), ["MODEL"]),
    (("run", NANO), ["-p", "--ids"]),
    (("run", NANO, "-p"), ["--prompt"]),
    (("run", NANO, "-p", "a", "-f", "b"), ["more than one prompt"]),
    (("run", NANO, "-p", "a", "more"), ["more"]),
    (("run", NANO, "-p", "a", "--frob"), ["--frob"]),
    (("run", NANO, "-p", "a", "-Q"), ["-Q"]),
    (("run", NANO, "-p", "a", "--json=1"), ["--json"]),
    (("run", NANO, "-p", "a", "-n", "x"), ["--tokens"]),
    (("run", NANO, "-p", "a", "-n", "-1"), ["--tokens"]),
    (("run", NANO, "-p", "a", "-n", "99999999999999999999"), ["--tokens"]),
    (("run", NANO, "-p", "a", "--temp", "hot"), ["--temp"]),
    (("run", NANO, "-p", "a", "--temp", "nan"), ["--temp"]),
    (("run", NANO, "-p", "a", "--temp", "-1"), ["--temp"]),
    (("run", NANO, "-p", "a", "--top-p", "1.5"), ["--top-p"]),
    (("run", NANO, "-p", "a", "--min-p", "2"), ["--min-p"]),
    (("run", NANO, "-p", "a", "--top-k", "many"), ["--top-k"]),
    (("run", NANO, "-p", "a", "--seed", "1.5"), ["--seed"]),
    (("run", NANO, "-p", "a", "--stop", ""), ["--stop"]),
    (("run", NANO, "-p", "a", "--logprobs", "3"), ["--logprobs", "--json"]),
    (("run", NANO, "-p", "a", "--json", "--logprobs", "21"), ["--logprobs"]),
    (("run", NANO, "-p", "a", "-t", "0"), ["--threads"]),
    (("run", NANO, "-p", "a", "--math", "bf16"), ["--math", "fp32, published"]),
    (("run", NANO, "-p", "a", "--weights", "ram"), ["--weights", "auto, copy, map"]),
    (("bench", "--weights", "ram"), ["--weights", "auto, copy, map"]),
    (("run", NANO, "-p", "a", "--prefill", "none"), ["--prefill", "bounded, exact, full"]),
    (("run", NANO, "-p", "a", "--kv", ""), ["--kv"]),
    (("run", NANO, "-p", "a", "--kv", "fp5"), ["--kv", "fp5"]),
    (("run", NANO, "-p", "a", "--kv", "main=fp4,windows=fp8"), ["--kv", "windows"]),
    (("run", NANO, "-p", "a", "--kv", "main.3=fp8"), ["--kv", "3"]),
    (("run", NANO, "-p", "a", "--kv", "index=fp5"), ["--kv"]),
    (("run", NANO, "-p", "a", "--ctx", "lots"), ["--ctx"]),
    (("run", NANO, "--ids", "1,2,"), ["--ids"]),
    (("run", NANO, "--ids", "1,x"), ["--ids"]),
    (("run", NANO, "--ids", "99999999999"), ["--ids"]),
    (("run", NANO, "--ids", "1", "--chat"), ["--chat"]),
    (("run", NANO, "-p", "a", "--store", ""), ["--store"]),
    (("run", NANO, "-p", "a", "--store", "d,rediss://h"), ["--store", "TLS", "tunnel"]),
    (("run", NANO, "-p", "a", "--store", "d,redis://h:0"), ["--store", "server 1", "port"]),
    (("kv", "ls", "d,redis://:secret@h"), ["directory alone"]),
    (("run", NANO, "-p", "a", "--store", "d", "--replay", "most"), ["--replay", "bounded, exact"]),
    (("run", NANO, "-p", "a", "--store", "d", "--store-budget", "much"), ["--store-budget"]),
    (("run", NANO, "-p", "a", "--replay", "exact"), ["--replay", "--store"]),
    (("run", NANO, "-p", "a", "--store", "d", "--ttl", "0"), ["--ttl", "nothing", "never"]),
    (("run", NANO, "-p", "a", "--store", "d", "--ttl", "-1"), ["--ttl"]),
    (("run", NANO, "-p", "a", "--store", "d", "--ttl", "nan"), ["--ttl"]),
    (("run", NANO, "-p", "a", "--store", "d", "--store-budget", "0"), ["--store-budget"]),
    (("run", NANO, "-p", "a", "--store", "d", "--snapshot-budget", "-5"), ["--snapshot-budget"]),
    (("run", NANO, "-p", "a", "--store", "d,redis://h", "--redis-timeout", "0"), ["--redis-timeout"]),
    (("run", NANO, "-p", "a", "--store", "d", "--redis-timeout", "5"), ["--redis-timeout", "server"]),
    (("chat", NANO, "--ttl", "5"), ["--ttl", "--store"]),
    (("eval", NANO, "--text", HELDOUT, "--snapshot-budget", "1G"), ["--snapshot-budget", "--store"]),
    (("kv", "gc", "d", "--ttl", "0"), ["--ttl", "nothing", "never"]),
    (("kv", "gc", "d", "--snapshot-ttl", "0"), ["--snapshot-ttl", "never"]),
    (("kv", "gc", "d", "--budget", "0"), ["--budget"]),
    (("kv", "ls", "d", "--budget", "5G"), ["--budget", "gc", "ls"]),
    (("kv", "stat", "d", "--ttl", "5"), ["--ttl", "gc", "stat"]),
    (("kv", "verify", "d", "--model", "abcd"), ["--model", "verify"]),
    (("kv", "ls", "d", "--model", "xyz"), ["--model", "xyz"]),
    (("kv", "ls", "d", "--context", "12"), ["--context", "12"]),
    (("kv", "rm", "d", "--model", "abcd", "abcdef"), ["--model", "identities"]),
    (("kv", "verify", "d", "--segment", "0"), ["--segment"]),
    (("kv", "verify", "d", "--segment", "1", "--rebuild"), ["--segment", "--rebuild"]),
    (("kv", "check", "d", "--redis-timeout", "soon"), ["--redis-timeout"]),
    (("run", NANO, "-p", "a", "--namespace", "x"), ["--namespace", "--store"]),
    (("run", NANO, "-p", "a", "--snapshot"), ["--snapshot", "--store"]),
    (("chat",), ["MODEL"]),
    (("chat", NANO, "--no-snapshot"), ["--no-snapshot", "--store"]),
    (("chat", NANO, "--history", ""), ["--history"]),
    (("chat", NANO, "--effort", "0"), ["--effort"]),
    (("chat", NANO, "--think", "--effort", "hard"), ["--effort", "low, high, max"]),
    (("chat", NANO, "--show-prompt"), ["--show-prompt", "--messages"]),
    (("chat", NANO, "--messages", "x", "--ids"), ["--ids", "--show-prompt"]),
    (("chat", NANO, "--messages", "x", "--system", "s"), ["--messages", "--system"]),
    (("chat", NANO, "--messages", "-", "--tools", "-"), ["--messages", "--tools"]),
    (("chat", NANO, "--tools", "-"), ["standard input"]),
    (("chat", NANO, "--effort", "50"), ["--effort", "--think"]),
    (("chat", NANO, "-n", "0"), ["--tokens"]),
    (("plan",), ["MODEL"]),
    (("plan", NANO, "--ctx", "4K,,8K"), ["--ctx"]),
    (("plan", NANO, "--ram", "64X"), ["--ram"]),
    (("plan", NANO, "--ram", "0"), ["--ram"]),
    (("plan", NANO, "--disk", "0"), ["--disk"]),
    (("plan", NANO, "--disk", "fast"), ["--disk"]),
    (("eval", NANO), ["--text"]),
    (("eval", NANO, "--text", HELDOUT, "--ctx", "1"), ["--ctx"]),
    (("eval", NANO, "--text", HELDOUT, "--kv", "fp4,,fp8"), ["--kv"]),
    (("eval", NANO, "--text", HELDOUT, "--kv", "fp4,fp5"), ["--kv", "fp5"]),
    (("eval", NANO, "--text", HELDOUT, "--windows", "all"), ["--windows"]),
    (("eval", NANO, "--text", HELDOUT, "--base", "fp5"), ["--base", "fp5"]),
    (("eval", NANO, "--text", HELDOUT, "--replay", "exact"), ["--replay", "--store"]),
    (("tune", NANO), ["--text"]),
    (("ladder", NANO), ["--text"]),
    (("experts",), ["TRACE"]),
    (("experts", "x", "--prompt", "9"), ["--prompt", "--generate"]),
    (("experts", "--generate", "--slots", "0"), ["--slots"]),
    (("ladder", NANO, "--text", HELDOUT, "--ctx", "8"), ["--ctx", "64"]),
    (("ladder", NANO, "--text", HELDOUT, "--kv", "fp5"), ["--kv", "fp5"]),
    (("tune", NANO, "--text", HELDOUT, "--task", "speed"), ["--task", "generation, retrieval"]),
    (("tune", NANO, "--text", HELDOUT, "--formats", "fp4,fp5"), ["--formats", "fp5"]),
    (("tune", NANO, "--text", HELDOUT, "--budget", "none"), ["--budget", "none"]),
    (("eval", NANO, "--text", HELDOUT, "--no-loss"), ["--no-loss"]),
    (("eval", NANO, "--text", HELDOUT, "--seed", "3"), ["--seed", "--needle"]),
    (("eval", NANO, "--text", HELDOUT, "--blame-topk", "3"), ["--blame-topk", "--blame"]),
    (("eval", NANO, "--text", HELDOUT, "--needle", "--depths", "0,50,20"), ["--depths", "ascend"]),
    (("eval", NANO, "--text", HELDOUT, "--needle", "--depths", "0,101"), ["--depths", "101"]),
    (("eval", NANO, "--text", HELDOUT, "--ctx", "256", "--cut", "256"), ["--cut", "256"]),
    (("logits", NANO, "--out", "x"), ["--ids"]),
    (("logits", NANO, "--ids", "1,2"), ["--out"]),
    (("logits", NANO, "--ids", "1,2", "--out", "x", "--cut", "2"), ["--cut"]),
    (("logits", NANO, "--ids", "1,2", "--out", "x", "--cut", "-2"), ["--cut"]),
    (("logits", NANO, "--ids", "1,2", "--out", "x", "--rows", "some"), ["--rows"]),
    (("logits", NANO, "--ids", "1,2", "--out", "x", "--replay", "exact"), ["--replay", "--cut"]),
    (("inspect",), ["MODEL"]),
    (("inspect", NANO, "more"), ["more"]),
    (("inspect", NANO, "--tensors", "--layers"), ["--layers"]),
    (("tokenize",), ["MODEL"]),
    (("tokenize", NANO, "-p", "a", "--decode", "1"), ["--decode"]),
    (("tokenize", NANO, "--decode", "1", "--count"), ["--count"]),
    (("doctor", "more"), ["more"]),
]
for argv, words in USAGE:
    add("usage: " + " ".join(argv).replace(NANO, "NANO").replace(HELDOUT, "TEXT"),
        lambda argv=argv, words=words: one_line_error(mote(*argv), 2, *words))


# ---- each command on real input ------------------------------------------------------------------------------------
IDS = "0,35,3346,2603,283,1011,2508,769"


def beginning(size):
    """A file with the first `size` bytes of the held-out text, which is longer than the model's context."""
    path = os.path.join(TMP, f"heldout-{size}.txt")
    with open(HELDOUT, "rb") as f, open(path, "wb") as g:
        g.write(f.read(size))
    return path


@check
def tokenize_heldout():
    ids = good_json("tokenize", NANO, "-f", HELDOUT, "--json")["ids"]
    expect(ids[:16] == [35, 3346, 2603, 283, 1011, 2508, 769, 340, 524, 16, 565, 599, 1985, 263, 2317, 277], str(ids[:16]))
    expect(len(ids) == 131078, f"{len(ids)} tokens")
    expect(good("tokenize", NANO, "-f", HELDOUT, "--count").text == "131078\n", "--count")
    back = good("tokenize", NANO, "--decode", ",".join(map(str, ids[:2000]))).out
    with open(HELDOUT, "rb") as f:
        expect(f.read(len(back) - 1) == back[:-1], "decoding does not give the text back")


@check
def tokenize_forms():
    t = "Emma Woodhouse, h\u00e9las \u4e2d\n"
    j = good_json("tokenize", NANO, "-p", t, "--json")
    expect(j["count"] == len(j["ids"]) == len(j["pieces"]), str(j))
    expect(good_json("tokenize", NANO, "--json", stdin=t.encode()) == j, "stdin differs from -p")
    expect(good_json("tokenize", os.path.join(NANO, "tokenizer.json"), "-p", t, "--json") == j, "tokenizer.json alone differs")
    expect(good("tokenize", NANO, "-", "--ids-only", stdin=t.encode()).text.strip() == ",".join(map(str, j["ids"])), "--ids-only")
    expect(good_json("tokenize", NANO, "--json", "--bos", "-p", t)["ids"] == [0] + j["ids"], "--bos")
    expect(good_json("tokenize", NANO, "--json", "--decode", ",".join(map(str, j["ids"])))["text"] == t, "--decode")
    special = good_json("tokenize", NANO, "--json", "-p", "<\uff5cUser\uff5c>")["ids"]
    plain = good_json("tokenize", NANO, "--json", "--plain", "-p", "<\uff5cUser\uff5c>")["ids"]
    expect(special == [4091] and 4091 not in plain and len(plain) > 1, f"{special} {plain}")


@check
def plan_nano():
    j = good_json("plan", NANO, "--json", "--ctx", "4K,64K")
    expect((j["global_bytes_per_token"], j["main_bytes_per_token"], j["index_bytes_per_token"]) == (212, 144, 68), str(j))
    expect([c["ctx"] for c in j["contexts"]] == [4096, 65536], str(j["contexts"]))
    expect(j["contexts"][0]["global_bytes"] == 212 * 4096, str(j["contexts"]))
    expect(set(j["weights"]) >= {"dense", "routed_experts", "engram", "other"} and j["family"], str(j))
    expect(j["window_bytes_per_sequence"] > 0 and j["classical_bytes_per_token"] > 212, str(j))
    expect(good_json("plan", os.path.join(NANO, "config.json"), "--json")["global_bytes_per_token"] == 212, "bare config.json")
    text = good("plan", NANO, "--ram", "1G").text
    for w in ("212", "144", "68", "fp4", "fp8", "bf16", "65,536", "What fits in 1.00 GiB\n"):
        expect(w in text, f"'{w}' is not in the table")
    j = good_json("plan", NANO, "--json", "--ram", "8M", "--disk", "1G", "--ctx", "4K")
    row = j["ram"]["mapped"]["contexts"][0]
    expect(j["header_bytes"] > 0 and j["weights"]["total"] > 8 << 20 and row["answer_disk_bytes"] > 0, str(j["ram"]))
    expect(abs(row["answer_disk_seconds"] * 2**30 - row["answer_disk_bytes"]) < 1, str(row))


@check
def inspect_nano():
    j = good_json("inspect", NANO, "--json")
    expect(isinstance(j, dict) and len(j) > 3, str(j)[:200])
    expect(len(good("inspect", NANO).text.splitlines()) > 5, "the summary is too short")
    tensors = good("inspect", NANO, "--tensors").text
    expect("embed.weight" in tensors and "layers.11.ffn.experts.11.w2.weight" in tensors, "tensors are missing")
    expect(len(good_json("inspect", NANO, "--layers", "--json")) == 12, "not 12 layers")
    expect(len(good("inspect", NANO, "--layers").text.splitlines()) == 13, "not 13 lines")


@check
def doctor():
    expect(isinstance(good_json("doctor", "--json"), dict), "not an object")
    expect(len(good("doctor").text.splitlines()) > 3, "too short")


MEMORY = ["weights", "kv_main_codes", "kv_main_scales", "kv_index_codes", "kv_index_scales", "kv_window", "scratch", "total", "peak_rss"]


@check
def run_json():
    j = good_json("run", NANO, "-p", "Emma was not", "-n", 12, "--temp", 0, "--json", "--logprobs", 2)
    for k in ("text", "tokens", "prompt_tokens", "prefill_tokens_per_s", "decode_tokens_per_s", "memory", "finish_reason"):
        expect(k in j, f"{k} is missing")
    for k in MEMORY:
        expect(isinstance(j["memory"][k], int) and j["memory"][k] >= 0, f"memory.{k}")
    expect(j["memory"]["weights"] > 20e6 and j["memory"]["total"] <= j["memory"]["peak_rss"] * 2, str(j["memory"]))
    expect(len(j["tokens"]) == len(j["logprobs"]) <= 12, "tokens and logprobs")
    expect(all(len(x["top"]) == 2 and x["top"][0]["id"] == x["id"] and x["logprob"] <= 0 for x in j["logprobs"]), "greedy is not top")
    n = len(good_json("tokenize", NANO, "--json", "-p", "Emma was not")["ids"])
    expect(j["prompt_tokens"] == n + 1, "BOS and the text")
    expect(j["prefill_tokens_per_s"] > 0 and j["decode_tokens_per_s"] > 0, "speeds")
    expect(abs(j["kv_bytes_per_token"]["total"] - 212) < 1e-9, "212 bytes a token")


@check
def run_text_is_the_json_text():
    base = ("run", NANO, "-p", "It was a", "-n", 12, "--temp", 0)
    j = good_json(*base, "--json")
    r = good(*base)
    expect(r.err == "", f"stderr: {r.err}")
    end = "" if j["text"].endswith("\n") else "\n"
    expect(r.text == j["text"] + end, f"{r.text!r} {j['text']!r}")
    expect(good("run", NANO, "-", "-n", 12, "--temp", 0, stdin=b"It was a").out == r.out, "from stdin")
    ids = ",".join(map(str, [0] + good_json("tokenize", NANO, "--json", "-p", "It was a")["ids"]))
    expect(good("run", NANO, "--ids", ids, "-n", 12, "--temp", 0).out == r.out, "from --ids")
    expect(good(*base, "-t", 1).out == r.out and good(*base, env={"MOTE_THREADS": "3"}).out == r.out, "threads change the text")
    for mode in ("copy", "map", "auto"):
        k = good_json(*base, "--json", "--weights", mode)
        expect(k["tokens"] == j["tokens"] and k["weights"] == ("map" if mode == "map" else "copy"), f"--weights {mode}: {k}")
        expect(k["experts"] is None and k["placed"]["experts"]["placed"] == k["weights"], f"--weights {mode}: {k}")


@check
def run_placed_by_group():
    base = ("run", NANO, "-p", "It was a", "-n", 12, "--temp", 0)
    want = good(*base).out
    for place in ("experts=map", "dense=map,experts=copy", "embed=copy,engram=copy", "experts=stream"):
        r = good(*base, "--place", place, "--stats")
        expect(r.out == want, f"--place {place} changes the text")
        for part in place.split(","):
            group, mode = part.split("=")
            line = next(x for x in r.err.splitlines() if x.startswith("weights "))
            word = {"map": "mapped", "copy": "copied", "stream": "streamed"}[mode]
            expect(any(w.split(":")[0].strip().endswith(word) and f" {group} " in w for w in line.split(";")), f"{place}: {line}")
    j = good_json(*base, "--json", "--weights", "stream", "--expert-ram", "1M")
    x = j["experts"]
    expect(x["slots"] * x["slot_bytes"] <= 1 << 20 and x["wanted"] == x["hits"] + x["guessed"] + x["read"] > 0, str(x))
    expect(x["read_bytes"] + x["guess_bytes"] > 0 and j["placed"]["experts"]["placed"] == "stream" and j["weights"] == "mixed", str(j))
    r = good(*base, "--weights", "stream", "--expert-ram", "1M", "--stats")
    expect(any(x.startswith("experts ") and "slots" in x and "hit" in x for x in r.err.splitlines()), r.err)
    for bad, what in (("expert=map", "'expert' is no group"), ("experts=disk", "expected experts=auto, copy, map"), ("experts=map,", "last comma"),
                      ("experts", "expected experts="), ("", "no group")):
        one_line_error(mote("run", NANO, "-p", "x", "--place", bad), 2, what)
    one_line_error(mote(*base, "--weights", "stream", "--expert-ram", "100K"), 1, "at least 8")


@check
def run_seed():
    base = ("run", NANO, "-p", "She", "-n", 16, "--temp", 1, "--json")
    a, b, c = (good_json(*base, "--seed", s)["tokens"] for s in (1, 1, 2))
    expect(a == b, "the same seed gives another text")
    expect(a != c, "another seed gives the same text")
    d = good_json(*base)
    expect(good_json(*base, "--seed", d["seed"])["tokens"] == d["tokens"], "the reported seed does not repeat the text")


@check
def run_stop():
    base = ("run", NANO, "-p", "It was a", "-n", 24, "--temp", 0, "--ignore-eos")
    whole = good_json(*base, "--json")["text"]
    expect(len(whole) > 20, repr(whole))
    for stop in (whole[7:12], whole[3], whole[10:11] + whole[11:16]):
        j = good_json(*base, "--stop", stop, "--stop", "\x01never", "--json")
        expect(j["text"] == whole[:whole.index(stop)] and j["finish_reason"] == "stop", f"{stop!r}: {j['text']!r} of {whole!r}")
        text = good(*base, "--stop", stop).text
        expect(text.rstrip("\n") == j["text"].rstrip("\n"), f"streamed {text!r}")
    j = good_json(*base, "--stop", whole[5:9] + "\x01", "--json")
    expect(j["text"] == whole and j["finish_reason"] == "length", "a stop string that only begins changed the text")


@check
def run_stats_and_modes():
    for extra in (("--prefill", "exact"), ("--prefill", "full"), ("--kv", "main=fp8,index=bf16,window=bf16"), ("--kv", "main.2=bf16"),
                  ("--math", "published"), ("--chat",), ("--no-bos",)):
        r = good("run", NANO, "-p", "Emma", "-n", 3, "--temp", 0, "--stats", *extra)
        expect("kv_main_codes" in r.err and "bytes a token" in r.err and "peak_rss" in r.err, str(r))
    expect(good("run", NANO, "-p", "Emma", "-n", 0).out == b"", "-n 0 prints something")


@check
def run_context_ends():
    r = mote("run", NANO, "-p", "Emma", "-n", 500, "--temp", 0, "--ignore-eos", "--ctx", 20)
    expect(r.rc == 0 and r.out.endswith(b"\n") and "context" in r.err and "20" in r.err, str(r))
    j = json.loads(mote("run", NANO, "-p", "Emma", "-n", 500, "--temp", 0, "--ignore-eos", "--ctx", 20, "--json").text)
    expect(j["finish_reason"] == "context" and j["prompt_tokens"] + len(j["tokens"]) in (20, 21), str(j)[:300])


def read_logits(path):
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack("<Q", data[:8])[0]
    t = json.loads(data[8:8 + n])["logits"]
    expect(t["dtype"] == "F32" and t["data_offsets"][0] == 0 and len(data) == 8 + n + t["data_offsets"][1], str(t))
    rows, vocab = t["shape"]
    expect(t["data_offsets"][1] == 4 * rows * vocab, str(t))
    flat = struct.unpack(f"<{rows * vocab}f", data[8 + n:])
    return [flat[r * vocab:(r + 1) * vocab] for r in range(rows)]


@check
def logits_file():
    out = os.path.join(TMP, "l.safetensors")
    with open(out, "w") as f:
        f.write("old")
    j = good_json("logits", NANO, "--ids", IDS, "--prefill", "full", "--decode", "340,524", "--out", out, "--json")
    expect((j["rows"], j["first"], j["vocabulary"]) == (10, 0, 4096), str(j))
    rows = read_logits(out)
    expect(len(rows) == 10 and len(rows[0]) == 4096 and all(map(math.isfinite, rows[3])), "rows")
    greedy = good_json("run", NANO, "--ids", IDS, "-n", 1, "--temp", 0, "--ignore-eos", "--json")["tokens"][0]
    expect(max(range(4096), key=lambda i: (rows[7][i], -i)) == greedy, "row 7 and greedy run differ")
    good("logits", NANO, "--ids", IDS + ",340,524", "--prefill", "full", "--out", out)
    expect(read_logits(out) == rows, "decoding differs from prefill")
    for chunk in (1, 3):
        good("logits", NANO, "--ids", IDS + ",340,524", "--prefill", "full", "--chunk", chunk, "--out", out)
        expect(read_logits(out) == rows, f"chunks of {chunk} differ")
    good("logits", NANO, "--ids", IDS, "--prefill", "full", "--rows", "last", "--out", out)
    expect(read_logits(out) == [rows[7]], "--rows last")
    # 8 tokens are fewer than the window: exact replay must give the same rows
    good("logits", NANO, "--ids", IDS, "--prefill", "full", "--cut", 4, "--replay", "exact", "--out", out)
    expect(read_logits(out)[-4:] == rows[4:8], "--cut with exact replay differs")
    good("logits", NANO, "--ids", IDS, "--cut", 4, "--replay", "bounded", "--out", out)
    left = [f for f in os.listdir(TMP) if f.startswith("l.safetensors") and f != "l.safetensors"]
    expect(not left, f"left behind: {left}")


@slow_check
def eval_rows():
    j = good_json("eval", NANO, "--text", HELDOUT, "--ctx", "64,128", "--kv", "fp4,fp8,bf16", "--windows", 2, "--json")
    rows = j["rows"]
    expect([(r["ctx"], r["kv"]) for r in rows] == [(c, k) for c in (64, 128) for k in ("fp4", "fp8", "bf16")], str(rows)[:300])
    for r in rows:
        for k in ("tokens", "perplexity", "kl_vs_bf16", "top1_agreement", "kv_bytes_per_token", "prefill_tokens_per_s",
                  "decode_tokens_per_s", "peak_bytes", "loss"):
            expect(isinstance(r[k], (int, float)), f"{k}: {r[k]}")
        expect(r["tokens"] == 2 * (r["ctx"] - 1), str(r))
        expect(abs(math.exp(r["loss"]) / r["perplexity"] - 1) < 1e-6 and 10 < r["perplexity"] < 200, str(r))
        expect(0 <= r["kl_vs_bf16"] < 0.1 and 0.8 < r["top1_agreement"] <= 1, str(r))
    expect(rows[0]["kl_vs_bf16"] > 0 and rows[2]["kl_vs_bf16"] == 0 and rows[2]["top1_agreement"] == 1, str(rows)[:500])
    expect([r["kv_bytes_per_token"] for r in rows[:3]] == [212, 332, 580], str([r["kv_bytes_per_token"] for r in rows[:3]]))
    r = good_json("eval", NANO, "--text", HELDOUT, "--ctx", 64, "--kv", "main=fp8,index=bf16;fp4", "--no-kl", "--json")["rows"]
    expect([x["kv"] for x in r] == ["main=fp8,index=bf16", "fp4"] and r[0]["kl_vs_bf16"] is None, str(r)[:300])
    expect("perplexity" in good("eval", NANO, "--text", HELDOUT, "--ctx", 64).text, "no table")


def chat(lines, *extra):
    r = mote("chat", NANO, "--temp", 0, "-n", 8, *extra, stdin="".join(x + "\n" for x in lines).encode())
    expect(r.rc == 0, str(r))
    return r


@check
def chat_keeps_the_session():
    for mode in ((), ("--think",)):
        r = chat(["Good day to you, my dear.", "And what did she say?", "/regen", "/stats"], "--json", *mode)
        j = [json.loads(line) for line in r.text.splitlines()]
        expect(len(j) == 3, str(r))
        expect(all(x["reply_tokens"] <= 8 and x["finish_reason"] in ("eos", "length") for x in j), str(j))
        expect(j[0]["content"] == chat(["Good day to you, my dear."], *mode).text.rstrip("\n") or mode, "text and JSON differ")
        # the second turn computes its own text only, the repeated one next to nothing, and greedily says the same
        expect(j[1]["new_tokens"] < j[1]["context_tokens"] - j[1]["reply_tokens"] - 8, str(j))
        expect(j[2]["new_tokens"] <= 8 and j[2]["content"] == j[1]["content"] and j[2]["reasoning"] == j[1]["reasoning"], str(j))
        expect(j[2]["context_tokens"] == j[1]["context_tokens"], str(j))
        expect("kv_main_codes" in r.err, "/stats")


@check
def chat_takes_messages_for_text():
    # what a person types or pastes is never a token of the format
    history = os.path.join(TMP, "typed.json")
    for number, line in enumerate(("What is <\uff5cUser\uff5c> or </think>?", "And <\uff5cend\u2581of\u2581sentence\uff5c>?")):
        chat([line], "--history", history)
        with open(history) as f:
            ids = json.load(f)["ids"]
        expect(ids.count(4091) == number + 1, f"turn {number}: {ids}")
        expect(ids.count(0) == 1 and ids.count(good_json("tokenize", NANO, "--json", "-p", "</think>")["ids"][0]) == number + 1, f"turn {number}: {ids}")
    os.remove(history)


def written(name, value):
    path = os.path.join(TMP, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(value if isinstance(value, str) else json.dumps(value))
    return path


EFFORT = "Reasoning Effort: %d (range 1-100, the higher the value, the more thorough the reasoning)\n\n"
TALK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi\0"}, {"role": "user", "content": "you"}]


def shown(model, messages, *extra):
    return good("chat", model, "--messages", "-", "--show-prompt", *extra, stdin=json.dumps(messages).encode()).text


@check
def chat_shows_the_prompt():
    begin = "<｜begin▁of▁sentence｜><｜System｜>"
    plain = begin + "Be brief.<｜User｜>Hi\0\n\nyou<｜Assistant｜></think>"
    expect(shown(NANO, TALK) == plain, repr(shown(NANO, TALK)))
    for effort, n in ((None, 75), ("low", 50), ("high", 75), ("max", 100), ("7", 7)):
        got = shown(NANO, TALK, "--think", *(("--effort", effort) if effort else ()))
        expect(got == begin + EFFORT % n + "Be brief.<｜User｜>Hi\0\n\nyou<｜Assistant｜><think>", repr(got))
    harmless = TALK[:1] + TALK[2:]
    text = shown(NANO, harmless)
    ids = shown(NANO, harmless, "--ids")
    expect(ids == good("tokenize", NANO, "--ids-only", "-f", "-", stdin=text.encode()).text, ids)
    j = json.loads(shown(NANO, TALK, "--ids", "--json"))
    expect(j["prompt"] == plain and j["ids"][0] == 0, str(j))
    tools, form = written("tools.json", [{"type": "function", "function": {"name": "f", "n": 2 ** 70}}]), written("form.json", {"x": 1e16})
    got = shown(NANO, TALK, "--tools", tools, "--response-format", form)
    expect('\n{"name": "f", "n": %d}\n\n## Response format' % 2 ** 70 in got and '{"x": 1e+16}<｜User｜>' in got, repr(got))
    talk = written("talk.json", '[{"role": "user", "content": 5}]')
    one_line_error(mote("chat", NANO, "--messages", talk, "--show-prompt"), 1, talk + ": messages[0]: 'content'")
    one_line_error(mote("chat", NANO, "--messages", talk), 1, talk + ": messages[0]: 'content'")
    one_line_error(mote("chat", NANO, "--tools", talk, stdin=b""), 1, talk + ": tools[0]: 'name'")
    one_line_error(mote("chat", NANO, "--messages", written("nan.json", "[NaN]"), "--show-prompt"), 1, "nan.json", "line 1", "NaN")


def folder(name, **files):
    """A checkpoint folder like nano's: links, but for the files that are given by their text."""
    path = os.path.join(TMP, name)
    shutil.rmtree(path, ignore_errors=True)
    os.mkdir(path)
    for f in os.listdir(NANO):
        if f not in files:
            os.symlink(os.path.join(NANO, f), os.path.join(path, f))
    for f, text in files.items():
        os.makedirs(os.path.dirname(os.path.join(path, f)), exist_ok=True)
        with open(os.path.join(path, f), "w", encoding="utf-8") as out:
            out.write(text)
    return path


@check
def chat_takes_the_model_s_wording():
    with open(os.path.join(ROOT, "tests", "data", "chat", "encoding.py"), encoding="utf-8") as f:
        source = f.read()
    m = folder("worded", **{"encoding/encoding.py": source})
    file = os.path.join(m, "encoding", "encoding.py")
    tools = written("tools.json", [{"function": {"name": "f"}}])
    got = shown(m, TALK[2:], "--think", "--effort", "max", "--tools", tools)
    expect(got.startswith("<｜begin▁of▁sentence｜><｜System｜>Think this hard: 100 of {1..100}\n\n\n\n### Functions\n\nCall them so, \"<｜DSML｜ calls>\" first:\n"), repr(got))
    expect(got.endswith('Reason from <think> to </think>; A é 😀 A ends here.\n{"name": "f"}\n<｜User｜>you<｜Assistant｜><think>'), repr(got))
    expect(good_json("inspect", m, "--json")["chat"] == {"wording": "model", "file": file, "error": None}, "inspect --json")
    expect(re.search(r"wording +model", good("inspect", m).text), "inspect")
    expect(good_json("inspect", NANO, "--json")["chat"] == {"wording": "mote", "file": None, "error": None}, "inspect --json, ours")
    # what cannot be read is no chat, and ours does not stand in; the rest of the model is not concerned
    for text, *words in ((source + "TOOLS_TEMPLATE = f'{x}'\n", "TOOLS_TEMPLATE"), (source.replace("{schema}", "{scheme}"), "response_format_template", "{scheme}"),
                         (source + "x = (", "bracket")):
        m = folder("worded", **{"encoding/encoding.py": text})
        one_line_error(mote("chat", m, "--messages", "-", "--show-prompt", stdin=b"[]"), 1, file, *words)
        one_line_error(mote("chat", m, stdin=b"Hello\n"), 1, file, *words)
        expect(file in good_json("inspect", m, "--json")["chat"]["error"], "inspect names no error")
        good("run", m, "-p", "x", "-n", 1)
    # no weights, and for the text alone no tokenizer; another family has no such format
    bare = os.path.join(TMP, "bare")
    os.makedirs(bare, exist_ok=True)
    shutil.copy(os.path.join(NANO, "config.json"), bare)
    expect(shown(bare, TALK) == shown(NANO, TALK), "no weights")
    one_line_error(mote("chat", bare, "--messages", "-", "--show-prompt", "--ids", stdin=b"[]"), 1, "tokenizer.json")
    for path in (os.path.join(TMP, "no-such-folder"), os.path.join(ROOT, "docs")):
        one_line_error(mote("chat", path, "--messages", "-", "--show-prompt", stdin=b"[]"), 1, path, "config.json")
    twin = os.path.join(ROOT, "models", "twins", "gqa")
    one_line_error(mote("chat", twin, "--messages", "-", "--show-prompt", stdin=b"[]"), 1, "chat format")


@check
def chat_answers_messages():
    want = chat(["you"], "--json")
    r = good("chat", NANO, "--messages", written("talk.json", TALK[2:]), "--temp", 0, "-n", 8, stdin=b"not read\n")
    expect(r.text == json.loads(want.text)["content"] + "\n" and not r.err, str(r))
    more = TALK[2:] + [{"role": "assistant", "content": json.loads(want.text)["content"], "unfinished": True}]
    j = good_json("chat", NANO, "--messages", written("talk.json", more), "--temp", 0, "-n", 4, "--json", "--think")
    expect(j["reasoning"] is None and j["reply_tokens"] <= 4, str(j))
    more[1]["unfinished"] = False
    one_line_error(mote("chat", NANO, "--messages", written("talk.json", more)), 1, "nothing to answer")


@check
def chat_ends_the_reasoning_at_the_first_end():
    # nano made to say </think> and nothing else, its token special or not
    with open(os.path.join(NANO, "model.safetensors.index.json")) as f:
        shard = json.load(f)["weight_map"]["head.weight"]
    with open(os.path.join(NANO, shard), "rb") as f:
        data = bytearray(f.read())
    n, = struct.unpack("<Q", data[:8])
    entry = json.loads(data[8:8 + n])["head.weight"]
    row = entry["shape"][1] * 2
    at = 8 + n + entry["data_offsets"][0]
    first = good_json("tokenize", NANO, "--json", "-p", chat(["Hello"], "--think", "-n", 1, "--json").text and
                      json.loads(chat(["Hello"], "--think", "-n", 1, "--json").text)["reasoning"])["ids"][0]
    likely = [x[0] for x in struct.iter_unpack("<H", data[at + first * row:at + (first + 1) * row])]
    four = b"".join(struct.pack("<f", 4 * struct.unpack("<f", struct.pack("<I", x << 16))[0])[2:] for x in likely)
    data[at + 4095 * row:at + 4096 * row] = four
    with open(os.path.join(NANO, "tokenizer.json"), encoding="utf-8") as f:
        tokenizer = json.load(f)
    for special in (False, True):
        for t in tokenizer["added_tokens"]:
            t["special"] = special if "think" in t["content"] else t["special"]
        m = folder("ends", **{"tokenizer.json": json.dumps(tokenizer), shard: ""})
        with open(os.path.join(m, shard), "wb") as f:
            f.write(data)
        r = good_json("chat", m, "--think", "--temp", 0, "-n", 3, "--json", stdin=b"Hello\n")
        expect((r["reasoning"], r["content"]) == ("", "</think></think>"), f"special {special}: {r}")
        r = good("chat", m, "--think", "--temp", 0, "-n", 3, stdin=b"Hello\n")
        expect(r.text == "</think></think>\n" or r.text == "\n\n</think></think>\n", str(r))


@check
def numbers_that_nobody_reads():
    # beyond 2^63 and beyond the doubles, in every JSON file of a model
    extra = '{"nobody": [18446744073709551616, -9223372036854775809, 1e400, -1e400, %s],' % ("9" * 400)
    files = {}
    for f in ("config.json", "generation_config.json", "tokenizer.json", "model.safetensors.index.json"):
        with open(os.path.join(NANO, f), encoding="utf-8") as src:
            text = src.read()
        files[f] = text.replace("{", extra, 1) if f != "tokenizer.json" else re.sub('"version": ?"1.0"', '"version": 18446744073709551616', text, count=1)
    expect("18446744073709551616" in files["tokenizer.json"], "tokenizer.json has no version")
    want = good("run", NANO, "-p", "Emma", "-n", 4, "--temp", 0).text
    expect(good("run", folder("numbers", **files), "-p", "Emma", "-n", 4, "--temp", 0).text == want, "text")
    good("plan", os.path.join(TMP, "numbers"))
    good("inspect", os.path.join(TMP, "numbers"))
    files["config.json"] = files["config.json"].replace('"vocab_size": 4096', '"vocab_size": 18446744073709551616')
    one_line_error(mote("run", folder("numbers", **files), "-p", "x"), 1, "vocab_size")
    history = written("numbers.json", '{"nobody": 18446744073709551616, "version": 1, "system": null, "messages": [], "ids": [], "mark": 0}')
    chat(["Hello"], "--history", history)


@check
def chat_commands():
    saved = os.path.join(TMP, "saved.json")
    r = chat(["/help", "/system Be kind.", "Hello", "/save " + saved, "/reset", "Hello", "/quit", "never"], "--json")
    j = [json.loads(line) for line in r.text.splitlines()]
    expect(len(j) == 2 and j[0]["content"] == j[1]["content"], str(r))
    with open(saved) as f:
        m = json.load(f)
    expect([x["role"] for x in m] == ["system", "user", "assistant"] and m[0]["content"] == "Be kind.", str(m))
    one_line_error(mote("chat", NANO, stdin=b"/frob\n"), 1, "/frob")
    r = mote("chat", NANO, "--ctx", 12, stdin=b"A rather long message that does not fit into twelve tokens of context\n")
    one_line_error(r, 1, "full|limit", "/reset")


# ---- a Llama-style model ---------------------------------------------------------------------------------------------
def make_llama():
    """A folder with a small random model and nano's tokenizer: 2 layers, 4 heads over 2 KV heads of 16, tied BF16 embeddings."""
    folder = os.path.join(TMP, "llama")
    if os.path.exists(folder):
        return folder
    os.makedirs(folder)
    shutil.copy(os.path.join(NANO, "tokenizer.json"), folder)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(dict(model_type="llama", vocab_size=4096, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                       num_key_value_heads=2, head_dim=16, intermediate_size=48, rms_norm_eps=1e-5, max_position_embeddings=4096,
                       tie_word_embeddings=True, hidden_act="silu", bos_token_id=0, eos_token_id=1), f)
    shapes = {"model.embed_tokens.weight": [4096, 32], "model.norm.weight": [32]}
    for l in range(2):
        p = f"model.layers.{l}."
        shapes.update({p + "input_layernorm.weight": [32], p + "post_attention_layernorm.weight": [32],
                       p + "self_attn.q_proj.weight": [64, 32], p + "self_attn.k_proj.weight": [32, 32],
                       p + "self_attn.v_proj.weight": [32, 32], p + "self_attn.o_proj.weight": [32, 64],
                       p + "mlp.gate_proj.weight": [48, 32], p + "mlp.up_proj.weight": [48, 32], p + "mlp.down_proj.weight": [32, 48]})
    rng, head, at, data = random.Random(5), {}, 0, []
    for name, shape in shapes.items():
        n = math.prod(shape)
        values = [1.0] * n if "norm" in name else [rng.uniform(-.5, .5) for _ in range(n)]
        data.append(b"".join(struct.pack("<f", v)[2:] for v in values))
        head[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + 2 * n]}
        at += 2 * n
    blob = json.dumps(head).encode()
    blob += b" " * (-len(blob) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(blob)) + blob + b"".join(data))
    return folder


@check
def llama_plan_and_inspect():
    m = make_llama()
    j = good_json("plan", m, "--kv", "key=fp4,value.1=f32", "--json")
    expect(j["runs"] and j["runs_note"] is None and j["part_names"] == ["key", "value"] and j["family"] == "gqa", str(j)[:400])
    # 2 heads x 16: FP4 16 codes and 2 scales a layer; BF16 64, F32 128
    expect((j["key_bytes_per_token"], j["value_bytes_per_token"], j["block_bytes"]) == (36, 192, 228 * 256), str(j)[:400])
    expect(j["kv"] == "key=fp4,value=bf16,value.1=f32", j["kv"])
    text = good("plan", m).text
    for w in ("keys", "values", "key=bf16,value=bf16", "256"):
        expect(w in text, f"'{w}' is not in the table:\n{text}")
    j = good_json("inspect", m, "--json")
    expect(j["completeness"]["complete"] and j["config"]["family"] == "llama" and j["config"]["kv_heads"] == 2, str(j)[:600])
    expect({c["class"] for c in j["classes"]} == {"embed", "norm", "attention", "ffn"}, str(j["classes"]))
    rows = good_json("inspect", m, "--layers", "--json")
    expect([(r["role"], r["half"], r["kv_source"]) for r in rows] == [("dense", "all", 0), ("dense", "all", 1)], str(rows))
    sums = good("plan", os.path.join(ROOT, "tests", "data", "config", "mistral-7b-v0.1.json")).text
    expect("mote does not run it" in sums, sums)


@check
def llama_run_and_eval():
    m = make_llama()
    a = good_json("run", m, "-p", "It was a truth", "-n", 8, "--temp", 0, "--ignore-eos", "--json", "--kv", "key=fp4,value=bf16")
    expect(a["kv_bytes_per_token"] == {"key_codes": 32, "key_scales": 4, "value_codes": 128, "value_scales": 0, "total": 164}, str(a))
    mem = a["memory"]
    expect((mem["kv_key_codes"], mem["kv_key_scales"], mem["kv_value_codes"], mem["kv_value_scales"], mem["kv_main_codes"]) ==
           (32 * 256, 4 * 256, 128 * 256, 0, 0), str(mem))
    for extra in (("-t", 1), ("-t", 3), ("--prefill", "full")):
        b = good_json("run", m, "-p", "It was a truth", "-n", 8, "--temp", 0, "--ignore-eos", "--json", "--kv", "key=fp4,value=bf16", *extra)
        expect(b["tokens"] == a["tokens"], f"{extra}: {b['tokens']} {a['tokens']}")
    r = good("run", m, "-p", "It was a truth", "-n", 2, "--stats")
    expect("kv_key_codes" in r.err and "kv_main_codes" not in r.err and "windows" not in r.err and "key=bf16,value=bf16" in r.err, str(r))
    out = os.path.join(TMP, "llama.safetensors")
    good("logits", m, "--ids", IDS, "--out", out)
    rows = read_logits(out)
    for extra in (("--chunk", 1), ("--cut", 4), ("--prefill", "exact")):
        good("logits", m, "--ids", IDS, "--out", out, *extra)
        got = read_logits(out)
        expect(got and got == rows[-len(got):], f"{extra} differs")
    j = good_json("eval", m, "--text", HELDOUT, "--ctx", 300, "--kv", "bf16;key=f32,value=fp4;fp4", "--json")["rows"]
    expect([r["kv_bytes_per_token"] for r in j] == [256, 292, 72], str(j)[:500])
    expect(j[0]["kl_vs_bf16"] == 0 and 0 < j[1]["kl_vs_bf16"] and 0 < j[2]["kl_vs_bf16"], str(j)[:500])
    expect(good_json("eval", m, "--text", HELDOUT, "--ctx", 64, "--json")["rows"][0]["kv"] == "bf16", "the default format")
    one_line_error(mote("chat", m, stdin=b"hello\n"), 1, "chat format of a 'llama' model is not known")
    one_line_error(mote("run", m, "--chat", "-p", "x"), 1, "chat format of a 'llama' model is not known")
    one_line_error(mote("run", m, "-p", "x", "--kv", "main=fp4"), 2, "there are key, value")
    one_line_error(mote("run", m, "-p", "x", "--kv", "fp8"), 1, "fp8 stores groups of 32 values, this model's 'head_dim' is 16")


@check
def llama_bad_weights():
    def broken(name, change):
        folder = os.path.join(TMP, name)
        shutil.copytree(make_llama(), folder)
        path = os.path.join(folder, "config.json")
        config = json.load(open(path))
        config.update(change)
        with open(path, "w") as f:
            json.dump(config, f)
        return folder
    for name, change, *words in (("heads", {"num_key_value_heads": 4}, "model.safetensors", "self_attn.k_proj.weight", "has shape [32, 32]"),
                                 ("deep", {"num_hidden_layers": 3}, "model.layers.2.input_layernorm.weight", "missing"),
                                 ("untied", {"tie_word_embeddings": False}, "lm_head.weight", "missing"),
                                 ("biased", {"model_type": "qwen2"}, "model.layers.0.self_attn.q_proj.bias", "missing"),
                                 ("moe", {"num_experts": 8}, "config.json", "num_experts"),
                                 ("slides", {"sliding_window": 8}, "config.json", "sliding_window")):
        one_line_error(mote("run", broken("llama-" + name, change), "-p", "x", "-n", 1), 1, *words)


@check
def llama_store():
    m, store, ids = make_llama(), os.path.join(TMP, "llama-store"), ",".join(str(2 + i * i % 4000) for i in range(600))
    run = lambda *more: good_json("run", m, "--ids", ids, "-n", 4, "--temp", 0, "--ignore-eos", "--json", "--store", store, *more)
    first = run()
    expect(first["reused_tokens"] == 0, str(first))
    again = run("--snapshot")
    expect((again["reused_tokens"], again["replayed_tokens"], again["exact"]) == (512, 0, True) and again["tokens"] == first["tokens"], str(again))
    ids += ",7,8,9"
    cold = good_json("run", m, "--ids", ids, "-n", 4, "--temp", 0, "--ignore-eos", "--json")
    expect(run()["tokens"] == cold["tokens"], "a stored prefix changes the result")


# ---- store ---------------------------------------------------------------------------------------------------------
def text_ids(n):
    return [0] + good_json("tokenize", NANO, "-f", HELDOUT, "--json")["ids"][:n - 1]


def run_ids(ids, *extra, warns=False):
    r = good("run", NANO, "--ids", ",".join(map(str, ids)), "-n", 12, "--temp", 0, "--json", *extra)
    if not warns:
        expect(r.err == "", f"stderr not empty: {r}")
    j = json.loads(r.text)
    expect(j["reused_tokens"] + j["computed_tokens"] == j["prompt_tokens"] == len(ids), str(j)[:1500])
    return (j, r.err) if warns else j


def reuse(j):
    return j["reused_tokens"], j["replayed_tokens"], j["from_snapshot"], j["exact"]


@slow_check
def store_is_reused():
    store, ids = os.path.join(TMP, "store"), text_ids(700)
    cold = run_ids(ids)
    expect(reuse(cold) == (0, 0, False, True), str(reuse(cold)))
    first = run_ids(ids, "--store", store)
    expect(reuse(first) == (0, 0, False, True) and first["tokens"] == cold["tokens"], str(reuse(first)))
    expect(os.stat(store).st_mode & 0o777 == 0o700, "mode of the directory")
    exact = run_ids(ids, "--store", store, "--replay", "exact")
    expect(exact["reused_tokens"] == 512 and exact["replayed_tokens"] > 64 and exact["exact"], str(reuse(exact)))
    expect(exact["tokens"] == cold["tokens"] and exact["text"] == cold["text"], "exact replay changes the text")
    expect(exact["time_to_first_token_s"] > 0, "time to first token")
    for n in (512, 513):                       # stored whole: nothing is left to feed; and one token
        whole = run_ids(ids[:n], "--store", store, "--replay", "exact")
        expect(reuse(whole)[0] == 512 and whole["tokens"] == run_ids(ids[:n])["tokens"], f"{n} tokens: {reuse(whole)}")
    for at, reused in ((100, 0), (255, 0), (256, 256), (300, 256), (511, 256), (512, 512)):
        other = ids[:at] + [ids[at] ^ 1] + ids[at + 1:]
        j = run_ids(other, "--store", store, "--replay", "exact", "--namespace", "")
        expect(j["reused_tokens"] == reused and j["tokens"] == run_ids(other)["tokens"], f"divergence at {at}: {reuse(j)}")
    for extra in (("--namespace", "other"), ("--kv", "bf16"), ("--math", "published")):
        expect(run_ids(ids, "--store", store, *extra)["reused_tokens"] == 0, f"{extra} shares blocks")
    bounded = run_ids(ids + text_ids(900)[700:], "--store", store)
    expect(reuse(bounded) == (512, 64, False, False), str(reuse(bounded)))
    r = good("run", NANO, "--ids", ",".join(map(str, ids)), "-n", 1, "--temp", 0, "--store", store, "--stats")
    expect("512 tokens reused" in r.err and "64 replayed" in r.err and "approximate" in r.err, str(r))


class Server:
    """Debian's redis-server on a free port of the loopback, without persistence."""
    def __init__(self, *options):
        for _ in range(5):
            # below the ports that connections get: another's, or the one that looks for it, could take it first
            self.port = random.SystemRandom().randrange(20000, 30000)
            self.process = subprocess.Popen(
                ["redis-server", "--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--port", str(self.port),
                 "--dir", TMP, "--loglevel", "warning", *options], stdout=subprocess.DEVNULL)
            while self.process.poll() is None:
                try:
                    socket.create_connection(("127.0.0.1", self.port)).close()
                    return
                except OSError:
                    time.sleep(0.02)
        raise Failed("redis-server does not start")

    def __enter__(self):
        return self

    def __exit__(self, *why):
        self.process.kill()
        self.process.wait()


@slow_check
def store_behind_a_server():
    ids = text_ids(700)
    cold = run_ids(ids)
    dirs = [os.path.join(TMP, "remote-" + c) for c in "abcd"]
    with Server("--requirepass", "hunter2") as server:
        url = f"redis://127.0.0.1:{server.port}"
        with_word = f",redis://:hunter2@127.0.0.1:{server.port}"
        j = run_ids(ids, "--store", dirs[0] + with_word)
        expect(reuse(j)[0] == j["reused_remote_tokens"] == 0 and j["tokens"] == cold["tokens"], str(j))
        j = run_ids(ids, "--store", dirs[1] + with_word, "--replay", "exact")
        expect(j["reused_tokens"] == j["reused_remote_tokens"] == 512, str(reuse(j)))
        expect(j["tokens"] == cold["tokens"] and j["text"] == cold["text"] and j["exact"], "blocks from a server change the text")
        j = run_ids(ids, "--store", dirs[1], "--replay", "exact")        # it is in the directory now
        expect(j["reused_tokens"] == 512 and j["reused_remote_tokens"] == 0 and j["tokens"] == cold["tokens"], str(reuse(j)))
        os.environ["MOTE_REDIS_PASSWORD"] = "hunter2"
        try:
            r = good("run", NANO, "--ids", ",".join(map(str, ids)), "-n", 1, "--temp", 0, "--store", dirs[2] + "," + url, "--stats")
        finally:
            del os.environ["MOTE_REDIS_PASSWORD"]
        expect("512 tokens reused, from a server 512" in r.err, r.err)
        j, err = run_ids(ids, "--store", f"{dirs[3]},redis://:wrong-word@127.0.0.1:{server.port}", warns=True)
        expect(reuse(j)[0] == 0 and j["tokens"] == cold["tokens"], str(reuse(j)))
        expect(err.count("\n") == 1 and "refuses" in err and url in err and "wrong-word" not in err, err)
    with socket.socket() as hole:                                   # takes connections, and never says a word
        hole.bind(("127.0.0.1", 0))
        hole.listen(8)
        began = time.monotonic()
        j, err = run_ids(ids, "--store", f"{dirs[0]},redis://127.0.0.1:{hole.getsockname()[1]}", "--replay", "exact", warns=True)
        took = time.monotonic() - began
        began = time.monotonic()
        plain = run_ids(ids, "--store", dirs[0], "--replay", "exact")
        more = took - (time.monotonic() - began)
        expect(j["tokens"] == plain["tokens"] and more < 3, f"a server that hangs costs {more:.1f} s")
        expect(err == "" or (err.count("\n") == 1 and "no answer within" in err), err)
    j, err = run_ids(ids, "--store", dirs[3] + with_word, "--replay", "exact", warns=True)      # nobody is there any more
    expect(j["reused_tokens"] == 512 and j["reused_remote_tokens"] == 0 and j["tokens"] == cold["tokens"], str(reuse(j)))
    expect(err.count("\n") == 1 and "tried again" in err and "hunter2" not in err, err)


@slow_check
def eval_needles():
    base = ("eval", NANO, "--text", HELDOUT, "--no-loss", "--needle", "--depths", "0,50,100", "--ctx", "192,256", "--samples", 1, "--json")
    j = good_json(*base, "--kv", "fp4", "--base", "main=f32,index=f32,window=f32")
    n = j["needle"]
    expect(j["rows"] == [] and n["depths"] == [0, 0.5, 1] and n["samples"] == 1 and n["seed"] == 1, str(j)[:500])
    expect([(r["kv"][:8], r["ctx"], r["asked"]) for r in n["rows"]] == [(k, c, 3) for c in (192, 256) for k in ("main=f32", "fp4")], str(n["rows"])[:900])
    expect(len(n["cells"]) == 12 and all(c["asked"] == 1 for c in n["cells"]), str(len(n["cells"])))
    for r in n["rows"]:
        expect(0 <= r["recall"] <= 1 and 0 <= r["choice"] <= 1 and r["logp"] < 0 and r["greedy"] >= r["recall"], str(r))
    expect(n["rows"][0]["logp_minus_base"] == 0 and n["rows"][1]["logp_minus_base"] != 0, str(n["rows"])[:900])
    expect(good_json(*base, "--kv", "fp4", "--base", "main=f32,index=f32,window=f32")["needle"] == n, "the same seed gives other figures")
    expect(good_json(*base, "--kv", "fp4", "--seed", 2)["needle"]["rows"] != n["rows"], "the seed changes nothing")
    expect("100 %" in good(*[a for a in base if a != "--json"]).text, "no table by depth")


@slow_check
def eval_cuts_and_kv_error():
    j = good_json("eval", NANO, "--text", HELDOUT, "--no-loss", "--ctx", 320, "--cut", "256,128", "--kv-error", "--json")
    expect([c["cut"] for c in j["cuts"]] == [256, 128] and j["cuts"][0]["tokens"] == 63, str(j["cuts"])[:500])
    ways = {w["way"]: w for w in j["cuts"][0]["ways"]}
    expect(ways["hit, exact replay"]["minus_cold"] == 0 and not ways["hit, exact replay"]["beyond_noise"], str(ways))
    expect(ways["hit, bounded replay"]["minus_cold"] != 0 and ways["hit, bounded replay"]["minus_cold_se"] > 0, str(ways))
    rows = j["kv_error"][0]["rows"]
    expect(len(rows) == 2 * 3 + 12 and all(0 < r["rounding"] < 0.17 and 0 < r["error"] < 1 for r in rows), str(rows)[:900])
    expect([r["format"] for r in rows[:2]] == ["fp4", "mxfp4"], str(rows[:2]))
    text = good("eval", NANO, "--text", HELDOUT, "--no-loss", "--ctx", 320, "--cut", 256, "--kv-error").text
    expect("hit, exact replay" in text and "rounding %" in text, text)


@slow_check
def eval_blame():
    argv = ("eval", NANO, "--text", HELDOUT, "--no-loss", "--ctx", 256, "--blame", "--kv", "main=fp4-128,index=fp8,window=f32")
    j = good_json(*argv, "--json")
    b = j["blame"][0]
    expect(b["cut"] == 128 and b["loss"]["observations"] == 127, str(b)[:500])
    causes = {c["cause"]: c for c in b["loss"]["causes"]}
    expect(list(causes) == ["main", "index", "window", "top-k", "candidates", "prefill", "replay"], str(list(causes)))
    # f32 windows are exact already: that cause can do nothing
    expect(causes["window"]["alone"] == 0 == causes["window"]["last"] and causes["window"]["judgement"] == "within the noise", str(causes["window"]))
    expect(causes["main"]["full_is"] == "main=fp4-128" and causes["main"]["alone"] != 0 and causes["main"]["alone_se"] > 0, str(causes["main"]))
    expect(abs(b["loss"]["full"] - b["loss"]["exact"] - b["loss"]["total"]) < 1e-9, str(b["loss"])[:300])
    kl = {r["cause"]: r for r in b["kl"]}
    expect(kl["control"]["over_control"] == 0 and kl["window"]["kl"] == 0 and kl["main"]["kl"] > kl["control"]["kl"], str(kl))
    expect(len(b["loss"]["verdict"]) >= 1 and "By KL" in b["kl_verdict"], str(b["loss"]["verdict"]))


@slow_check
def tune_writes_a_profile():
    out = os.path.join(TMP, "nano.profile")
    argv = ("tune", NANO, "--text", HELDOUT, "--ctx", 160, "--formats", "fp4-128,fp4,fp8", "--budget", 260)
    j = good_json(*argv, "--out", out, "--json")
    expect([(i["layer"], i["part"]) for i in j["items"]] == [(l, p) for l in (2, 4, 6) for p in ("main", "index")], str(j["items"])[:300])
    # groups of 128 do not divide the nano's indexer keys of 64
    expect([len(i["options"]) for i in j["items"]] == [3, 2] * 3, str([len(i["options"]) for i in j["items"]]))
    chosen = [o for i in j["items"] for o in i["options"] if o["chosen"]]
    expect(len(chosen) == 6 and abs(sum(o["bytes_per_token"] for o in chosen) - j["bytes_per_token"]) < 1e-9 and j["bytes_per_token"] <= 260, str(chosen))
    expect(abs(sum(o["cost"] for o in chosen) - j["predicted"]) < 1e-9 and j["measured"] > 0, str(j["judgement"]))
    best = min(itertools.product(*[i["options"] for i in j["items"]]),
               key=lambda c: (sum(o["bytes_per_token"] for o in c) > 260, sum(o["cost"] for o in c)))
    expect(abs(sum(o["cost"] for o in best) - j["predicted"]) < 1e-9, "not the best under the budget")
    expect([r["name"] for r in j["verified"]] == ["exact", "chosen", "default", "chosen, windows f32"] and len(j["heldout"]) == 4, str(j["verified"])[:300])
    profile = json.load(open(out))
    expect(profile == j["profile"] and profile["kv"] == j["kv"] and profile["measured"]["peak_bytes"] > 0, str(profile)[:500])
    for command in (("run", NANO, "-p", "It was", "-n", 2, "--temp", 0), ("plan", NANO), ("eval", NANO, "--text", HELDOUT, "--ctx", 64, "--no-kl")):
        a, b = good_json(*command, "--json", "--profile", out), good_json(*command, "--json", "--kv", j["kv"])
        same = lambda x: (x.get("tokens"), x.get("kv_bytes_per_token"), x.get("global_bytes_per_token"), [r["loss"] for r in x.get("rows", [])])
        expect(same(a) == same(b), f"--profile and --kv differ: {same(a)} {same(b)}")
    r = mote("run", NANO, "-p", "a", "--profile", out, "--kv", "fp8")
    one_line_error(r, 2, "--profile", "--kv")
    one_line_error(mote("plan", NANO, "--profile", HELDOUT), 1, "heldout.txt", "not a profile")
    profile["model"]["fingerprint"] = profile["model"]["fingerprint"][::-1]
    other = os.path.join(TMP, "other.profile")
    json.dump(profile, open(other, "w"))
    for command in (("run", NANO, "-p", "a"), ("plan", NANO)):
        one_line_error(mote(*command, "--profile", other), 1, "other.profile", "another model")
    note = good("plan", os.path.join(NANO, "config.json"), "--profile", other)
    expect("cannot be checked" in note.err and f"{j['bytes_per_token']:g}" in note.text, str(note))
    one_line_error(mote(*argv[:-1], 100), 1, "--budget", "too few")


@slow_check
def tune_for_retrieval():
    j = good_json("tune", NANO, "--text", HELDOUT, "--ctx", 400, "--formats", "fp4,bf16", "--samples", 1, "--budget", 300, "--task", "retrieval", "--json")
    expect(j["task"] == "retrieval" and 216 <= j["bytes_per_token"] <= 300, str(j)[:300])
    expect("nat^2" in j["cost"] and "ln p" in j["judgement"] and len(j["needle"]["rows"]) == 3, j["judgement"])


@slow_check
def ladder_climbs_and_says_why_it_stops():
    short = beginning(20000)
    base = ("ladder", NANO, "--text", short, "--no-needle", "--scored", 64)
    j = good_json(*base, "--ctx", "128,256,60K", "--json")
    expect([s["ctx"] for s in j["steps"]] == [128, 256, 61440] and [s["ok"] for s in j["steps"]] == [True, True, False], str(j)[:500])
    expect(j["stopped"]["reason"] == "text" and "heldout-20000" in j["stopped"]["diagnosis"] and j["kv_bytes_per_token"] == 212, str(j["stopped"]))
    for s in j["steps"][:2]:
        expect(s["tokens"] == 63 and s["memory"]["weights"] > 2e7 and s["memory"]["kv_main_codes"] > 0 and s["prefill_tokens_per_s"] > 0, str(s))
        n = s["need"]
        expect(abs(sum(n[k] for k in ("weights", "kv", "windows", "baseline", "logits", "scratch")) - n["total"]) < 1 <= n["available"], str(n))
        expect(n["kv"] == 256 * 212 and abs(s["loss_minus_base"]) < 0.2 and s["kl"] > 0, str(s))
    j = good_json("ladder", NANO, "--text", HELDOUT, "--no-needle", "--scored", 64, "--ctx", "128,32K", "--ram", "64M", "--json")
    expect(j["stopped"]["reason"] == "memory" and j["stopped"]["ctx"] == 32768 and "64.0 MiB may be used" in j["stopped"]["diagnosis"], str(j["stopped"]))
    expect("memory" not in j["steps"][1], "the step that does not fit was begun")
    # a twin that was not trained for rounded keys and values: 0.022 nat, more than four standard errors, and keys are to blame
    j = good_json("ladder", os.path.join(ROOT, "models", "twins", "gqa"), "--text", HELDOUT, "--no-needle", "--scored", 2000, "--ctx", 4096, "--kv", "mxfp4",
                  "--max-loss", "0.001", "--json")
    expect(j["stopped"] and j["stopped"]["reason"] == "quality" and "above the unrounded" in j["stopped"]["diagnosis"], str(j["stopped"]))
    kl = {r["cause"]: r for r in j["blame"]["kl"]}
    expect(kl["key"]["beyond_noise"] and kl["key"]["kl"] > 2 * kl["value"]["kl"], str(kl))
    r = good(*base, "--ctx", "128,60K", "--no-base")
    expect("stopped at 61,440 tokens (text)" in r.text and r.err == "", str(r))
    n = good_json("ladder", NANO, "--text", HELDOUT, "--ctx", 512, "--scored", 64, "--no-base", "--json")["steps"][0]["needle"]
    expect(0 <= n["recall"] <= 1 and "base_recall" not in n, str(n)[:300])


@check
def experts_are_recorded_and_replayed():
    trace = os.path.join(TMP, "nano.trace")
    argv = ("run", NANO, "-p", open(HELDOUT).read(1500), "-n", 60, "--temp", 0, "--ignore-eos")
    plain, traced = good(*argv), good(*argv, "--experts-trace", trace)
    expect(plain.out == traced.out and plain.err == traced.err == "", "recording changed the run")
    j = good_json("experts", trace, "--slots", "24,36,48,144", "--json")
    read = subprocess.run([sys.executable, os.path.join(ROOT, "tools", "trace_read.py"), "--sums", trace], capture_output=True, check=True)
    sums = json.loads(read.stdout)
    for row in j["rows"]:
        told = {**j["trace"], "prompt_uses": row["prompt_uses"], "decode_uses": row["decode_uses"]}
        expect(told == sums, f"{told}, the other reader {sums}")
    expect(sums["decode_tokens"] == 59 and sums["layers"] == 12 and sums["expert_bytes"] == 52224, str(sums))
    for slots in (24, 36, 48, 144):
        hit = {r["policy"]: r["hit"] for r in j["rows"] if r["slots"] == slots}
        expect(list(hit) == ["lru", "lru-random", "score", "optimum"], str(hit))
        expect(hit["lru"] <= hit["score"] <= hit["optimum"] <= 1, str(hit))
    # the page's example, cut
    page = os.path.join(TMP, "page.trace")
    subprocess.run([sys.executable, os.path.join(ROOT, "tools", "trace_read.py"), "--page", os.path.join(ROOT, "docs", "format-trace.md"), page], check=True)
    t = good_json("experts", page, "--slots", 1, "--json")["trace"]
    expect((t["prompt_tokens"], t["decode_tokens"], t["expert_bytes"], t["cut_bytes"]) == (2, 1, 256, 0), str(t))
    with open(page, "r+b") as f:
        f.truncate(99)
    r = good("experts", page)
    expect("15 bytes of a cut record" in r.err and "lru-random" in r.text, str(r))
    r = good(*argv[:3], "a", "-n", 2, "--experts-trace", "/dev/full")
    expect(r.err.count("\n") == 1 and "/dev/full" in r.err, str(r))
    one_line_error(mote(*argv[:3], "a", "--experts-trace", "/nowhere/t"), 1, "/nowhere/t")
    one_line_error(mote("experts", HELDOUT), 1, "heldout.txt", "not a trace")
    g = good_json("experts", "--generate", "--sequences", 2, "--prompt", 20, "--decode", 10, "--slots", 900, "--json")
    expect(g["trace"]["prompt_tokens"] == 40 and g["trace"]["decode_tokens"] == 20, str(g["trace"]))


def pictures_are_whole(svg, html, *words):
    """Both are XML; the SVG has figures whose text stays inside, nothing comes from elsewhere, and words stand in both."""
    ns = "{http://www.w3.org/2000/svg}"
    root = ElementTree.parse(svg).getroot()
    expect(root.tag == ns + "svg" and len(root.findall(ns + "g")) >= 1, f"{svg}: no figures")
    width, height = (float(root.get(k)) for k in ("width", "height"))
    for t in root.iter(ns + "text"):
        x, w = float(t.get("x")), 6.9 * len(t.text or "")
        x -= {"start": 0, "middle": w / 2, "end": w}[t.get("text-anchor")]
        expect(x > -12 and x + w < width + 12, f"{svg}: '{t.text}' leaves the picture")
    for o in root.iter(ns + "rect"):
        if o.get("x"):
            expect(0 <= float(o.get("x")) and float(o.get("x")) + float(o.get("width")) <= width, f"{svg}: a bar leaves the picture")
    expect(0 < height < 20000 and "prefers-color-scheme:dark" in open(svg).read(), svg)
    page = open(html, encoding="utf-8").read()
    body = ElementTree.fromstring(page[page.index("<html"):])
    expect(len(list(body.iter(ns + "svg"))) >= 1 and len(list(body.iter("table"))) >= 1, f"{html}: no picture or no table")
    for bad in ("<script", "http://", "https://", "@import", "url("):
        expect(page.replace("http://www.w3.org/2000/svg", "").find(bad) < 0, f"{html}: {bad}")
    text = "".join(body.itertext())
    for w in words:
        expect(w in text, f"{html}: '{w}' is missing")


@slow_check
def pictures():
    svg, html = os.path.join(TMP, "p.svg"), os.path.join(TMP, "p.html")
    odd = os.path.join(TMP, "a <odd> & \"name\"")
    os.symlink(NANO, odd)
    files = ("--svg", svg, "--html", html)
    good("plan", odd, "--ctx", "4K,64K", *files)
    pictures_are_whole(svg, html, "DeepSeek-V4-Flash", "a <odd> & \"name\"", "classical")
    good("eval", NANO, "--text", HELDOUT, "--ctx", "200", "--kv", "fp4,fp8,bf16", "--needle", "--samples", 1, "--depths", "0,50,100", "--kv-error", "--cut", 128, *files)
    pictures_are_whole(svg, html, "What a format costs", "Facts hidden", "hit, exact replay", "rounded once")
    good("tune", NANO, "--text", HELDOUT, "--ctx", 64, "--formats", "fp4,bf16", "--budget", 300, *files)
    pictures_are_whole(svg, html, "The choice", "chosen, windows f32")
    good("ladder", NANO, "--text", beginning(20000), "--ctx", "128,60K", "--no-needle", *files)
    pictures_are_whole(svg, html, "not enough for a window", "held")
    one_line_error(mote("plan", NANO, "--svg", os.path.join(TMP, "no", "such", "place.svg")), 1, "place.svg")


@slow_check
def eval_store_scores_what_is_behind_a_hit():
    store = os.path.join(TMP, "eval-store")
    base = ("eval", NANO, "--text", HELDOUT, "--no-kl", "--json")
    cold = good_json(*base, "--ctx", "513,800")["rows"]
    expect("reused_tokens" not in cold[0], "store fields without a store")
    first, second = good_json(*base, "--ctx", "513,800", "--store", store, "--replay", "exact")["rows"]
    expect((first["reused_tokens"], first["computed_tokens"], first["replayed_tokens"]) == (0, 513, 0), str(first))
    expect(first["tokens"] == 512 and first["loss"] == cold[0]["loss"] == first["cold_loss"], str(first))
    # 800 tokens begin with the same 513: two blocks are found, and with exact replay the rest is the cold run's
    expect((second["reused_tokens"], second["computed_tokens"], second["tokens"]) == (512, 288, 287), str(second))
    expect(second["replayed_tokens"] > 64 and second["exact"] and second["loss"] == second["cold_loss"], str(second))
    expect(second["loss_minus_cold"] == 0 and second["loss"] != cold[1]["loss"], str(second))
    # a bounded replay is an approximation of the same tokens; the last two are never looked up
    again = good_json(*base, "--ctx", "514,513", "--store", store)["rows"]
    expect([(r["reused_tokens"], r["replayed_tokens"], r["tokens"], r["exact"]) for r in again] == [(512, 64, 1, False), (256, 64, 256, False)], str(again))
    expect(0 < abs(again[1]["loss_minus_cold"]) < 0.05 and again[1]["loss_minus_cold_se"] > 0, str(again))
    table = good("eval", NANO, "--text", HELDOUT, "--no-kl", "--ctx", 513, "--store", store).text
    expect("reused" in table and "cold loss" in table and "approximate" in table, table)
    # what run stored, eval reads, and the other way round
    expect(run_ids(text_ids(600), "--store", store)["reused_tokens"] == 512, "run does not share blocks with eval")


@check
def kv_looks_at_parts_of_a_store():
    store, there, ids = os.path.join(TMP, "parts"), os.path.join(TMP, "parts-there"), text_ids(600)
    run_ids(ids, "--store", store, "--snapshot", "--ignore-eos")
    run_ids(ids, "--store", store, "--kv", "bf16", "--namespace", "other work")
    ls = lambda d, *more: good_json("kv", "ls", d, "--json", *more)
    all_of_it = ls(store)
    expect([c["namespace"] for c in sorted(all_of_it["contexts"], key=lambda c: c["namespace"])] == ["", "other work"], str(all_of_it["contexts"]))
    expect(len(all_of_it["blocks"]) == 4 and len(all_of_it["snapshots"]) == 2, str(all_of_it)[:500])
    fingerprint = all_of_it["contexts"][0]["model"]
    for choice, blocks in ((("--kv", "bf16"), 2), (("--kv", "fp4"), 2), (("--kv", "window=fp8"), 4), (("--kv", "fp8"), 0),
                           (("--namespace", "other work"), 2), (("--namespace", ""), 2), (("--namespace", "other"), 0), (("--model", NANO), 4),
                           (("--model", fingerprint[:5].upper()), 4), (("--model", "0000"), 0), (("--model", NANO, "--kv", "bf16"), 2),
                           (("--context", all_of_it["blocks"][0]["context"]), 2)):
        j = ls(store, *choice)
        expect(len(j["blocks"]) == blocks == sum(c["blocks"] for c in j["contexts"]), f"{choice}: {j}")
    text = good("kv", "ls", store).text
    expect("other work" in text and "main=bf16" in text and text.index("namespace") < text.index("provenance"), text)
    expect(good("kv", "ls", store, "--model", "0000").text == "nothing is stored\n", "an empty list")
    good_json("kv", "verify", store, "--rebuild", "--json")
    expect(ls(store)["contexts"] == all_of_it["contexts"], "an index made anew knows other contexts, or other times")
    # one of them through a pipe into another store, and back as a whole
    out = good("kv", "export", store, "-", "--namespace", "other work")
    expect("2 blocks and 0 snapshots" in out.err and out.err.count("\n") == 1, out.err)
    j = json.loads(good("kv", "import", there, "-", "--json", stdin=out.out).text)
    expect((j["blocks"], j["known"]) == (2, 0), str(j))
    expect(run_ids(ids, "--store", there, "--kv", "bf16", "--namespace", "other work", "--replay", "exact")["reused_tokens"] == 512, "not shared")
    one_line_error(mote("kv", "import", there, "-", stdin=out.out[:-20]), 1, "standard input", "too early", "2 records")
    one_line_error(mote("kv", "import", there, "-", stdin=b""), 1, "standard input", "no export")
    p = subprocess.Popen([MOTE, "kv", "export", store, "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdout.read(100)
    p.stdout.close()
    expect(p.wait(timeout=60) == 141 and p.stderr.read() == b"", "a closed pipe is not told")
    one_line_error(mote("kv", "export", store, os.path.join(TMP, "x.kvx"), "--namespace", "nobody"), 1, "nothing of that kind")
    one_line_error(mote("kv", "rm", store, "--kv", "fp8"), 1, "nothing of that kind")
    one_line_error(mote("kv", "export", store, TMP), 1, TMP)
    expect(good_json("kv", "rm", store, "--kv", "bf16", "--json")["removed_blocks"] == 2, "rm of a part")
    expect(len(ls(store)["blocks"]) == 2 and len(ls(store)["snapshots"]) == 2, "rm took the wrong part")
    expect(good_json("kv", "verify", store, "--segment", 1, "--json")["damaged"] == 0, "a sound segment")
    one_line_error(mote("kv", "verify", store, "--segment", 77), 1, "0000004d")


@slow_check
def store_times_and_budgets_of_a_run():
    store, ids = os.path.join(TMP, "small-budget"), text_ids(600)
    j, err = run_ids(ids, "--store", store, "--store-budget", "10K", warns=True)
    expect(err.count("\n") == 1 and "nothing is stored" in err and "57344" in err, err)
    j, err = run_ids(ids, "--store", store, "--snapshot", "--snapshot-budget", "1000", warns=True)
    expect(err.count("\n") == 1 and "snapshot" in err and "budget" in err, err)
    run_ids(ids, "--store", store)
    expect(run_ids(ids, "--store", store, "--ttl", "never", "--replay", "exact")["reused_tokens"] == 512, "never")
    time.sleep(2.1)
    run_ids(ids[:10], "--store", store, "--ttl", 0.0003)                # one second
    expect(good_json("kv", "stat", store, "--json")["blocks"] == 0, "--ttl of a run")
    run_ids(ids, "--store", store)
    expect(good_json("kv", "gc", store, "--ttl", "never", "--json")["expired_blocks"] == 0, "gc --ttl never")


@check
def kv_checks_servers():
    with Server("--requirepass", "hunter2") as server, Server("--cluster-enabled", "yes", "--cluster-config-file", "check-nodes.conf") as member:
        url, word = f"redis://127.0.0.1:{server.port}", f"redis://:hunter2@127.0.0.1:{server.port}"
        j = good_json("kv", "check", word, "--json")
        row, = j["servers"]
        expect(j["failed"] == 0 and row["ok"] and row["server"] == url and row["version"].count(".") == 2 and 0 < row["round_trip_ms"] < 500, str(j))
        text = good("kv", "check", os.path.join(TMP, "no-store") + "," + word)
        expect(text.text.count("\n") == 1 and url in text.text and "hunter2" not in text.text + text.err, str(text))
        expect(not os.path.exists(os.path.join(TMP, "no-store")), "checking made a directory")
        expect(good("kv", "check", url, env={"MOTE_REDIS_PASSWORD": "hunter2"}).rc == 0, "the password of the environment")
        with socket.create_connection(("127.0.0.1", server.port)) as s:
            s.sendall(b"AUTH hunter2\r\nDBSIZE\r\n")
            time.sleep(0.2)
            expect(b":0\r\n" in s.recv(1000), "something was left on the server")
        for place, words in ((url, ["wants a password"]), (url.replace("//", "//:hunter3@"), ["refuses the user or the password"]),
                             ("redis://127.0.0.1:1", ["refused"]), (f"redis://127.0.0.1:{member.port}", ["CLUSTERDOWN"]),
                             (word + "/99", ["number of the database"])):
            r = mote("kv", "check", place)
            expect(r.rc == 1 and r.text.count("\n") == 1 and "FAILED" in r.text and "hunter" not in r.text + r.err, f"{place}: {r}")
            expect(all(w in r.text for w in words), f"{place}: {r.text}")
        r = mote("kv", "check", f"d,{word},redis://127.0.0.1:1", "--json")
        j = json.loads(r.text)
        expect(r.rc == 1 and j["failed"] == 1 and [s["ok"] for s in j["servers"]] == [True, False], str(j))
    with socket.socket() as hole:
        hole.bind(("127.0.0.1", 0))
        hole.listen(8)
        began = time.monotonic()
        r = mote("kv", "check", f"redis://127.0.0.1:{hole.getsockname()[1]}", "--redis-timeout", 300)
        expect(r.rc == 1 and "no answer" in r.text and time.monotonic() - began < 5, str(r))
    one_line_error(mote("kv", "check", os.path.join(TMP, "no-store")), 1, "no server")
    one_line_error(mote("kv", "check", "rediss://h"), 1, "TLS")


@check
def redis_timeout_is_obeyed():
    ids = text_ids(600)
    with socket.socket() as hole:
        hole.bind(("127.0.0.1", 0))
        hole.listen(8)
        j, err = run_ids(ids, "--store", f"{os.path.join(TMP, 'patient')},redis://127.0.0.1:{hole.getsockname()[1]}", "--redis-timeout", 900, warns=True)
        expect("no answer within 900 ms" in err, err)


@check
def store_snapshot_of_a_run():
    store, ids = os.path.join(TMP, "snapshots"), text_ids(330)
    j = run_ids(ids, "--store", store, "--snapshot", "--ignore-eos")
    longer = ids + j["tokens"] + [35, 3346]
    plain = run_ids(longer, "--prefill", "full")
    warm = run_ids(longer, "--store", store, "--prefill", "full", "--replay", "exact")
    # windows of a bounded prefill serve no full one; its blocks do
    expect(reuse(warm)[:3:2] == (256, False) and warm["tokens"] == plain["tokens"], str(reuse(warm)))
    # the last sampled token was not fed; and a cold run of this prompt has its windows elsewhere: so it is used, and named
    warm = run_ids(longer, "--store", store)
    expect(reuse(warm) == (len(longer) - 3, 0, True, False), str(reuse(warm)))
    warm = run_ids(longer, "--store", store, "--replay", "exact")
    expect(reuse(warm)[0] == 256 and warm["exact"] and warm["tokens"] == run_ids(longer)["tokens"], str(reuse(warm)))


@check
def store_same_prompt_again():
    ids = text_ids(301)
    for number, mode in enumerate((("bounded",), ("exact",), ("full",))):
        store = os.path.join(TMP, f"again{number}")
        cold, first = run_ids(ids, "--prefill", *mode), run_ids(ids, "--prefill", *mode, "--store", store, "--snapshot")
        warm = run_ids(ids, "--prefill", *mode, "--store", store)
        expect(reuse(warm) == (300, 0, True, True), f"{mode}: {reuse(warm)}")
        expect(warm["tokens"] == first["tokens"] == cold["tokens"], f"{mode}: another text")
    # too long for the context: said before anything is run
    r = mote("run", NANO, "--ids", ",".join(map(str, ids)), "--ctx", 300, "--store", os.path.join(TMP, "again0"), "--snapshot")
    expect(r.rc == 1 and "0 tokens held and 301 new ones" in r.err, str(r))


@slow_check
def store_modes_do_not_mix():
    ids = text_ids(242)
    logits = lambda j: [(t["id"], t["logprob"], [x["logprob"] for x in t["top"]]) for t in j["logprobs"]]
    ask = lambda n, *extra: run_ids(ids[:n], "--logprobs", 3, "--ignore-eos", *extra)
    modes = ("bounded", "exact", "full")
    cold = {m: logits(ask(242, "--prefill", m)) for m in modes}
    for by in modes:
        for mode in modes:
            store = os.path.join(TMP, f"mix-{by}-{mode}")
            run_ids(ids[:200], "--prefill", by, "--store", store, "--snapshot")
            for replay in ("exact", "bounded"):
                j = ask(242, "--prefill", mode, "--store", store, "--replay", replay)
                expect(j["exact"] or replay == "bounded", f"{by}, {mode}, {replay}: {reuse(j)}")
                expect(not j["exact"] or logits(j) == cold[mode], f"{by}, {mode}, {replay}: exact, and other bits: {reuse(j)}")
            # states that are the same serve each other
            expect(reuse(j)[2] == (mode == "bounded" or by != "bounded"), f"{by}, {mode}: {reuse(j)}")


@slow_check
def store_keeps_what_is_finished():
    ids = text_ids(2100)
    cold = run_ids(ids)
    argv = ("run", NANO, "--ids", ",".join(map(str, ids)), "-n", 0, "--threads", 1, "--store")
    for sig, status in ((signal.SIGINT, 130), (signal.SIGTERM, -15), (signal.SIGHUP, -1), (signal.SIGKILL, -9)):
        for attempt in range(5):               # on a busy machine the run may end before it is seen
            store = os.path.join(TMP, f"killed{status}-{attempt}")
            p = start(*argv, store)
            deadline, n = time.time() + 120, 0
            while n < 3 and time.time() < deadline and p.poll() is None:
                time.sleep(0.05)
                r = mote("kv", "ls", store, "--json") if os.path.exists(os.path.join(store, "index.db")) else None
                n = len(json.loads(r.text)["blocks"]) if r and r.rc == 0 else 0
            p.send_signal(sig)
            if p.wait(timeout=60) != 0:
                break
        out, err = p.communicate(timeout=60)
        expect(p.returncode == status and out == b"", f"{sig}: status {p.returncode}, {err!r}")
        kept = len(good_json("kv", "ls", store, "--json")["blocks"])
        expect(n <= kept <= 8 and n >= 3, f"{sig}: {n} blocks there, {kept} kept")
        j = run_ids(ids, "--store", store, "--replay", "exact")
        expect(j["reused_tokens"] == 256 * kept and j["tokens"] == cold["tokens"], f"{sig}: {reuse(j)}")
    # a conversation in a pipe ends the same way, with the turn that was said
    store = os.path.join(TMP, "killed-chat")
    p = subprocess.Popen([MOTE, "chat", NANO, "--json", "-n", "8", "--store", store], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE)
    p.stdin.write(b"Good day to you.\n")
    p.stdin.flush()
    first = p.stdout.readline()
    p.send_signal(signal.SIGTERM)
    out, err = p.communicate(timeout=60)
    expect(p.returncode == -15 and json.loads(first)["exact"] and out == b"", f"status {p.returncode}, {first!r} {err!r}")
    expect(len(good_json("kv", "ls", store, "--json")["snapshots"]) == 2, "the turn's snapshots")


@slow_check
def store_that_fails_is_a_warning():
    ids = text_ids(600)
    cold = run_ids(ids)
    file, deep = os.path.join(TMP, "no-directory"), os.path.join(TMP, "no", "such", "parent")
    with open(file, "w") as f:
        f.write("x")
    places = [file, deep, "/proc/mote-store"]
    if os.getuid():
        readonly = os.path.join(TMP, "readonly")
        os.mkdir(readonly, 0o500)
        places.append(readonly)
    for place in places:
        j, err = run_ids(ids, "--store", place, "--snapshot", warns=True)
        expect(err.startswith("mote: store: ") and place in err and err.count("\n") == 1, f"{place}: {err!r}")
        expect(j["tokens"] == cold["tokens"] and j["reused_tokens"] == 0, f"{place}: another text")
        j = json.loads(mote("chat", NANO, "--temp", 0, "-n", 8, "--json", "--store", place, stdin=b"Good day\n").text)
        expect(j["reused_tokens"] == 0 and j["reply_tokens"] > 0, str(j))


@slow_check
def store_that_is_damaged_is_a_warning():
    ids = text_ids(600)
    cold = run_ids(ids)

    def garble(path, start, step):
        with open(path, "r+b") as f:
            size = f.seek(0, 2)
            for at in range(start, size, step):
                f.seek(at)
                f.write(b"garbage!")

    for what in ("index", "segments", "both"):
        store = os.path.join(TMP, "damaged-" + what)
        run_ids(ids, "--store", store, "--snapshot")
        names = sorted(os.listdir(store))
        expect("index.db" in names and any(n.startswith("seg-") for n in names), str(names))
        for name in names:
            if what != "segments" and name == "index.db":
                garble(os.path.join(store, name), 0, 64)
            if what != "index" and name.startswith("seg-"):
                garble(os.path.join(store, name), 5000, 1000)
        j, err = run_ids(ids, "--store", store, "--replay", "exact", warns=True)
        expect(j["tokens"] == cold["tokens"], f"{what}: another text, {err!r}")
        expect(err and all(line.startswith("mote: store: ") for line in err.splitlines()), f"{what}: {err!r}")
        expect(j["reused_tokens"] == (599 if what == "index" else 0), f"{what}: {reuse(j)}, {err!r}")
        for reused in (256, 512):          # a block is looked at when the one before it was good
            j, err = run_ids(ids, "--store", store, "--replay", "exact", warns=True)
            expect(j["tokens"] == cold["tokens"] and j["reused_tokens"] >= reused, f"{what}: no recovery: {reuse(j)}, {err!r}")
        expect(err == "", f"{what}: damage is still reported: {err!r}")


def chat_json(lines, *extra):
    r = chat(lines, "--json", *extra)
    expect(r.err == "", f"stderr not empty: {r}")
    return [json.loads(line) for line in r.text.splitlines()]


@slow_check
def chat_goes_on_in_another_process():
    # the system text fills a block, so that what is reused is blocks and the rest
    lines = ["Good day to you, my dear.", "And what did she say?", "Why?"]
    with open(HELDOUT) as f:
        system = "Be kind. " + f.read(1500)
    for number, mode in enumerate(((), ("--think",))):
        said = lambda j: (j["content"], j["reasoning"], j["context_tokens"])
        one = chat_json(lines, "--system", system, *mode)
        history = os.path.join(TMP, f"history{number}.json")
        base = ("--history", history, "--store", os.path.join(TMP, f"chat-store{number}"), *mode)
        for i, line in enumerate(lines):
            j, = chat_json([line], *base, *(("--system", system) if i == 0 else ()))
            expect(said(j) == said(one[i]), f"turn {i}: {j} instead of {one[i]}")
            expect(j["new_tokens"] == one[i]["new_tokens"], f"turn {i}: {j}")
            expect(i == 0 or (j["from_snapshot"] and j["replayed_tokens"] == 0 and j["reused_tokens"] > 256), f"turn {i}: {j}")
        expect(os.stat(history).st_mode & 0o777 == 0o600, "mode of the history")
        j, = chat_json(["/regen"], *base)
        expect(said(j) == said(one[2]) and j["new_tokens"] == 1 and j["from_snapshot"], f"/regen: {j}")
        with open(history) as f:
            h = json.load(f)
        expect(len(h["messages"]) == 6 and len(h["ids"]) == j["context_tokens"] and h["system"] == system, str(h)[:300])
        # another system text parts at once, the history stays usable
        j, = chat_json(["Why?"], "--system", "Be brief.", *base)
        expect(j["reused_tokens"] == 0, str(j))
    left = [f for f in os.listdir(TMP) if f.startswith("history") and not f.endswith(".json")]
    expect(not left, f"left behind: {left}")


@slow_check
def chat_is_what_it_was_in_any_process():
    # bounded prefill: what is said depends on where turns ended; the history knows, with a store, without, and after strangers
    big = " ".join(["the carriage stood at the gate and nobody came to open it"] * 24)
    lines = [big, "Go on.", "And the garden?"]
    said = lambda j: (j["content"], j["reply_tokens"], j["context_tokens"])
    for mode in ("bounded", "full"):
        one = chat_json(lines, "-n", 24, "--prefill", mode)
        for number, store in enumerate(((), ("--replay", "exact"), ("--replay", "bounded"))):
            history, place = os.path.join(TMP, f"any-{mode}{number}.json"), os.path.join(TMP, f"any-{mode}{number}")
            if store:
                chat_json(lines[:1], "-n", 24, "--prefill", "full" if mode == "bounded" else "bounded", "--store", place)
            for i, line in enumerate(lines):
                j, = chat_json([line], "-n", 24, "--prefill", mode, "--history", history, *(("--store", place, *store) if store else ()))
                expect(not j["exact"] or said(j) == said(one[i]), f"{mode} {store} turn {i}: {j} instead of {one[i]}")
                expect(j["exact"] or "bounded" in store, f"{mode} {store} turn {i}: {j}")
                if store and i:
                    expect(j["from_snapshot"] and j["reused_tokens"] > 256, f"{mode} {store} turn {i}: {j}")
            with open(history) as f:
                h = json.load(f)
            expect(h["prefill"] == mode and h["exact"] == j["exact"], str(h)[-200:])
            expect(not j["exact"] or (h["origins"][1] > 0) == (mode == "bounded"), str(h)[-200:])
    # edited by hand: nonsense is no error
    for origins in ("[]", "[-1, 99999999999]", '["a"]', "7"):
        with open(history) as f:
            h = json.load(f)
        h["origins"], h["prefill"] = json.loads(origins), "bounded"
        with open(history, "w") as f:
            json.dump(h, f)
        j, = chat_json(["Why?"], "-n", 4, "--history", history)
        expect(j["finish_reason"] in ("length", "eos"), str(j))


@check
def chat_without_snapshots_replays():
    with open(HELDOUT) as f:
        system = f.read(1500)
    base = ("--history", os.path.join(TMP, "plain.json"), "--store", os.path.join(TMP, "plain-store"), "--no-snapshot", "--replay", "exact")
    one = chat_json(["Good day.", "Why?"], "--system", system, "--prefill", "full")
    a, = chat_json(["Good day."], "--system", system, "--prefill", "full", *base)
    b, = chat_json(["Why?"], "--prefill", "full", *base)
    expect([x["content"] for x in (a, b)] == [x["content"] for x in one], f"{a} {b} {one}")
    expect(b["reused_tokens"] % 256 == 0 and b["reused_tokens"] > 0 and b["replayed_tokens"] > 0 and not b["from_snapshot"], str(b))
    expect(a["exact"] and b["exact"], "an exact replay is not exact")
    base = base[:base.index("--replay")] + ("--replay", "bounded")
    c = chat_json(["Why?", "And why?"], *base)
    expect(c[0]["replayed_tokens"] > 0 and not c[0]["exact"] and not c[1]["exact"], f"a bounded replay and what goes on from it: {c}")


@check
def chat_history_that_is_none():
    path = os.path.join(TMP, "history-bad.json")
    for content, words in (("{", ["line 1"]), ("[]", ["version"]), ('{"version": 2, "messages": []}', ["version 2"]),
                           ('{"version": 1, "messages": 5}', ["messages"]), ('{"version": 1, "messages": [{"role": "user"}]}', ["messages[0]"]),
                           ('{"version": 1, "messages": [], "ids": [1, -1]}', ["ids[1]"]), ('{"version": 1, "messages": [], "system": 5}', ["system"])):
        with open(path, "w") as f:
            f.write(content)
        one_line_error(mote("chat", NANO, "--history", path, stdin=b"Hello\n"), 1, path, *words)
        with open(path) as f:
            expect(f.read() == content, "the file was changed")
    os.remove(path)
    # ids of another tokenizer, or out of range, are no error: the text is encoded
    with open(path, "w") as f:
        f.write('{"version": 1, "messages": [], "ids": [0, 17, 2147483647], "mark": 99}')
    j, = chat_json(["Good day to you, my dear."], "--history", path)
    expect(j["content"] == chat_json(["Good day to you, my dear."])[0]["content"], str(j))
    r = mote("chat", NANO, "-n", 4, "--history", os.path.join(TMP, "nowhere", "h.json"), stdin=b"Hello\n")
    expect(r.rc == 1 and "nowhere" in r.err and "cannot write" in r.err and r.out, str(r))


# ---- pipes and signals ---------------------------------------------------------------------------------------------
def usual_signals():
    """As a shell starts a command: tests under nohup or in the background inherit ignored ones."""
    for sig in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(sig, signal.SIG_DFL)


def start(*argv):
    return subprocess.Popen([MOTE, *map(str, argv)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            preexec_fn=usual_signals)


LONG = ("run", NANO, "-p", "It was", "-n", 50000, "--ignore-eos", "--temp", 1, "--seed", 3)


@check
def ctrl_c_ends_the_text():
    p = start(*LONG)
    first = p.stdout.read(4)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=60)
    expect(p.returncode == 130, f"status {p.returncode}, {err!r}")
    expect(len(first) == 4 and (first + out).endswith(b"\n"), "the text does not end with a line end")
    (first + out).decode()


@check
def ctrl_c_leaves_no_json():
    p = start(*LONG, "--json")
    time.sleep(1.5)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=60)
    expect(p.returncode == 130 and out == b"" and err.count(b"\n") == 1, f"status {p.returncode}, {out!r} {err!r}")


@check
def ctrl_c_in_a_long_prompt():
    p = start("run", NANO, "-f", beginning(160000), "-n", 1, "--prefill", "full")
    time.sleep(1.5)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=60)
    expect(p.returncode == 130 and out == b"" and b"interrupted" in err, f"status {p.returncode}, {out!r} {err!r}")


@check
def closed_pipe_ends_quietly():
    p = start(*LONG)
    p.stdout.read(4)
    p.stdout.close()
    expect(p.wait(timeout=60) == 141, f"status {p.returncode}")
    expect(p.stderr.read() == b"", "it complained")


@check
def full_disk_is_said():
    with open("/dev/full", "wb") as full:
        for argv in (("run", NANO, "-p", "a", "-n", "4"), ("run", NANO, "-p", "a", "-n", "4", "--json"), ("plan", NANO), ("--help",)):
            p = subprocess.run([MOTE, *argv], stdout=full, stderr=subprocess.PIPE)
            expect(p.returncode == 1 and p.stderr.count(b"\n") == 1 and b"standard output" in p.stderr, f"{argv}: {p}")


# ---- bad input (exit 1, one line that names file and field, nothing on stdout) -------------------------------------
def damaged(name, **changes):
    """A copy of nano made of links; changes: file name (with '__' for '.') -> None (missing), bytes, or function of its bytes."""
    folder = os.path.join(TMP, name)
    os.makedirs(folder, exist_ok=True)
    for f in os.listdir(NANO):
        to = os.path.join(folder, f)
        if os.path.lexists(to):
            os.remove(to)
        os.symlink(os.path.join(NANO, f), to)
    for f, change in changes.items():
        f = f.replace("__", ".")
        to = os.path.join(folder, f)
        with open(to, "rb") as old:
            data = old.read()
        os.remove(to)
        if change is None:
            continue
        with open(to, "wb") as new:
            new.write(change if isinstance(change, bytes) else change(data))
    return folder


SHARD = "model-0000{}-of-00003.safetensors"


def shard_of(tensor):
    with open(os.path.join(NANO, "model.safetensors.index.json")) as f:
        return json.load(f)["weight_map"][tensor]


def header(edit):
    """Change a shard's header; its length may change, the data stay."""
    def change(data):
        n = struct.unpack("<Q", data[:8])[0]
        h = json.loads(data[8:8 + n])
        edit(h)
        text = json.dumps(h, separators=(",", ":")).encode()
        return struct.pack("<Q", len(text)) + text + data[8 + n:]
    return change


def in_json(edit):
    def change(data):
        j = json.loads(data)
        edit(j)
        return json.dumps(j).encode()
    return change


def tensor_edit(tensor, **fields):
    return {shard_of(tensor): header(lambda h: h[tensor].update(fields))}


def config(**fields):
    def edit(j):
        for k, v in fields.items():
            if v is None:
                del j["text_config"][k]
            else:
                j["text_config"][k] = v
    return {"config__json": in_json(edit)}


def tokenizer(edit):
    return {"tokenizer__json": in_json(edit)}


def set_at(j, value, *path):
    for p in path[:-1]:
        j = j[p]
    j[path[-1]] = value


EMBED = "embed.weight"
W1 = "layers.3.ffn.experts.5.w1.weight"
MODELS = [
    ("missing shard", {SHARD.format(2): None}, [SHARD.format(2)]),
    ("truncated shard", {SHARD.format(2): lambda d: d[:len(d) // 2]}, [SHARD.format(2)]),
    ("shard one byte short", {SHARD.format(3): lambda d: d[:-1]}, [SHARD.format(3)]),
    ("shard with a tail", {SHARD.format(3): lambda d: d + b"x"}, [SHARD.format(3)]),
    ("empty shard", {SHARD.format(1): b""}, [SHARD.format(1)]),
    ("truncated header", {SHARD.format(1): lambda d: d[:100]}, [SHARD.format(1)]),
    ("header length overflows", {SHARD.format(1): lambda d: b"\xff" * 8 + d[8:]}, [SHARD.format(1)]),
    ("header is not JSON", {SHARD.format(1): lambda d: d[:8] + b"]" + d[9:]}, [SHARD.format(1)]),
    ("unknown dtype", tensor_edit(EMBED, dtype="Q4_K"), [shard_of(EMBED), EMBED, "Q4_K"]),
    ("wrong dtype", tensor_edit(EMBED, dtype="F16"), [EMBED, "F16"]),
    ("wrong dtype of an expert", tensor_edit(W1, dtype="F8_E5M2"), [W1, "F8_E5M2|shape"]),
    ("wrong shape", tensor_edit(EMBED, shape=[2048, 512]), [EMBED]),
    ("shape that overflows", tensor_edit(EMBED, shape=[1 << 62, 1 << 62]), [shard_of(EMBED), EMBED]),
    ("negative shape", tensor_edit(EMBED, shape=[-4096, 256]), [shard_of(EMBED), EMBED]),
    ("offsets outside the file", {shard_of(EMBED): header(lambda h: h[EMBED].update(data_offsets=[1 << 50, (1 << 50) + 2097152]))},
     [shard_of(EMBED), EMBED]),
    ("missing tensor", {shard_of(W1): header(lambda h: h.__setitem__("renamed", h.pop(W1))), "model__safetensors__index__json": in_json(
        lambda j: j["weight_map"].__setitem__("renamed", j["weight_map"].pop(W1)))}, [W1]),
    ("tensor that the index does not know", {shard_of(W1): header(lambda h: h.__setitem__("renamed", h.pop(W1)))},
     [shard_of(W1), "renamed|" + W1]),
    ("index names a missing shard", {"model__safetensors__index__json": in_json(
        lambda j: j["weight_map"].__setitem__(EMBED, "model-00009-of-00003.safetensors"))}, ["model-00009-of-00003.safetensors"]),
    ("index leads out of the folder", {"model__safetensors__index__json": in_json(
        lambda j: j["weight_map"].__setitem__(EMBED, "../../etc/passwd"))}, ["index.json"]),
    ("index is not JSON", {"model__safetensors__index__json": b"{"}, ["model.safetensors.index.json"]),
    ("no config", {"config__json": None}, ["config.json"]),
    ("config is not JSON", {"config__json": b"{\"text_config\": {"}, ["config.json"]),
    ("config is a list", {"config__json": b"[]"}, ["config.json"]),
    ("config of another model", {"config__json": b'{"model_type": "bert", "hidden_size": 4}'}, ["config.json", "model_type"]),
    ("config lacks head_dim", config(head_dim=None), ["config.json", "head_dim"]),
    ("config: negative window", config(sliding_window=-5), ["config.json", "sliding_window"]),
    ("config: text for a number", config(hidden_size="256"), ["config.json", "hidden_size"]),
    ("config: huge layer count", config(num_hidden_layers=1 << 40), ["config.json", "num_hidden_layers"]),
    ("config: zero experts", config(n_routed_experts=0), ["config.json", "n_routed_experts"]),
    ("config: more picks than experts", config(num_experts_per_tok=17), ["config.json", "num_experts_per_tok"]),
    ("config: source layer outside", config(kv_source_layer_ids=[2, 4, 60]), ["config.json", "kv_source_layer_ids"]),
    ("config: short ratio list", config(compress_ratios=[0, 0, 2]), ["config.json", "compress_ratios"]),
    ("config contradicts the tensors: hidden", config(hidden_size=512), [EMBED + "|hidden_size"]),
    ("config contradicts the tensors: vocabulary", config(vocab_size=2048), [EMBED + "|vocab_size"]),
    ("config contradicts the tensors: experts", config(n_routed_experts=32), ["layers.0.ffn"]),
    ("config contradicts the tensors: layers", config(num_hidden_layers=13, compress_ratios=[0, 0, 2, 2, 2, 2] + [1] * 7),
     ["layers.12."]),
    ("config contradicts the tensors: Engram rows", config(engram_num_embeddings=[33048, 33645]), ["engram"]),
    ("generation_config is not JSON", {"generation_config__json": b"nonsense"}, ["generation_config.json"]),
    ("tokenizer is not JSON", {"tokenizer__json": lambda d: d[:5000]}, ["tokenizer.json"]),
    ("tokenizer of another kind", tokenizer(lambda j: set_at(j, "Unigram", "model", "type")), ["tokenizer.json", "Unigram"]),
    ("tokenizer with byte_fallback", tokenizer(lambda j: set_at(j, True, "model", "byte_fallback")), ["tokenizer.json", "byte_fallback"]),
    ("tokenizer with an unknown pre-tokenizer", tokenizer(lambda j: set_at(j, {"type": "Metaspace"}, "pre_tokenizer", "pretokenizers", 0)),
     ["tokenizer.json", "Metaspace"]),
    ("tokenizer with an unknown normalizer", tokenizer(lambda j: set_at(j, {"type": "Lowercase"}, "normalizer")),
     ["tokenizer.json", "normalizer|Lowercase"]),
    ("tokenizer with a bad pattern", tokenizer(lambda j: set_at(j, {"Regex": "(["}, "pre_tokenizer", "pretokenizers", 0, "pattern")),
     ["tokenizer.json", "pattern|regex|Regex"]),
    ("tokenizer with an id outside", tokenizer(lambda j: j["added_tokens"][3].update(id=1 << 30)), ["tokenizer.json"]),
]


def bad_model(name, changes, words):
    folder = damaged(name.replace(" ", "-").replace(":", ""), **changes)
    one_line_error(mote("run", folder, "-p", "Emma", "-n", 1), 1, *words)
    one_line_error(mote("run", folder, "-p", "Emma", "-n", 1, "--json"), 1, *words)
    shutil.rmtree(folder)


for name, changes, words in MODELS:
    add("bad model: " + name, lambda n=name, c=changes, w=words: bad_model(n, c, w))

OUT = os.path.join(TMP, "never.safetensors")
BAD = [
    ("no such folder", ("run", os.path.join(TMP, "nowhere"), "-p", "a"), ["nowhere"]),
    ("a file for a folder", ("run", HELDOUT, "-p", "a"), ["heldout.txt"]),
    ("an empty folder", ("run", os.path.join(TMP, "empty"), "-p", "a"), ["config.json"]),
    ("token id too large", ("run", NANO, "--ids", "0,4096"), ["4096"]),
    ("token id negative", ("run", NANO, "--ids", "0,-1"), ["-1"]),
    ("token id of logits", ("logits", NANO, "--ids", "0,5000", "--out", OUT), ["5000"]),
    ("token id of --decode in logits", ("logits", NANO, "--ids", "0,5", "--decode", "4097", "--out", OUT), ["4097"]),
    ("token id of tokenize", ("tokenize", NANO, "--decode", "35,70000"), ["70000"]),
    ("cut inside a group", ("logits", NANO, "--ids", "0,35,3346,2603,283", "--cut", "3", "--out", OUT), ["2"]),
    ("prompt file is missing", ("run", NANO, "-f", os.path.join(TMP, "nowhere.txt")), ["nowhere.txt"]),
    ("prompt file is a folder", ("run", NANO, "-f", TMP), [TMP]),
    ("prompt without tokens", ("run", NANO, "-p", "", "--no-bos"), ["no tokens"]),
    ("prompt over --ctx", ("run", NANO, "-p", "Emma Woodhouse, handsome, clever, and rich", "--ctx", "4"), ["4"]),
    ("--ctx over the model", ("run", NANO, "-p", "a", "--ctx", "128K"), ["--ctx", "65,536|65536"]),
    ("eval text is missing", ("eval", NANO, "--text", os.path.join(TMP, "nowhere.txt")), ["nowhere.txt"]),
    ("eval text is too short", ("eval", NANO, "--text", os.path.join(NANO, "config.json"), "--ctx", "8K"), ["config.json", "8192"]),
    ("eval --ctx over the model", ("eval", NANO, "--text", HELDOUT, "--ctx", "1M"), ["--ctx", "65,536|65536"]),
    ("logits into nowhere", ("logits", NANO, "--ids", "0,5", "--out", os.path.join(TMP, "nowhere", "x")), ["nowhere"]),
    ("logits onto a folder", ("logits", NANO, "--ids", "0,5", "--out", TMP), [TMP]),
    ("plan of nothing", ("plan", os.path.join(TMP, "nowhere.json")), ["nowhere.json"]),
    ("plan of a text", ("plan", HELDOUT), ["heldout.txt"]),
    ("inspect of nothing", ("inspect", os.path.join(TMP, "nowhere")), ["nowhere"]),
]


def bad_input(argv, words):
    os.makedirs(os.path.join(TMP, "empty"), exist_ok=True)
    for more in ((), ("--json",)):
        one_line_error(mote(*argv, *more), 1, *words)
    expect(not os.path.exists(OUT), "a logits file was left behind")


for name, argv, words in BAD:
    add("bad input: " + name, lambda a=argv, w=words: bad_input(a, w))


@check
def bad_input_prompt_longer_than_the_model():
    with open(HELDOUT, "rb") as f:
        text = f.read()
    t0 = time.time()
    one_line_error(mote("run", NANO, "-", "-n", 1, stdin=text + text), 1, "65,536|65536")
    expect(time.time() - t0 < 20, "it ran before it refused")


@check
def bad_environment():
    one_line_error(mote("run", NANO, "-p", "a", "-n", 1, env={"MOTE_THREADS": "many"}), 1, "MOTE_THREADS", "many")
    one_line_error(mote("run", NANO, "-p", "a", "-n", 1, env={"MOTE_THREADS": "0"}), 1, "MOTE_THREADS")
    one_line_error(mote("run", NANO, "-p", "a", "-n", 1, env={"MOTE_CPU_MASK": "sse9"}), 1, "MOTE_CPU_MASK", "sse9")


# ---- files that say one thing in several ways -----------------------------------------------------------------------
GQA = os.path.join(ROOT, "models", "twins", "gqa")
WORDS_IDS = "0,35,3346,2603,283,99,100,400,500,600"


def variant(base, **changes):
    """A new folder of links to base; changes: file name (with '__' for '.') -> None, bytes, a function of the JSON, or a link's target."""
    folder = tempfile.mkdtemp(dir=TMP)
    for f in os.listdir(base):
        os.symlink(os.path.join(base, f), os.path.join(folder, f))
    for f, change in changes.items():
        to = os.path.join(folder, f.replace("__", "."))
        old = None
        if os.path.lexists(to):
            with open(to, "rb") as o:
                old = o.read()
            os.remove(to)
        if isinstance(change, str):
            os.symlink(change, to)
        elif change is not None:
            with open(to, "wb") as new:
                new.write(change if isinstance(change, bytes) else in_json(change)(old))
    return folder


def text_of(j):
    return j.get("text_config", j)


def prompt_tokens(folder, *extra):
    return good_json("run", folder, "-p", "Hi", "-n", 1, "--temp", 0, "--json", *extra)["prompt_tokens"]


def bos_ids(folder, rc=0):
    r = mote("tokenize", folder, "-p", "Hi", "--bos", "--ids-only")
    expect(r.rc == rc, str(r))
    return r.text.strip()


@check
def bos_is_the_models():
    def both(folder, ids):
        expect(bos_ids(folder) == ids, f"{bos_ids(folder)} for {ids}")
        expect(prompt_tokens(folder) == len(ids.split(",")), f"{prompt_tokens(folder)} tokens for {ids}")
        expect(prompt_tokens(folder, "--no-bos") == 2, "--no-bos")
    config, tok = (lambda k, v: {"config__json": lambda j: j.update({k: v})}), (lambda **kv: {"tokenizer_config__json": lambda j: j.update(kv)})
    for base in (NANO, GQA):
        both(variant(base), "0,42,75")
        both(variant(base, **config("bos_token_id", 5)), "5,42,75")
        both(variant(base, **config("bos_token_id", [7])), "7,42,75")
        both(variant(base, **config("bos_token_id", None)), "42,75")
        both(variant(base, **tok(add_bos_token=False)), "42,75")
        both(variant(base, **tok(bos_token=None, add_bos_token=None)), "42,75")
        both(variant(base, tokenizer_config__json=None), "0,42,75")
        no_key = {"config__json": lambda j: j.pop("bos_token_id")}
        both(variant(base, **no_key), "0,42,75")                                        # the tokenizer's own
        both(variant(base, **no_key, **tok(bos_token="<\uff5cend\u2581of\u2581sentence\uff5c>")), "1,42,75")
        both(variant(base, **no_key, tokenizer_config__json=None), "42,75")
    one_line_error(mote("tokenize", os.path.join(GQA, "tokenizer.json"), "-p", "Hi", "--bos"), 1, "tokenizer.json", "begins a sequence")
    one_line_error(mote("tokenize", variant(GQA, config__json=None, tokenizer_config__json=None), "-p", "Hi", "--bos"), 1, "begins a sequence")
    expect(bos_ids(variant(GQA, config__json=None)) == "0,42,75", "the tokenizer's own, without a configuration")
    one_line_error(mote("run", variant(GQA, **no_key, **tok(bos_token="<gone>")), "-p", "x"), 1, "tokenizer_config.json", "bos_token")
    # a template in tokenizer.json speaks where tokenizer_config.json does not
    def template(*single):
        return lambda j: j.update(post_processor={"type": "Sequence", "processors": [j["post_processor"], {
            "type": "TemplateProcessing", "single": list(single), "pair": [], "special_tokens": {
                "B": {"id": "B", "ids": [3], "tokens": ["B"]}}}]})
    text, b = {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "B", "type_id": 0}}
    silent = tok(add_bos_token=None)
    both(variant(GQA, tokenizer__json=template(b, text), **silent, **no_key), "3,42,75")
    both(variant(GQA, tokenizer__json=template(b, text), **silent), "0,42,75")
    both(variant(GQA, tokenizer__json=template(text), **silent), "42,75")
    both(variant(GQA, tokenizer__json=template(text)), "0,42,75")                    # add_bos_token wins
    r = good("run", variant(GQA, tokenizer__json=template(text, b), **tok(add_bos_token=None, add_eos_token=None)), "-p", "Hi", "-n", 1, "--temp", 0)
    expect(r.err.count("\n") == 1 and "end each text" in r.err, str(r))
    r = good("run", variant(GQA, **tok(add_eos_token=True)), "-p", "Hi", "-n", 1, "--temp", 0)
    expect(r.err.count("\n") == 1 and "end each text" in r.err, str(r))


@check
def every_eos_ends_the_text():
    def ends(folder):
        j = good_json("run", folder, "-p", "It was", "-n", 12, "--temp", 0, "--json")
        return j["tokens"], j["finish_reason"]
    tokens, why = ends(GQA)
    expect(why == "length", why)
    stop = tokens[3]
    cut = (tokens[:3], "eos")
    for eos in ([1, stop], [stop, 1], stop, [1, 1.0, stop], list(range(2, 18)) + [stop]):
        expect(ends(variant(GQA, generation_config__json=None, config__json=lambda j: j.update(eos_token_id=eos))) == cut, f"config: {eos}")
        expect(ends(variant(GQA, generation_config__json=lambda j: j.update(eos_token_id=eos))) == cut, f"generation: {eos}")
    for said in (None, []):
        expect(ends(variant(GQA, generation_config__json=lambda j: j.update(eos_token_id=said), config__json=lambda j: j.update(
            eos_token_id=[1, stop]))) == cut, f"generation says {said}")
    nano_tokens, why = ends(NANO)
    def nested(j):
        j.pop("eos_token_id")
        j["text_config"]["eos_token_id"] = [1, nano_tokens[2]]
    expect(ends(variant(NANO, generation_config__json=None, config__json=nested))[1] == "eos", "nested")


@check
def generation_config_is_applied_or_told():
    def with_(**fields):
        return variant(GQA, generation_config__json=lambda j: (j.clear(), j.update(eos_token_id=1, **fields)))
    run = lambda m, *more: good("run", m, "-p", "It was", "-n", 6, "--seed", 3, *more)
    greedy = run(GQA, "--temp", 0).text
    for fields in ({"top_k": 1}, {"top_k": 1.0}, {"min_p": 1.0}, {"top_p": 0}, {"top_p": 1e-9}, {"do_sample": False}, {"temperature": 0}):
        r = run(with_(**{"temperature": 5.0, **fields}))
        expect(r.text == greedy and r.err == "", f"{fields}: {r}")
    expect(run(with_(temperature=5.0, top_k=1), "--top-k", 0).text != greedy, "--top-k 0 switches it off")
    expect(run(with_(temperature=5.0, min_p=1.0), "--min-p", 0).text != greedy, "--min-p 0 switches it off")
    expect(run(with_(temperature=5.0, top_k=-1)).text != greedy, "-1 is off")
    r = run(with_(temperature=0, repetition_penalty=1.05, no_repeat_ngram_size=3, num_beams=1, stop_strings=["x"]))
    expect(r.text == greedy and r.err.count("\n") == 1, str(r))
    for w in ("repetition_penalty' 1.05", "no_repeat_ngram_size' 3", "stop_strings"):
        expect(w in r.err, str(r))
    expect("num_beams" not in r.err, str(r))


@check
def top_p_zero_is_the_likeliest():
    for base in (NANO, GQA):
        greedy = good("run", base, "-p", "It was", "-n", 4, "--temp", 0).text
        for more in (("--top-p", 0), ("--top-p", 0, "--temp", 0), ("--top-p", 0, "--temp", 9)):
            expect(good("run", base, "-p", "It was", "-n", 4, "--seed", 1, *more).text == greedy, str(more))
    for option, value in (("--top-p", "1.5"), ("--top-p", "-0.1"), ("--top-p", "nan"), ("--min-p", "2"), ("--temp", "-1"), ("--top-k", "-1")):
        for command in (("run", NANO, "-p", "x"), ("chat", NANO)):
            r = mote(*command, option, value, stdin=b"hi\n")
            expect(r.rc == 2 and r.out == b"" and option in r.err, str(r))
    talk = lambda *more: good("chat", NANO, "-n", 4, "--seed", 5, *more, stdin=b"It was\n").text
    expect(talk("--top-p", 0) == talk("--temp", 0), talk("--top-p", 0))


def logits_of(folder):
    out = os.path.join(TMP, "variant.safetensors")
    good("logits", folder, "--ids", WORDS_IDS, "-o", out)
    with open(out, "rb") as f:
        return f.read()


@check
def rope_under_every_name():
    def same(base, want, edit):
        expect(logits_of(variant(base, config__json=lambda j: edit(text_of(j)))) == want, "other logits")
    def main_and_compress(t):
        y = t.pop("rope_scaling")
        t["rope_parameters"] = {"main": {"rope_type": "default", "rope_theta": t.pop("rope_theta")},
                                "compress": dict(y, rope_theta=t.pop("compress_rope_theta"))}
    want = logits_of(NANO)
    same(NANO, want, main_and_compress)
    same(NANO, want, lambda t: t.update(rope_parameters=dict(t.pop("rope_scaling"), rope_theta=t.pop("rope_theta"))))
    same(NANO, want, lambda t: t.update(rope_parameters=dict(t["rope_scaling"]), rope_scaling=None))
    expect(logits_of(variant(NANO, config__json=lambda j: text_of(j).update(rope_scaling=None))) != want, "YaRN changes nothing")
    y = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
    want = logits_of(variant(GQA, config__json=lambda j: j.update(rope_scaling=y)))
    expect(want != logits_of(GQA), "YaRN changes nothing")
    same(GQA, want, lambda t: t.update(rope_scaling=y, rope_parameters=None))
    same(GQA, want, lambda t: t.update(rope_scaling=y, rope_parameters={"rope_type": "default", "rope_theta": 10000.0}))
    same(GQA, want, lambda t: t.update(rope_scaling={}, rope_parameters=dict(y, rope_theta=t.pop("rope_theta"))))
    same(GQA, want, lambda t: t.update(rope_scaling=dict(y, type="yarn", truncate=True, mscale=None)))
    for t, word in ((dict(y, truncate=False), "truncate"), (dict(y, mscale=0.7), "mscale"), (dict(y, long_factor=[1]), "long_factor")):
        one_line_error(mote("run", variant(GQA, config__json=lambda j: j.update(rope_scaling=t)), "-p", "x"), 1, "config.json", word)


@check
def numbers_may_have_a_fraction_of_zeros():
    def floats(j):
        for k, v in list(j.items()):
            if isinstance(v, dict):
                floats(v)
            elif isinstance(v, int) and not isinstance(v, bool):
                j[k] = float(v)
            elif isinstance(v, list) and all(isinstance(x, int) for x in v):
                j[k] = [float(x) for x in v]
    for base in (NANO, GQA):
        expect(logits_of(variant(base, config__json=floats, generation_config__json=floats)) == logits_of(base), base)


# ---- files that are there and cannot be read, and paths that are no checkpoint --------------------------------------
@check
def optional_files_are_there_or_not():
    """A link into nothing, a folder, a FIFO, a file without permission: never as if there were none, and never a wait."""
    def fifo(path):
        os.mkfifo(path)
    def locked(path):
        with open(path, "wb") as f:
            f.write(b"{}")
        os.chmod(path, 0)
    kinds = [("gone", lambda p: os.symlink("../../blobs/gone", p)), ("folder", os.mkdir), ("fifo", fifo)]
    if os.geteuid():
        kinds.append(("locked", locked))
    files = [(f, ("run", "-p", "x", "-n", 1)) for f in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                                                       "model.safetensors.index.json")]
    files += [("engram_token_map.i32", ("run", "--ids", "0,42", "-n", 1)), ("model.safetensors.index.json", ("inspect",)),
              ("model.safetensors.index.json", ("plan",)), ("config.json", ("plan",)), ("config.json", ("tokenize", "-p", "x", "--bos")),
              ("tokenizer_config.json", ("tokenize", "-p", "x", "--bos"))]
    for f, (command, *rest) in files:
        for kind, make in kinds:
            folder = variant(NANO, **{f.replace(".", "__"): None})
            if f == "engram_token_map.i32":
                os.remove(os.path.join(folder, "tokenizer.json"))
            make(os.path.join(folder, f))
            r = mote(command, folder, *rest, timeout=20)
            if command == "plan" and f.startswith("model"):
                expect(r.rc == 0 and f in r.text + r.err, f"{kind} {f}: {r}")     # told as a note of the sums
            else:
                one_line_error(r, 1, f)
            shutil.rmtree(folder)
    # the one weights file of a folder without an index
    folder = variant(make_llama(), model__safetensors="../gone")
    one_line_error(mote("run", folder, "-p", "x"), 1, "model.safetensors", "cannot open")


@check
def ids_need_no_tokenizer():
    nfc = {"tokenizer__json": lambda j: j.update(normalizer={"type": "NFC"})}
    for base in (GQA, NANO):
        want = good_json("run", base, "--ids", "0,42,75", "-n", 3, "--temp", 0, "--json")["tokens"]
        for change in (nfc, {"tokenizer__json": b"{"}, {"tokenizer__json": "../gone"}):
            folder = variant(base, **change)
            r = good("run", folder, "--ids", "0,42,75", "-n", 3, "--temp", 0)
            expect(r.text.split() == [str(t) for t in want] and r.err.count("\n") == 1 and "tokenizer.json" in r.err, str(r))
            r = good("logits", folder, "--ids", "0,42,75", "-o", os.path.join(TMP, "ids.safetensors"))
            expect(r.err == "", str(r))
            one_line_error(mote("run", folder, "-p", "x"), 1, "tokenizer.json")
    folder = variant(NANO, **nfc, engram_token_map__i32=None)
    one_line_error(mote("run", folder, "--ids", "0,42"), 1, "engram_token_map.i32", "NFC")


@check
def a_path_that_is_no_checkpoint_gets_a_sentence():
    d = tempfile.mkdtemp(dir=TMP)
    def file(name, data=b"x"):
        path = os.path.join(d, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data)
        return path
    gguf, other = file("model.gguf", b"GGUF\3\0\0\0"), file("weights", b"GGUF\3\0\0\0")
    file("of-gguf/x-Q4_K.gguf", b"GGUF")
    shutil.copy(os.path.join(GQA, "config.json"), file("torch/config.json"))
    file("torch/pytorch_model.bin")
    shutil.copy(os.path.join(GQA, "config.json"), file("torch-gguf/config.json"))
    file("torch-gguf/a.gguf")
    file("models--org--name/snapshots/abc/config.json")
    rows = [(gguf, "GGUF file"), (other, "GGUF file"), (os.path.join(d, "of-gguf"), "x-Q4_K.gguf"), ("some-org/Some-Model-7B", "download it first"),
            (os.path.join(d, "torch"), "pytorch_model.bin"), (os.path.join(d, "torch-gguf"), "a.gguf"), (file("consolidated.00.pth"), "PyTorch weights"),
            (os.path.join(d, "models--org--name"), "snapshots"), (os.path.join(GQA, "config.json"), "give the folder"),
            (os.path.join(GQA, "model-00001-of-00001.safetensors"), "give the folder"), (os.path.join(d, "nowhere"), "No such file")]
    for path, words in rows:
        one_line_error(mote("run", path, "-p", "x"), 1, os.path.basename(path), words)
    for command in ("inspect", "plan", "tokenize"):
        for path, words in rows[:4]:
            one_line_error(mote(command, path, *(("-p", "x") if command == "tokenize" else ())), 1, os.path.basename(path), words)
    for method in ("gptq", "awq", "bitsandbytes"):
        folder = variant(GQA, config__json=lambda j: j.update(quantization_config={"quant_method": method, "bits": 4}))
        one_line_error(mote("run", folder, "-p", "x"), 1, "config.json", f"quant_method' is '{method}'", "unquantised")


@check
def a_model_without_tokenizer():
    folder = damaged("no-tokenizer", tokenizer__json=None)
    one_line_error(mote("run", folder, "-p", "Emma", "-n", 1), 1, "tokenizer.json")
    one_line_error(mote("tokenize", folder, "-p", "Emma"), 1, "tokenizer.json")
    one_line_error(mote("chat", folder, stdin=b"hi\n"), 1, "tokenizer.json")
    j = good_json("run", folder, "--ids", IDS, "-n", 4, "--temp", 0, "--json")
    expect(j["text"] is None and j["tokens"] == good_json("run", NANO, "--ids", IDS, "-n", 4, "--temp", 0, "--json")["tokens"], str(j)[:200])
    expect(good("run", folder, "--ids", IDS, "-n", 4, "--temp", 0).text.split() == [str(t) for t in j["tokens"]], "ids as text")


if LIMITS:
    @check
    def no_memory():
        """With every limit on the address space: done, or one line and nothing on stdout. (Below 24 MiB the loader itself fails.)"""
        failed = 0
        for mib in [24, 28, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 144, 160, 192, 224, 256, 384, 512, 1024, 4096]:
            r = mote("run", NANO, "-p", "It was a truth universally acknowledged", "-n", 2, "--json", "-t", 2, limit=mib << 20)
            if r.rc == 0:
                json.loads(r.text)
                break
            one_line_error(r, 1, "memory|thread|allocate")
            failed += 1
        expect(r.rc == 0 and failed, f"{failed} limits failed; last: {r}")


# ---- run them ------------------------------------------------------------------------------------------------------
def main():
    n_passed = n_failed = 0
    try:
        for name, f in CHECKS:
            if WORDS and not any(w in name for w in WORDS):
                continue
            began = time.monotonic()
            try:
                f()
            except Failed as e:
                n_failed += 1
                print(f"FAILED  {name}\n        {e}", flush=True)
            except Exception as e:                                       # a surprise in the check itself is a failure too
                n_failed += 1
                print(f"FAILED  {name}\n        {type(e).__name__}: {e}", flush=True)
            else:
                n_passed += 1
                print(f"ok      {name} ({time.monotonic() - began:.1f} s)", flush=True)
    finally:
        shutil.rmtree(TMP, ignore_errors=True)
    print(f"{n_passed} passed, {n_failed} failed")
    return 1 if n_failed or not n_passed else 0


if __name__ == "__main__":
    sys.exit(main())
