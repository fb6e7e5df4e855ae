#!/usr/bin/env python3
"""Chat prompts and encoding files, mote against Python.

    chat_talks.py BATCH SOURCE_ROOT [N [SEED]]      BATCH: the program of chat_batch.c; N random conversations (default 1500)
    chat_talks.py --write SOURCE_ROOT               writes tests/data/chat/cases.json anew from the reference

Checked: every case of cases.json (its prompts are written down, so that the reference cannot change them unseen), random conversations,
every power of two and many other numbers as JSON, and random encoding files against Python's own parser.
"""
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

WRITE = sys.argv[1] == "--write"
ROOT = os.path.abspath(sys.argv[2])
sys.path.insert(0, os.path.join(ROOT, "tests", "reference"))
import chat_reference as ref                                       # noqa: E402

DATA = os.path.join(ROOT, "tests", "data", "chat")
with open(os.path.join(DATA, "encoding.py"), encoding="utf-8") as f:
    WORDS = ref.wording(f.read())


# ---- the cases ---------------------------------------------------------------------------------------------------------
def U(t): return {"role": "user", "content": t}
def S(t): return {"role": "system", "content": t}
def T(i, t): return {"role": "tool", "tool_call_id": i, "content": t}
def A(t, r=None, c=None): return {k: v for k, v in dict(role="assistant", content=t, reasoning_content=r, tool_calls=c).items() if v is not None}
def call(i, name, **kw): return {"id": i, "type": "function", "function": {"name": name, "arguments": json.dumps(kw, ensure_ascii=False)}}


TOOLS = [{"type": "function", "function": {"name": "tide", "description": "潮の高さ", "parameters": {
            "type": "object", "properties": {"port": {"type": "string"}, "hours": {"type": "integer"}}, "required": ["port"]}}},
         {"type": "function", "function": {"name": "moon", "parameters": {"type": "object", "properties": {}}}}]
TALKS = {
    "one": [U("Good day")], "system": [S("Be kind."), U("Good day")], "system-empty": [S(""), U("Good day")],
    "turns": [S("Be kind."), U("One"), A("1", "r one"), U("Two"), A("2", "r two"), U("Three")],
    "two-users": [U("First"), U("second"), A("both"), U("x")],
    "array": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
    "system-middle": [S("Be kind."), U("One"), A("1", "r"), S("Now in verse."), U("Two")],
    "system-last": [U("One"), A("1", "r"), S("Go on.")],
    "assistant-last": [U("One"), A("1", "r")], "assistant-twice": [U("One"), A("1"), A("more"), U("Two")],
    "developer": [{"role": "developer", "content": "Rules."}, U("One"), A("1", "r"), U("Two")],
    "calls": [U("Tide?"), A("I look.", "think", [call("a", "tide", port="Bude", hours=2), call("b", "moon")]), T("b", "full"), T("a", "high"),
              A("High at full moon.", "r2"), U("Thanks")],
    "calls-then-user": [U("Tide?"), A(None, "think", [call("a", "tide", port="Bude \"x\" <y>", list=[1, 2.5, None, {"k": "ü"}], on=True)]), T("a", "high"),
                        U("And?")],
    "multiline": [S("a\n\nb"), U("c\nd\n"), A("\n e", "\n r\n"), U("中文 ｜DSML｜ <｜User｜> text")],
    "results-missing": [U("q"), A("", None, [call("a", "f", x=1), call("b", "g")]), T("b", "two"), A("so")],
    "results-only": [T("x", "r"), U("u"), {"role": "tool", "content": None}],
    "calls-last": [U("q"), A("now", "why", [call("a", "f", n=18446744073709551615, small=1e-05, big=1e16, one=1.0, nested={"k": [10 ** 30]})])],
    "unfinished": [U("q"), {"role": "assistant", "content": "I thi", "reasoning_content": "so", "unfinished": True}],
    "reminder": [U("q"), {"role": "latest_reminder", "content": "Soon."}, A("a", "b"), U("c")],
    "nul": [S("a\0b"), U("\0"), A("\0", None, [call("i", "f", **{"k\0\1": "v\0", "n": ["\0"]})])],
    "empty": [],
}


def cases():
    for name, messages in TALKS.items():
        for thinking in (False, True):
            for tools in (None, TOOLS):
                for effort in ((None, "low", 33) if thinking and not tools else (None,)):
                    yield dict(name=name, messages=messages, thinking=thinking, effort=effort, tools=tools)
    yield dict(name="format", messages=[U("x")], thinking=False, effort=None, tools=None, response_format={"type": "json_object"})
    yield dict(name="format-tools", messages=[S("s"), U("x")], thinking=True, effort="max", tools=TOOLS, response_format=[1, "é", 2.0])


def prompt_of(c):
    return ref.encode(c["messages"], c["thinking"], c["effort"], c["tools"], c.get("response_format"), WORDS)


if WRITE:
    with open(os.path.join(DATA, "cases.json"), "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps({**c, "tools": bool(c["tools"]), "prompt": prompt_of(c)}, ensure_ascii=False) for c in cases()) + "\n]\n")
    sys.exit()

N, SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 1500, int(sys.argv[4]) if len(sys.argv) > 4 else 1
R = random.Random(SEED)


# ---- the program under test ------------------------------------------------------------------------------------------
def batch(records):
    """records: (header, texts). Returns each answer's header fields and bytes."""
    folder = tempfile.mkdtemp(prefix="mote-chat-")
    try:
        os.mkdir(os.path.join(folder, "encoding"))
        shutil.copy(os.path.join(DATA, "encoding.py"), os.path.join(folder, "encoding"))
        with open(os.path.join(ROOT, "models", "nano", "tokenizer.json"), encoding="utf-8") as f:
            tokenizer = json.load(f)
        for i, t in enumerate(("<｜latest_reminder｜>", "｜DSML｜")):         # which nano lacks
            tokenizer["added_tokens"].append({"id": 4096 + i, "content": t, "single_word": False, "lstrip": False, "rstrip": False,
                                              "normalized": False, "special": bool(i)})
        with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as f:
            json.dump(tokenizer, f)
        p = subprocess.run([sys.argv[1], folder], input=b"".join(h + b"\n" + b"".join(texts) for h, texts in records), capture_output=True)
    finally:
        shutil.rmtree(folder)
    assert p.returncode == 0, (p.returncode, p.stderr[-2000:])
    at, answers = 0, []
    for _ in records:
        end = p.stdout.index(b"\n", at)
        fields = [int(x) for x in p.stdout[at:end].split()]
        sizes = fields[1:2] if len(fields) == 3 else fields[1:]
        at, parts = end + 1, []
        for n in sizes:
            parts.append(p.stdout[at:at + max(n, 0)] if n >= 0 else None)
            at += max(n, 0)
        answers.append((fields, parts))
    assert at == len(p.stdout)
    return answers


def record(messages, thinking, effort, tools, response_format, spell=json.dumps):
    texts = [None if v is None else spell(v).encode() for v in (messages, tools, response_format)]
    n = {None: 0, "low": 50, "high": 75, "max": 100}.get(effort, effort)
    return (b"P %d %d %s" % (thinking, n, b" ".join(b"%d" % (-1 if t is None else len(t)) for t in texts)), [t for t in texts if t])


def fail(what, want, got, given):
    sys.exit(f"{what} (seed {SEED})\n given {given!r}\n want  {want!r}\n got   {got!r}")


def check_prompts(what, talks, wants, spell=json.dumps, harmless=False):
    for t, want, (fields, (text,)) in zip(talks, wants, batch([record(*t, spell=spell) for t in talks])):
        if fields[0] or text != want.encode():
            fail(what, want, text.decode(), t)
        if harmless and not fields[2]:
            fail(what + ": tokens of the messages and of the text differ", want, "", t)


with open(os.path.join(DATA, "cases.json"), encoding="utf-8") as f:
    CASES = json.load(f)
given = [(c["messages"], c["thinking"], c["effort"], TOOLS if c["tools"] else None, c.get("response_format")) for c in CASES]
check_prompts("cases.json", given, [c["prompt"] for c in CASES])
for c, want in zip(CASES, cases()):
    if prompt_of(want) != c["prompt"]:
        fail("the reference", c["prompt"], prompt_of(want), want)
for wild in (False, True):
    talks = [ref.talk(R, wild) for _ in range(N // 2)]
    check_prompts("random talk", talks, [ref.encode(*t, WORDS) for t in talks], lambda v: ref.rdumps(R, v), not wild)
numbers = [s * 2.0 ** k for k in range(-1074, 1024) for s in (1, -1)] + [ref.rnumber(R) for _ in range(20 * N)]
numbers += [10.0 ** k for k in range(-323, 309)] + [float(str(R.randrange(1, 999)) + "e" + str(k)) for k in range(-320, 300)]
check_prompts("numbers", [([], False, None, None, numbers)], [ref.encode([], False, None, None, numbers, WORDS)])
# spellings of JSON that Python does not write itself: exponents, escapes, equal keys, numbers beyond the doubles
odd = '{"a": [1E5, 1e+2, 1.50, -0, -0.0, 0e0, 1e-400, -1e-400, 1e400, -1E+999, 123456789012345678, 1234567890123456789, -1000000000000000000,'\
      ' 100000000000000000000000e0, 0.1e-6, %s], "\\u0061": 2, "b": {"x": 1, "y": 2, "x": 3}, "\\ud83d\\ude00\\/": "\\u00e9", "\\u0000\\u0001\\\\u0000": 1}' % ("9" * 700)
loaded = json.loads(odd)
check_prompts("spellings", [([U("x")], False, None, None, odd)], [ref.encode([U("x")], False, None, None, loaded, WORDS)], lambda v: v if isinstance(v, str) else json.dumps(v))


# ---- encoding files --------------------------------------------------------------------------------------------------
def rliteral(r):
    prefix = r.choice(("", "", "", "r", "R", "u", "U"))
    q = r.choice(('"', "'", '"""', "'''"))
    parts = ["a", "B c", "{{x}}", "é", "中", "#no", "\\n", "\\\\", "\\\"", "\\'", "\\x41", "\\u00e9", "\\U0001F600", "\\101", "\\0", "\\7z", "\\q", "\\\n",
             "(", "]", "\t", "=", "; TOOLS_TEMPLATE = "] + (["\n", "'", '"', "''"] if len(q) == 3 else [])
    s = "".join(r.choice(parts) for _ in range(r.randrange(6)))
    if s.endswith(q[0]):
        s += " "
    return prefix + q + s.replace(q, " ") + q


def rexpression(r):
    k = r.random()
    strings = [rliteral(r) for _ in range(r.choice((1, 1, 2, 3)))]
    if k < .5:
        return r.choice((" ", "", " \\\n ")).join(strings)
    if k < .9:
        return "(" + r.choice((" ", "\n    ", "  # ' a note\n", "\r\n")).join([""] + strings) + r.choice(("", "\n")) + ")" if k < .8 else "((" + "\n".join(strings) + "))"
    return r.choice(('f"x{1}"', 'b"x"', '"a" + "b"', '"a".strip()', '("a",)', "5", "None", "x", '"a" if x else "b"', '"\\N{BULLET}"', '["a"]', "()", 'rb"x"',
                     '"""{unknown}"""', '"{"', '"}"', '"{budget"', "str()"))


def rstatement(r):
    name = r.choice(ref.NAMES)
    return r.choice((
        lambda: f"{name} = {rexpression(r)}", lambda: f"{name} = {rexpression(r)}", lambda: f"{name}: str = {rexpression(r)}",
        lambda: f"{name} : Dict[str, Tuple[int, 'x=1']] = {rexpression(r)}", lambda: f"{name}: str", lambda: f"x = 1; {name} = {rexpression(r)}; y = 2",
        lambda: f"def f(a={rliteral(r)}):\n    {name} = {rliteral(r)}\n    return [{name}]", lambda: f"if x: {name} = {rliteral(r)}; y = 3",
        lambda: f"class C:\n    {name} = {rliteral(r)}\n    # {name} = \"x\"", lambda: rliteral(r), lambda: f"# {name} = 'note'\n", lambda: f"x = {{'{name}': [1, (2, \"]\")]}}",
        lambda: f"f({name}={rliteral(r)},\n{name}2=3)", lambda: f"other_{name} = {rliteral(r)}", lambda: f"{name}s = 3", lambda: f"x = f'{{y}}' == {name}",
        lambda: f"print({name})", lambda: "import os\nfrom typing import Dict", lambda: f"{name} = other = {rexpression(r)}", lambda: f"with f(x) as y:\n\t{name} = 3",
        lambda: "@decorator\nasync def g(): pass", lambda: "x = 0x1F + 1e-5 - 1_000.5j if a <= b else lambda q: q", lambda: "\f", lambda: f"{name} == 'x'"))()


def rfile(r):
    """Its text, and whether it was damaged."""
    text = r.choice(("\n", "\n", "\r\n", "\r")).join(rstatement(r) for _ in range(r.randrange(1, 9))) + r.choice(("", "\n"))
    if r.random() < .8 or not text:
        return text, False
    i = r.randrange(len(text))
    return text[:i] + r.choice(("", "'", '"', "\\", "(", ")", "\n", "#", " ", "=")) + text[i + r.randrange(2):], True


def python_says(text):
    """The constants, "no" if Python or the reader's rules refuse the file."""
    import warnings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = ref.wording(text)
            [v.encode() for v in found.values()]
        except (SyntaxError, ValueError, UnicodeError):
            return "no"
    slots = {"TOOLS_TEMPLATE": dict.fromkeys([*ref.SLOTS, "tool_schemas"], ""), "response_format_template": {"schema": ""}, "REASONING_EFFORT_TEMPLATE": {"budget": ""}}
    try:
        [v.format(**slots[k]) for k, v in found.items()]
    except (KeyError, ValueError, IndexError):
        return "no"
    return found


files = [rfile(R) for _ in range(4 * N)]
n_same = n_refused = 0
for (text, damaged), (fields, values) in zip(files, batch([(b"E %d" % len(t.encode()), [t.encode()]) for t, _ in files])):
    says = python_says(text)
    got = {k: v.decode() for k, v in zip(ref.NAMES, values) if v is not None} if not fields[0] else "no"
    if says != got and got != "no" and says != "no":
        fail("an encoding file", says, got, text)
    # what Python takes may be refused for \N{...}, or (if damage made it so) for a name that is set in passing; what Python refuses for
    # its syntax elsewhere may be taken
    if got == "no" and says != "no" and "\\N" not in text and not (damaged and (b"is assigned" in values[0] or b"is not a plain" in values[0])):
        fail("an encoding file is refused: " + values[0].decode(), says, got, text)
    n_same += got != "no" and says == got and bool(says)
    n_refused += got == "no"
print(f"{len(CASES)} cases, {N} talks, {len(numbers)} numbers, {len(files)} encoding files: {n_same} read alike, {n_refused} refused")
if n_same < N // 2 or n_refused < N // 4:
    sys.exit("the encoding files are not of both kinds")
