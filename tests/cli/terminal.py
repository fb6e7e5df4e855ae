#!/usr/bin/env python3
"""mote on a terminal: what a person types, pastes and interrupts in chat, signals, and progress lines at several widths.

    terminal.py MOTE SOURCE_ROOT [WORD...]

As cli.py: one line per check, WORDs pick checks by name. Needs nothing but Python's library.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from ptys import Lost, Screen, Terminal

MOTE, ROOT, WORDS = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3:]
NANO = os.path.join(ROOT, "models", "nano")
TMP = tempfile.mkdtemp(prefix="mote-terminal-")
CHECKS = []
COOKED, RAW = (True, True, False), (False, False, True)


class Failed(Exception):
    pass


def check(f):
    CHECKS.append((f.__name__.replace("_", " "), f))
    return f


def expect(ok, what):
    if not ok:
        raise Failed(what)


def chat(*more, n=1, **kw):
    t = Terminal([MOTE, "chat", NANO, "--temp", "0", "-n", str(n), *map(str, more)], **kw)
    try:
        t.wait(b"> ")
    except Lost:
        t.close()
        raise
    return t


def said(t):
    """The user's messages so far."""
    path = os.path.join(TMP, "said.json")
    t.send(b"/save " + path.encode() + b"\r")
    t.wait(b"messages in")
    t.wait(b"> ")
    with open(path) as f:
        return [m["content"] for m in json.load(f) if m["role"] == "user"]


def say(t, keys):
    """A message, answered."""
    t.send(keys)
    t.wait(b"tokens;")
    t.wait(b"> ")


def paste(text):
    return b"\033[200~" + text + b"\033[201~"


# ---- keys ----------------------------------------------------------------------------------------------------------
@check
def a_paste_is_one_message():
    with chat() as t:
        say(t, paste(b"one\rtwo\r\n\tthree\n/quit\n") + b"\r")
        say(t, b"see: " + paste(b"a\rb") + b" (end)\r")
        say(t, paste(b"/etc/passwd\r/reset") + b"\r")
        say(t, paste(b"\x1b[31mred\x1b[0m") + b"\r")
        expect(said(t) == ["one\ntwo\n\tthree\n/quit", "see: a\nb (end)", "/etc/passwd\n/reset", "\x1b[31mred\x1b[0m"], repr(said(t)))
        t.send(b"/quit\r")
        expect(t.end() == 0 and t.modes() == COOKED, f"{t.p.returncode} {t.modes()}")


@check
def a_tab_is_text():
    with chat() as t:
        say(t, b"a\tb\r")
        say(t, b"\t\tc\r")
        expect(said(t) == ["a\tb", "\t\tc"], repr(said(t)))


@check
def unknown_keys_leave_nothing():
    keys = [b"\033[15~", b"\033[1;2P", b"\033OP", b"\033[Z", b"\033[[A", b"\033[27;5;13~", b"\033[200;9z", b"\033[?1;2c", b"\033[<0;3;4M",
            b"\033]11;rgb:0000/0000/0000\033\\", b"\033]0;t\007", b"\033P1$r0m\033\\", b"\033[M !!"[:3], b"\033[5~", b"\033[6~", b"\033[2~", b"\x1d", b"\x1e", b"\x1f"]
    with chat() as t:
        for k in keys:
            t.send(b"x" + k)
        say(t, b"y\r")
        expect(said(t) == ["x" * len(keys) + "y"], repr(said(t)))


@check
def keys_that_edit():
    with chat() as t:
        say(t, b"bd\033[D\033[D\033[3~a\033[C\033OFe\r")         # left, left, delete, a, right, end, e
        say(t, b"c\033[Hb\001a\033[4~d\r")                        # home and Ctrl-A, end
        say(t, b"one two three\033[1;5D\033[1;5DX\r")             # back by words
        say(t, b"\033[A\033[A!\r")                                # up: the message before the last
        say(t, b"one\033\rtwo\r")                                 # Alt-Enter
        expect(said(t) == ["ade", "abcd", "one Xtwo three", "abcd!", "one\ntwo"], repr(said(t)))


@check
def several_lines():
    with chat() as t:
        t.send(b"one \\\r")
        t.wait(b"... ")
        say(t, b"two\\\\\r")
        t.send(b'"""\r')
        t.wait(b"... ")
        t.send(b"/quit\r")
        t.wait(b"... ")
        t.send(b"\r")
        t.wait(b"... ")
        say(t, b'end"""\r')
        t.send(b'"""open\r')
        t.wait(b"... ")
        say(t, b"\x04")                                           # Ctrl-D ends the block, not the conversation
        expect(said(t) == ["one \ntwo\\\\", "/quit\n\nend", "open"], repr(said(t)))
        t.send(b"\x04")
        expect(t.end() == 0 and t.modes() == COOKED, f"{t.p.returncode} {t.modes()}")


@check
def what_is_a_command():
    with chat() as t:
        t.send(b"/frob\r")
        t.wait(b"unknown command '/frob'")
        t.send(b"/reset the clock\r")
        t.wait(b"takes no text")
        for line in (b"/etc/passwd", b"/frob it", b"//quit", b"/", b"/home/me/file: why?", b" /quit"):
            say(t, line + b"\r")
        expect(said(t) == ["/etc/passwd", "/frob it", "/quit", "/", "/home/me/file: why?", " /quit"], repr(said(t)))


@check
def bytes_that_are_no_text():
    with chat() as t:
        say(t, b"caf\xe9!\r")
        say(t, "naïve 你好 😀".encode() + b"\r")
        for b in "é":
            t.send(b.encode()[:1])
        say(t, "é".encode()[1:] + b"\xf0\x9f\r")
        got = said(t)
        expect(got[:2] == ["caf\ufffd!", "naïve 你好 😀"] and got[2].endswith("\ufffd") and got[2].strip("é\ufffd") == "", repr(got))


@check
def a_very_long_line():
    text = ("word " * 1000).strip().encode()
    with chat() as t:
        say(t, text[:4500] + b"\r")
        say(t, paste(text) + b"\r")
        expect([len(x) for x in said(t)] == [4500, len(text)], str([len(x) for x in said(t)]))


@check
def stdout_elsewhere():
    path = os.path.join(TMP, "reply.txt")
    with open(path, "wb") as f, chat(stdout=f) as t:
        say(t, b"a\tb\r")
        expect(said(t) == ["a\tb"], repr(said(t)))
        t.send(b"/quit\r")
        expect(t.end() == 0, str(t.p.returncode))
    with open(path, "rb") as f:
        data = f.read()
    expect(b"> " not in data and b"\033" not in data and data.endswith(b"\n"), repr(data))


# ---- signals -------------------------------------------------------------------------------------------------------
@check
def ctrl_c_at_the_prompt():
    with chat() as t:
        t.send(b"never said")
        t.wait(b"said")                                           # the terminal throws away what was not read before the key
        t.send(b"\x03")
        t.wait(b"^C")
        t.wait(b"> ")
        t.send(b"\x03")
        t.wait(b"Ctrl-D")
        t.wait(b"> ")
        t.send(b'"""block\r')
        t.wait(b"... ")
        t.send(b"more")
        t.wait(b"more")
        t.send(b"\x03")
        t.wait(b"> ")
        say(t, b"said\r")
        expect(said(t) == ["said"], repr(said(t)))
        t.send(b"\x03")
        t.wait(b"Ctrl-D")
        t.wait(b"> ")
        t.send(b"\x03")
        expect(t.end() == 130 and t.modes() == COOKED, f"{t.p.returncode} {t.modes()}")


@check
def ctrl_c_stops_a_reply():
    with chat(n=60000) as t:
        t.send(b"Tell me all.\r")
        t.wait(b"\033[?2004l")                                    # the line has been taken
        t.send(b"\x03")
        t.wait(b"(stopped)")
        t.wait(b"> ")
        expect(t.modes() == RAW, str(t.modes()))
        t.send(b"/quit\r")
        expect(t.end() == 0 and t.modes() == COOKED, f"{t.p.returncode} {t.modes()}")


def ends_by(s, status):
    with chat() as t:
        t.send(b"abc")
        t.wait(b"abc")
        expect(t.modes() == RAW, str(t.modes()))
        os.kill(t.p.pid, s)
        expect(t.end() == status, f"{s.name}: status {t.p.returncode}, not {status}")
        expect(t.modes() == COOKED, f"{s.name}: {t.modes()}")


@check
def signals_at_the_prompt_leave_the_terminal_in_order():
    ends_by(signal.SIGTERM, -signal.SIGTERM)
    ends_by(signal.SIGHUP, -signal.SIGHUP)
    ends_by(signal.SIGQUIT, -signal.SIGQUIT)
    ends_by(signal.SIGINT, 130)


@check
def sigterm_in_a_reply():
    with chat(n=60000) as t:
        t.send(b"Tell me all.\r")
        t.wait(b"\033[?2004l")
        os.kill(t.p.pid, signal.SIGTERM)
        expect(t.end() == -signal.SIGTERM and t.modes() == COOKED, f"{t.p.returncode} {t.modes()}")


@check
def stopping_and_going_on():
    # under a shell: a stop signal means nothing to a process whose parent is in another session
    script = '"$0" "$@"; echo STOPPED; read x; fg >/dev/null; echo STOPPED; read x; fg >/dev/null'
    with Terminal(["bash", "-mc", script, MOTE, "chat", NANO, "--temp", "0", "-n", "1"]) as t:
        t.wait(b"> ")
        for number in range(2):
            t.send(b"ab")
            t.wait(b"ab")
            t.send(b"\x1a")                                       # Ctrl-Z
            t.wait(b"STOPPED")
            expect(t.modes() == COOKED, str(t.modes()))
            t.send(b"\n")
            t.until(lambda: t.modes() == RAW, "raw again")
            t.wait(b"ab")                                         # what was typed is drawn again
        say(t, b"c\r")
        t.resize(50)
        say(t, b"d\r")
        expect(said(t) == ["ababc", "d"], repr(said(t)))


# ---- progress ------------------------------------------------------------------------------------------------------
HELDOUT = os.path.join(NANO, "heldout.txt")
LONG = [MOTE, "run", NANO, "-f", os.path.join(TMP, "long.txt"), "-n", "1"]
with open(HELDOUT, "rb") as whole, open(LONG[4], "wb") as part:
    part.write(whole.read(200000))


def screens(t, columns, change=None):
    """Every state of the screen after a progress line was drawn; `change`: a width to change to in the middle."""
    t.wait(b" %")
    while b" %" not in t.out[t.seen:]:
        expect(t._read(60), "one progress line only")
    screen = Screen(columns)
    if change:
        text = t.out.decode()
        screen.feed(text)
        screen.reflow(change)
        t.resize(change)
        before = len(t.out)
    t.p.send_signal(signal.SIGINT)
    t.end()
    text = t.out.decode()
    if change:
        screen.feed(text[before:])
    else:
        for frame in text.split("\r\033[K"):
            expect(len(frame.split("\n")[0]) < columns, f"{columns} columns: {frame!r}")
        screen.feed(text)
    return screen


@check
def progress_fits():
    for columns in (30, 60, 120):
        with Terminal(LONG, columns=columns) as t:
            screen = screens(t, columns)
            expect(t.p.returncode == 130 and "\n".join(screen.lines).count("%") == 0, f"{columns}: {screen.text()!r}")
            expect(screen.text().replace("^C", "") == "mote: interrupted", f"{columns}: {screen.text()!r}")


@check
def progress_after_the_terminal_became_narrow():
    with Terminal(LONG, columns=120) as t:
        screen = screens(t, 120, 30)
        expect(screen.text() == "mote: interrupted", repr(screen.text()))


@check
def no_progress_where_it_cannot_be_drawn():
    with Terminal([MOTE, "eval", NANO, "--text", HELDOUT, "--ctx", "64", "--kv", "fp4"], term="dumb") as t:
        expect(t.end() == 0 and b"\033" not in t.out, repr(t.out[-300:]))


@check
def a_signal_in_the_middle_of_progress():
    with Terminal(LONG, columns=60) as t:
        t.wait(b" %")
        os.kill(t.p.pid, signal.SIGTERM)
        expect(t.end() == -signal.SIGTERM and Screen(60).feed(t.out.decode()).text() == "mote: interrupted", repr(t.out[-200:]))


# --------------------------------------------------------------------------------------------------------------------
def main():
    failed = passed = 0
    for name, f in CHECKS:
        if WORDS and not any(w in name for w in WORDS):
            continue
        start = time.time()
        try:
            f()
            passed += 1
            print(f"ok    {name} ({time.time() - start:.1f} s)", flush=True)
        except (Failed, Lost, AssertionError, subprocess.SubprocessError, OSError) as e:
            failed += 1
            print(f"FAIL  {name}: {type(e).__name__}: {e}", flush=True)
    shutil.rmtree(TMP, ignore_errors=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
