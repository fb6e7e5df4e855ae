#!/usr/bin/env python3
"""What goes into the mote command and comes out of it, from outside: bytes that are no text, files that are links, pipes and devices,
closed descriptors, two chats on one file. Arguments and output as cli.py, whose helpers it uses."""
import os
import random
import signal
import stat
import subprocess
import sys
import threading
import time

import cli
from cli import HELDOUT, MOTE, NANO, TMP, chat, chat_json, check, damaged, expect, good, good_json, in_json, json, mote, one_line_error

cli.CHECKS.clear()
LATIN1 = b"caf\xe9"
NAME = os.fsdecode(LATIN1)          # as an argument
SHORT = ("--temp", 0, "-n", 3)


def place(name):
    return os.path.join(TMP, "doors-" + name)


def told(lines, *more):
    """User messages of a chat that is fed `lines` as they are."""
    saved = place("told.json")
    r = mote("chat", NANO, "--temp", 0, "-n", 1, *more, stdin=lines + b"\n/save " + saved.encode() + b"\n")
    expect(r.rc == 0, str(r))
    with open(saved) as f:
        return [m["content"] for m in json.load(f) if m["role"] == "user"]


# ---- lines ---------------------------------------------------------------------------------------------------------
@check
def lines_of_a_pipe():
    for text, want in (
            (b"alpha\rbeta gamma\nsecond", ["alpha\rbeta gamma", "second"]),
            (b"a\r\nb\tc\r\n\r\n\nd\r", ["a", "b\tc", "d"]),
            (b"one \\\ntwo\n\"\"\"\n/quit\n\nx\\\n\"\"\"\nlast", ["one \ntwo", "/quit\n\nx\\", "last"]),
            (b"one \\\r\ntwo\r\n\"\"\"a\r\nb\"\"\"", ["one \ntwo", "a\nb"]),
            (b"/etc/passwd\n//reset\n/frob it\n/\n /quit", ["/etc/passwd", "/reset", "/frob it", "/", " /quit"]),
            (b"nul\0inside\n" + LATIN1 + b"!\n\xf0\x9f", ["nul\0inside", "caf\ufffd!", "\ufffd"]),
            (b"x" * 100000, ["x" * 100000])):
        if len(text) > 9999:
            r = mote("chat", NANO, "--temp", 0, "-n", 1, "--ctx", 64, stdin=text + b"\n")
            expect(r.rc == 1 and "full" in r.err, str(r)[:500])      # all of it arrives
            continue
        got = told(text)
        expect(got == want, f"{text!r}: {got!r}")
    # the end of the input ends what is open
    for text, want, note in ((b'"""\nopen', "open", True), (b"open\\", "open", False), (b"open", "open", False)):
        h = place("open.json")
        if os.path.exists(h):
            os.remove(h)
        r = mote("chat", NANO, "--temp", 0, "-n", 1, "--history", h, stdin=text)
        with open(h) as f:
            expect(json.load(f)["messages"][0]["content"] == want and r.rc == 0 and (r.err.count("\n") == 1) == note, f"{text}: {r}")
    for text, word in ((b"/frob", "/frob"), (b"/reset all", "/reset"), (b"/Quit", "/Quit")):
        one_line_error(mote("chat", NANO, stdin=text + b"\n"), 1, word)


# ---- bytes ---------------------------------------------------------------------------------------------------------
@check
def zero_bytes_survive():
    path = place("nul")
    with open(path, "wb") as f:
        f.write(b"ab\0cd")
    ids = good("tokenize", NANO, "-f", path, "--ids-only").text.strip()
    expect(good("tokenize", NANO, "--decode", ids).out == b"ab\0cd\n", "decoded")
    j = good_json("tokenize", NANO, "--decode", ids, "--json")
    expect(j["text"] == "ab\0cd", str(j))
    expect("".join(good_json("tokenize", NANO, "-f", path, "--json")["pieces"]) == "ab\0cd", "pieces")
    expect('"\\x00"' in good("tokenize", NANO, "-f", path).text, "shown")
    one = good_json("run", NANO, "--chat", "-f", path, *SHORT, "--json")
    other = good_json("run", NANO, "--chat", "-p", "abcd", *SHORT, "--json")
    expect(one["prompt_tokens"] > other["prompt_tokens"], "the zero byte is part of the prompt")
    with open(path, "rb") as f:
        expect(mote("run", NANO, "-", *SHORT, stdin=f.read()).rc == 0, "plain")


@check
def zero_bytes_that_the_model_says():
    # a tokenizer whose likeliest words hold zero bytes: what run and chat print is the decoded text, byte for byte
    def edit(j):
        v = j["model"]["vocab"]
        for word in ("\u0120and", "\u0120the", "\u0120of"):
            other = word.replace("\u0120", "\u0100")                    # the byte-level letter of zero
            parts = lambda m: m.split(" ") if isinstance(m, str) else m
            j["model"]["merges"] = [m for m in j["model"]["merges"] if word not in parts(m) and "".join(parts(m)) != word]
            v[other] = v.pop(word)
    m = damaged("doors-nul-model", tokenizer__json=in_json(edit))
    for p in ("engram_token_map.i32",):
        os.remove(os.path.join(m, p))
    with open(os.path.join(NANO, "config.json")) as f:
        c = json.load(f)
    r = mote("tokenize", m, "--count", "-p", "x")
    expect(r.rc == 0, str(r))
    r = mote("run", m, "-p", "It was", "-n", 40, "--temp", 0, "--json")
    if r.rc:                                                            # the classes of the Engram must fit the new words
        n = [int(w.strip(",;.()")) for w in r.err.split() if w.strip(",;.()").isdigit()]
        for k in n:
            c.get("text_config", c)["engram_compressed_vocab_size"] = k
            path = os.path.join(m, "config.json")
            os.remove(path)
            with open(path, "w") as f:
                json.dump(c, f)
            r = mote("run", m, "-p", "It was", "-n", 40, "--temp", 0, "--json")
            if not r.rc:
                break
    j = json.loads(r.text)
    expect("\0" in j["text"], f"no zero byte was said: {j['text']!r}")
    expect(good("run", m, "-p", "It was", "-n", 40, "--temp", 0).out == j["text"].encode() + b"\n", "text and JSON differ")
    expect(good_json("tokenize", m, "--decode", ",".join(map(str, j["tokens"])), "--json")["text"] == j["text"], "decode differs")
    at = j["text"].index("\0") + 2
    stop = good_json("run", m, "-p", "It was", "-n", 40, "--temp", 0, "--stop", j["text"][at:at + 3], "--json")
    expect(stop["text"] == j["text"][:j["text"].index(j["text"][at:at + 3])], f"a stop string behind a zero byte: {stop['text']!r}")
    h = place("nul-history.json")
    a = [json.loads(x) for x in mote("chat", m, "--temp", 0, "-n", 40, "--json", "--history", h, stdin=b"Tell me of it\nGo on\n").text.splitlines()]
    with open(h) as f:
        kept = [x["content"] for x in json.load(f)["messages"] if x["role"] == "assistant"]
    expect(kept == [x["content"] for x in a] and a[1]["new_tokens"] < a[0]["context_tokens"], f"{kept} {a}")
    r = mote("chat", m, "--temp", 0, "-n", 4, "--json", "--history", h, stdin=b"More\n")
    expect(r.rc == 0 and r.err == "", str(r))


@check
def what_is_no_utf8_is_repaired_everywhere():
    new = lambda *a: chat_json(["Hello"], *a)[0]["new_tokens"]
    repaired = new("--system", "caf\ufffd only")
    expect(new("--system", NAME + " only") == repaired > new(), "--system")
    h = place("latin1.json")
    r = mote("chat", NANO, *SHORT, "--history", h, "--system", NAME, stdin=b"Hello\n/system " + LATIN1 + b" two\n" + LATIN1 + b"\n")
    expect(r.rc == 0 and "memory" not in r.err, str(r))
    with open(h) as f:
        j = json.load(f)
    expect(j["system"] == "caf\ufffd two" and j["messages"][2]["content"] == "caf\ufffd", str(j))
    one = good_json("run", NANO, "--chat", "-p", NAME, *SHORT, "--json")
    expect(one["prompt_tokens"] == good_json("run", NANO, "--chat", "-p", "caf\ufffd", *SHORT, "--json")["prompt_tokens"], "run --chat")


@check
def names_that_are_no_utf8():
    m = os.path.join(TMP, NAME)
    if not os.path.lexists(m):
        os.symlink(NANO, m)
    seen = os.path.join(TMP, "caf\ufffd")
    expect(good_json("plan", m, "--json")["path"] == seen + "/config.json", "plan")
    expect(good_json("inspect", m, "--json")["path"] == seen, "inspect")
    out = m + ".safetensors"
    expect(good_json("logits", m, "--ids", "0,1", "--out", out, "--json")["out"] == seen + ".safetensors", "logits")
    html, svg = place("latin1.html"), place("latin1.svg")
    j = good_json("eval", m, "--text", m + "/heldout.txt", "--ctx", 64, "--kv", "fp4", "--json", "--html", html, "--svg", svg)
    expect(j["text"] == seen + "/heldout.txt" and j["base"] and j["threads"], str(j)[-500:])
    good("plan", m, "--html", html, "--svg", svg)
    for path in (html, svg):
        with open(path, encoding="utf-8") as f:
            expect("\ufffd" in f.read() or path == svg, path)


@check
def ids_without_text():
    # a vocabulary padded beyond the tokenizer: what such an id adds is nothing, and the conversation goes on
    def edit(j):
        word = "\u0120and"
        j["model"]["vocab"].pop(word)
        j["model"]["merges"] = [m for m in j["model"]["merges"] if ("".join(m.split(" ")) if isinstance(m, str) else "".join(m)) != word]

    def sizes(j):
        j.get("text_config", j)["engram_compressed_vocab_size"] = 3438
    m = damaged("doors-padded", tokenizer__json=in_json(edit), config__json=in_json(sizes), engram_token_map__i32=None)
    h, store = place("padded.json"), place("padded-store")
    lines = "Hello\nAgain\nAnd once more\n".encode()
    one = [json.loads(x) for x in good("chat", m, "-n", 12, "--temp", 0, "--json", stdin=lines).text.splitlines()]
    expect(len(one) == 3 and one[1]["new_tokens"] < one[0]["context_tokens"], str(one))
    for i, line in enumerate(lines.splitlines()):
        j = json.loads(good("chat", m, "-n", 12, "--temp", 0, "--json", "--history", h, "--store", store, stdin=line + b"\n").text)
        expect((j["content"], j["context_tokens"], j["new_tokens"]) == tuple(one[i][k] for k in ("content", "context_tokens", "new_tokens")), f"{i}: {j} {one[i]}")
    with open(h) as f:
        ids = json.load(f)["ids"]
    said = json.load(open(os.path.join(NANO, "tokenizer.json")))["model"]["vocab"]["\u0120and"]
    expect(said in ids, "the id was not said: this check shows nothing")


# ---- files ---------------------------------------------------------------------------------------------------------
def writers():
    """(name, function that writes a file at a path, part of what it holds)"""
    hello = lambda p: good("chat", NANO, *SHORT, "--history", p, stdin=b"Hello\n")
    return (("history", hello, b'"messages"'),
            ("save", lambda p: good("chat", NANO, *SHORT, stdin=b"Hello\n/save " + os.fsencode(p) + b"\n"), b'"role"'),
            ("html", lambda p: good("plan", NANO, "--html", p), b"<html"),
            ("svg", lambda p: good("plan", NANO, "--svg", p), b"<svg"),
            ("logits", lambda p: good("logits", NANO, "--ids", "0,1", "--out", p), b'"logits"'))


@check
def files_are_written_through_links():
    for name, write, word in writers():
        folder = place("links-" + name)
        os.makedirs(os.path.join(folder, "sub"))
        real, link, second = (os.path.join(folder, x) for x in ("sub/real", "link", "second"))
        os.symlink("sub/real", link)
        os.symlink(link, second)
        write(second)                                            # dangling: made
        os.chmod(real, 0o640)
        before = os.stat(real).st_ino
        write(link)
        expect(os.path.islink(link) and os.path.islink(second) and stat.S_IMODE(os.stat(real).st_mode) == 0o640, f"{name}: link or mode")
        expect(os.stat(real).st_ino != before, f"{name}: written in place")
        with open(real, "rb") as f:
            expect(word in f.read(), name)
        left = sorted(os.listdir(folder)) + sorted(os.listdir(os.path.join(folder, "sub")))
        expect(left == ["link", "second", "sub", "real"], f"{name}: {left}")


@check
def files_that_cannot_be_written_stay():
    for name, option in (("html", ("plan", NANO, "--html")), ("logits", ("logits", NANO, "--ids", "0,1", "--out")),
                         ("history", ("chat", NANO, *SHORT, "--history"))):
        for path in ("/dev/full", os.path.join(TMP, "nowhere", "x"), place("loop")):
            if path == place("loop") and not os.path.lexists(path):
                os.symlink(path, path)
            r = mote(*option, path, stdin=b"Hello\n")
            expect(r.rc == 1 and os.path.basename(path) in r.err and "memory" not in r.err, f"{name}: {r}")


@check
def pipes_and_descriptors_as_files():
    for name, write, word in writers()[1:]:
        fifo = place("fifo-" + name)
        os.mkfifo(fifo)
        got = []
        t = threading.Thread(target=lambda: got.append(open(fifo, "rb").read()))
        t.start()
        write(fifo)
        t.join(60)
        expect(got and word in got[0] and stat.S_ISFIFO(os.stat(fifo).st_mode), f"{name}: {got}")
    out = place("stdout.safetensors")
    with open(out, "wb") as f:
        p = subprocess.run([MOTE, "logits", NANO, "--ids", "0,1,2", "--out", "/dev/stdout"], stdout=f, stderr=subprocess.PIPE)
    same = place("same.safetensors")
    good("logits", NANO, "--ids", "0,1,2", "--out", same)
    with open(out, "rb") as a, open(same, "rb") as b:
        expect(p.returncode == 0 and a.read() == b.read() and b"logits F32" in p.stderr, str(p.stderr))
    for argv in (("plan", NANO, "--html", "/dev/stdout"), ("plan", NANO, "--svg", "/dev/fd/1"), ("plan", NANO, "--html", ""),
                 ("logits", NANO, "--ids", "0,1", "--out", "/dev/stdout", "--json")):
        one_line_error(mote(*argv), 2, argv[2] if argv[0] == "plan" else "--out")


# ---- descriptors ---------------------------------------------------------------------------------------------------
EACH = (("run", NANO, "-p", "It was", *SHORT), ("run", NANO, "-p", "It was", *SHORT, "--json"), ("tokenize", NANO, "-p", "a"), ("plan", NANO), ("inspect", NANO),
        ("doctor",), ("bench", "--list"), ("kv", "stat", "{store}"), ("logits", NANO, "--ids", "0,1", "--out", "{out}"),
        ("eval", NANO, "--text", HELDOUT, "--ctx", 64, "--kv", "fp4"), ("--help",), ("run", "--help"), ("--version",), ("chat", NANO, *SHORT, "--json"), ("chat", NANO, *SHORT))


def with_descriptors(argv, close=(), **kw):
    def before():
        for fd in close:
            os.close(fd)
    argv = [str(a).format(store=place("closed-store"), out=place("closed.out")) for a in argv]
    return subprocess.run([MOTE, *argv], preexec_fn=before, input=b"Hello\n" if 0 not in close else None,
                          stdout=kw.get("stdout", subprocess.PIPE), stderr=subprocess.PIPE, timeout=240)


@check
def output_that_cannot_be_written_is_an_error():
    good("run", NANO, "-p", "It was", *SHORT, "--store", place("closed-store"))
    for argv in EACH:
        with open("/dev/full", "wb") as full:
            p = with_descriptors(argv, stdout=full)
        expect(p.returncode == 1 and p.stderr.count(b"standard output") == 1 and b"No space" in p.stderr, f"full: {argv}: {p}")
        p = with_descriptors(argv, close=(1,))
        expect(p.returncode == 1 and p.stderr.count(b"standard output") == 1 and b"Bad file" in p.stderr, f"closed: {argv}: {p}")


@check
def closed_descriptors_let_nothing_into_files():
    ids = "0,35,3346,2603,283"
    for close in ((1,), (2,), (1, 2), (0, 1, 2), (0,)):
        store = place("closed-" + "".join(map(str, close)))
        for argv in (("run", NANO, "-f", HELDOUT, "-n", 2, "--store", store, "--frob"), ("run", NANO, "--ids", ids, "-n", 40, "--temp", 0, "--store", store, "--stats"),
                     ("chat", NANO, *SHORT, "--store", store)):
            p = with_descriptors(argv, close=close)
            want = 2 if "--frob" in argv else 1 if 1 in close or (0 in close and argv[0] == "chat") else 0
            expect(p.returncode == want, f"{close}: {argv}: {p}")
        expect(os.stat(os.path.join(store, "lock")).st_size == 0, f"{close}: text in the lock file")
        r = mote("kv", "verify", store, "--json")
        expect(r.rc == 0, f"{close}: {r}")
    expect(with_descriptors(("tokenize", NANO, "-"), close=(0,)).returncode == 1, "a closed standard input is no empty text")


@check
def signals_where_nobody_looks():
    # a command that does not look at Ctrl-C ends of it
    for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        p = subprocess.Popen([MOTE, "tokenize", NANO, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             preexec_fn=lambda: [signal.signal(x, signal.SIG_DFL) for x in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)])
        p.stdin.write(b"a")
        p.stdin.flush()
        p.send_signal(s)
        p.wait(60)
        expect(p.returncode == -s, f"{s}: {p.returncode}")


@check
def sigterm_keeps_what_was_reached():
    p = subprocess.Popen([MOTE, "run", NANO, "-p", "It was", "-n", "50000", "--ignore-eos", "--seed", "3"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    first = p.stdout.read(4)
    p.send_signal(signal.SIGTERM)
    out, err = p.communicate(timeout=60)
    expect(p.returncode == -signal.SIGTERM and (first + out).endswith(b"\n"), f"{p.returncode} {err!r}")


# ---- two chats, and one in pieces ----------------------------------------------------------------------------------
@check
def two_chats_on_one_history():
    h = place("two.json")
    open_one = lambda: subprocess.Popen([MOTE, "chat", NANO, "--json", "--temp", "0", "-n", "4", "--history", h], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, bufsize=0)
    chats = [open_one() for _ in range(3)]

    def say(p, text):
        p.stdin.write(text.encode() + b"\n")
        expect(p.stdout.readline(), "no reply")
    for i, p in enumerate(chats):                                # all have looked for the file before one writes it
        p.stdin.write(f"/save {place(f'ready-{i}')}\n".encode())
    while not all(os.path.exists(place(f"ready-{i}")) for i in range(3)):
        expect(all(p.poll() is None for p in chats), "a chat has ended")
        time.sleep(0.02)
    say(chats[0], "first one")
    for p in chats[1:]:                                          # they started before there was a file: both are overtaken
        say(p, f"other {chats.index(p)}")
    say(chats[0], "first two")
    for p in chats[1:]:
        say(p, f"more {chats.index(p)}")
    errors = []
    for p in chats:
        p.stdin.close()
        expect(p.wait(60) == 0, str(p.returncode))
        errors.append(p.stderr.read())
    kept = {}
    for name in (h, h + ".2", h + ".3"):
        with open(name) as f:
            kept[name] = [m["content"] for m in json.load(f)["messages"] if m["role"] == "user"]
    expect(kept[h] == ["first one", "first two"], f"{kept} {errors}")
    expect(sorted(kept.values()) == sorted([["first one", "first two"], ["other 1", "more 1"], ["other 2", "more 2"]]), str(kept))
    told = [[line for line in e.splitlines() if b"two.json" in line] for e in errors]
    expect([len(t) for t in told] == [0, 1, 1], str(errors))
    # many at once: nobody's turn is lost
    many = place("many.json")
    ps = [subprocess.Popen([MOTE, "chat", NANO, "--temp", "0", "-n", "1", "--history", many], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
          for _ in range(6)]
    for i, p in enumerate(ps):
        p.stdin.write(f"I am {i}\n".encode())
        p.stdin.close()
    expect(all(p.wait(120) == 0 for p in ps), "status")
    text = "".join(open(os.path.join(TMP, f)).read() for f in os.listdir(TMP) if f.startswith("doors-many.json"))
    expect(all(f"I am {i}" in text for i in range(6)), text[:2000])


@check
def a_history_changed_by_hand():
    h = place("edited.json")
    p = subprocess.Popen([MOTE, "chat", NANO, "--json", "--temp", "0", "-n", "2", "--history", h], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    p.stdin.write(b"one\n")
    p.stdout.readline()
    for _ in range(3000):                                        # the reply comes before the file
        if os.path.exists(h):
            break
        time.sleep(0.02)
    with open(h) as f:
        text = f.read()
    with open(h, "w") as f:
        f.write(text.replace("one", "edited"))
    p.stdin.write(b"two\n")
    p.stdin.close()
    p.stdout.read()
    err = p.stderr.read()
    expect(p.wait(60) == 0 and b"edited.json.2" in err, str(err))
    with open(h) as f:
        expect("edited" in f.read(), "the edit is gone")
    with open(h + ".2") as f:
        expect([m["content"] for m in json.load(f)["messages"]][::2] == ["one", "two"], "the conversation")


@check
def a_seed_over_several_processes():
    lines = ["Good day to you.", "And then?", "/regen", "Why?"]
    more = ("--temp", 0.9, "--seed", 7, "-n", 6, "--prefill", "full")
    one = [x["content"] for x in chat_json(lines, *more)]
    h = place("seed.json")
    pieces = [chat_json([line], *more, "--history", h)[0]["content"] for line in lines]
    expect(pieces == one, f"{pieces} {one}")
    expect(len(set(chat_json(["Good day to you."] + ["/regen"] * 3, *more)[i]["content"] for i in range(4))) > 1, "/regen says the same")
    # a file of an older version has no counter: its replies are counted
    with open(h) as f:
        j = json.load(f)
    expect(j["turns"] == 4, str(j["turns"]))
    del j["turns"]
    with open(h, "w") as f:
        json.dump(j, f)
    chat_json(["More"], *more, "--history", h)
    with open(h) as f:
        expect(json.load(f)["turns"] == 4, "three replies and this one")


# ---- what is said --------------------------------------------------------------------------------------------------
@check
def formats_that_are_none():
    for argv in (("plan", NANO, "--kv"), ("run", NANO, "-p", "a", "--kv"), ("chat", NANO, "--kv"), ("eval", NANO, "--text", HELDOUT, "--kv"),
                 ("eval", NANO, "--text", HELDOUT, "--base"), ("logits", NANO, "--ids", 1, "--out", place("x"), "--kv"), ("ladder", NANO, "--text", HELDOUT, "--kv"),
                 ("tune", NANO, "--text", HELDOUT, "--formats")):
        r = mote(*argv, "fp5")
        one_line_error(r, 2, argv[-1], "'fp5' is no format")
        expect(r.err.count("fp5") == 1 and "kv formats" not in r.err, str(r))
    one_line_error(mote("plan", NANO, "--kv", "key=fp4"), 2, "--kv", "'key'")
    one_line_error(mote("plan", NANO, "--ctx", "2G"), 2, "--ctx", "1,073,741,824")
    one_line_error(mote("bench", "--only", "frob"), 2, "--only", "frob")
    # in a profile it is a fault of the file
    bad = place("bad.profile")
    with open(bad, "w") as f:
        json.dump({"format": "mote-profile", "version": 1, "model": {"fingerprint": "0" * 64}, "kv": "fp5"}, f)
    one_line_error(mote("run", NANO, "-p", "a", "--profile", bad), 1, "bad.profile")


@check
def figures_of_what_was_not_computed():
    ids = ",".join(str(x) for x in good_json("tokenize", NANO, "-f", HELDOUT, "--json")["ids"][:512])
    argv = ("run", NANO, "--ids", ids, "-n", 1, "--temp", 0, "--store", place("figures"), "--prefill", "full", "--snapshot")
    cold = good_json(*argv, "--json")
    warm = good_json(*argv, "--json")
    expect(cold["prefill_tokens_per_s"] > 0 and warm["reused_tokens"] >= 256, f"{warm['reused_tokens']}")
    rate = warm["computed_tokens"] / warm["time_to_first_token_s"]
    got = warm["prefill_tokens_per_s"]
    expect(got is None if not warm["computed_tokens"] else abs(got / rate - 1) < 1e-6, f"{got} {rate}")
    r = good(*argv, "--stats")
    expect(f"prompt      512 tokens, {warm['computed_tokens']} computed, " in r.err, r.err)


@check
def stats_after_reset():
    r = chat(["/stats", "Hello there", "/stats", "/reset", "/stats"], "--json")
    lines = [line.split()[1] for line in r.err.splitlines() if line.startswith("context ")]
    expect(lines[0] == "0" and lines[1] != "0" and lines[2] == "0", str(lines))


@check
def a_needle_without_rivals():
    j = good_json("eval", NANO, "--text", HELDOUT, "--no-loss", "--needle", "--depths", "50", "--ctx", 192, "--samples", 1, "--kv", "fp4", "--json")
    for r in j["needle"]["rows"] + j["needle"]["cells"]:
        expect(r["choice"] is None and r["margin"] is None and r["recall"] is not None, str(r))
    text = good("eval", NANO, "--text", HELDOUT, "--no-loss", "--needle", "--depths", "50", "--ctx", 192, "--samples", 1, "--kv", "fp4").text
    row = next(line.split() for line in text.splitlines() if line.split()[:1] == ["fp4"])
    expect(row[4] == "-" and row[3] != "-", text)


if __name__ == "__main__":
    sys.exit(cli.main())
