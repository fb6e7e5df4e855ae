"""A program on a pseudo-terminal, for checks: waits for output, never for time to pass."""
import errno
import fcntl
import os
import select
import signal
import struct
import subprocess
import termios
import time

LIMIT = 100          # seconds until a wait is given up; a loaded machine takes its time


class Lost(Exception):
    pass


class Terminal:
    def __init__(self, argv, columns=100, rows=40, env=None, stdout=None, term="xterm"):
        """stdout: a file object that takes standard output in the terminal's place."""
        self.master, slave = os.openpty()
        self.resize(columns, rows)

        def ours():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            for s in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGTSTP, signal.SIGTTOU, signal.SIGTTIN):
                signal.signal(s, signal.SIG_DFL)
        self.p = subprocess.Popen(argv, stdin=slave, stdout=stdout or slave, stderr=slave, preexec_fn=ours,
                                  env={**os.environ, "TERM": term, "MOTE_THREADS": "1", "LC_ALL": "C.UTF-8", **(env or {})})
        self.slave = slave                              # kept open, so that its modes can be asked for after the end
        self.out, self.seen = b"", 0

    def _read(self, seconds):
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            self.out += os.read(self.master, 65536)
        except OSError as e:
            if e.errno != errno.EIO:
                raise
            return False
        return True

    def wait(self, *words):
        """Until one of the words has come in what was not looked at before; that word."""
        end = time.time() + LIMIT
        while True:
            found = [(self.out.index(w, self.seen), w) for w in words if w in self.out[self.seen:]]
            if found:
                at, word = min(found)
                self.seen = at + len(word)
                return word
            if not self._read(0.2) and (time.time() > end or self.p.poll() is not None) and not self._read(0):
                raise Lost(f"waited for {words}, got {self.out[self.seen:][-600:]!r}, status {self.p.poll()}")

    def send(self, data):
        """All of it, and meanwhile read what is echoed: a terminal's buffers are small."""
        end = time.time() + LIMIT
        while data:
            r, w, _ = select.select([self.master], [self.master], [], 0.2)
            if r:
                self._read(0)
            if w:
                data = data[os.write(self.master, data[:512]):]
            if time.time() > end:
                raise Lost("the terminal takes no more input")

    def resize(self, columns, rows=40):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def modes(self):
        """(line by line, with echo, marking pastes)"""
        flags = termios.tcgetattr(self.slave)[3]
        return bool(flags & termios.ICANON), bool(flags & termios.ECHO), self.out.rfind(b"\033[?2004h") > self.out.rfind(b"\033[?2004l")

    def until(self, true, what):
        end = time.time() + LIMIT
        while not true():
            self._read(0.05)
            if time.time() > end:
                raise Lost(f"never: {what}; {self.out[-600:]!r}")

    def end(self):
        """Exit status (negative: the signal), with all output read."""
        self.until(lambda: self.p.poll() is not None, "the end of the program")
        while self._read(0):
            pass
        return self.p.returncode

    def close(self):
        if self.p.poll() is None:
            self.p.kill()
            self.p.wait()
        os.close(self.slave)
        os.close(self.master)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Screen:
    """What a terminal of `columns` shows of lines, wraps and the few controls that progress lines use."""
    def __init__(self, columns):
        self.columns, self.lines, self.y, self.x = columns, [""], 0, 0

    def feed(self, text):
        i = 0
        while i < len(text):
            c = text[i]
            i += 1
            if c == "\r":
                self.x = 0
            elif c == "\n":
                self._down()
            elif c == "\033":
                assert text[i] == "[", repr(text[i - 1:i + 10])
                j = i + 1
                while not "@" <= text[j] <= "~":
                    j += 1
                n, what = text[i + 1:j], text[j]
                i = j + 1
                if what == "K" and not n:
                    self._put(self.lines[self.y][:self.x])
                elif what == "J" and not n:
                    self._put(self.lines[self.y][:self.x])
                    del self.lines[self.y + 1:]
                elif what == "A":
                    self.y = max(0, self.y - int(n or 1))
                else:
                    raise AssertionError(f"unexpected control {n}{what}")
            elif c >= " ":
                if self.x == self.columns:
                    self.x = 0
                    self._down()
                line = self.lines[self.y].ljust(self.x)
                self._put(line[:self.x] + c + line[self.x + 1:])
                self.x += 1
        return self

    def _put(self, line):
        self.lines[self.y] = line

    def _down(self):
        self.y += 1
        if self.y == len(self.lines):
            self.lines.append("")

    def reflow(self, columns):
        """The terminal becomes narrower and breaks its lines anew, as most do; the cursor stays at its text."""
        lines, y = [], 0
        for k, line in enumerate(self.lines):
            parts = [line[i:i + columns] for i in range(0, max(len(line), 1), columns)]
            if k == self.y:
                at = min(self.x, len(line))
                y, self.x = len(lines) + max(at - 1, 0) // columns, at - max(at - 1, 0) // columns * columns
            lines += parts
        self.columns, self.lines, self.y = columns, lines, y

    def text(self):
        return "\n".join(line.rstrip() for line in self.lines).rstrip("\n")
