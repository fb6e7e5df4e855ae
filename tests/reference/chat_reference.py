"""The chat format of DeepSeek-V4.1 as a program of its own, written from the rules of docs/chat-format.md: what the C code is compared with.

    encode(messages, thinking, effort, tools, response_format, words) -> prompt text
    wording(path) -> words: the named constants of an encoding file, by Python's own parser
    talks(rng) -> a random conversation with its options
"""
import ast
import json
import random
import struct

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
HEAD = {"user": "<｜User｜>", "assistant": "<｜Assistant｜>", "system": "<｜System｜>", "latest_reminder": "<｜latest_reminder｜>"}
D = "｜DSML｜"
NAMES = ("TOOLS_TEMPLATE", "response_format_template", "REASONING_EFFORT_TEMPLATE")
SLOTS = {"dsml_token": D, "tc_block_name": " calls", "tool_call_tag_name": " invoke", "tool_parameter_tag_name": " parameter",
         "thinking_start_token": "<think>", "thinking_end_token": "</think>"}


def wording(text):
    """{name: str} of the top level's assignments; raises where a value is no constant."""
    found = {}
    for s in ast.parse(text).body:
        name = None
        if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name):
            name = s.targets[0].id
        elif isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name) and s.value is not None:
            name = s.target.id
        if name in NAMES:
            found[name] = ast.literal_eval(s.value)
            if not isinstance(found[name], str):
                raise ValueError(name)
    return found


def dumps(value):
    return json.dumps(value, ensure_ascii=False)


def text_of(content):
    return content or ""


def turns(messages):
    """Messages with neighbouring user messages and results joined: [role, message, blocks]; a block is (is_result, order, text)."""
    out, order = [], {}
    for m in messages:
        role = m["role"]
        if role == "assistant" and m.get("tool_calls"):
            order = {c["id"]: i for i, c in enumerate(m["tool_calls"])}
        if role == "tool":
            blocks = [(True, order.get(m.get("tool_call_id", ""), 0), text_of(m.get("content")))]
        elif role == "user":
            c = text_of(m.get("content"))
            blocks = [(False, 0, part["text"]) for part in c] if isinstance(c, list) else [(False, 0, c)]
        else:
            out.append([role, m, None])
            continue
        if out and out[-1][0] == "user":
            out[-1][2].extend(blocks)
        else:
            out.append(["user", None, blocks])
    for turn in out:
        if turn[0] == "user":
            results = iter(sorted((b for b in turn[2] if b[0]), key=lambda b: b[1]))
            turn[2] = [next(results) if b[0] else b for b in turn[2]]
    return out


def asks(turn, i):
    return turn[0] in ("user", "developer") or (turn[0] == "system" and i > 0)


def last_asking(ts):
    return max((i for i, t in enumerate(ts) if asks(t, i)), default=-1)


def calls_text(calls):
    lines = [f"\n\n<{D} calls>"]
    for c in calls:
        lines.append(f'<{D} invoke name="{c["function"]["name"]}">')
        arguments = c["function"].get("arguments")
        if isinstance(arguments, str):
            arguments = json.loads(arguments) if arguments.strip(" \t\r\n") else None
        parameters = []
        for key, v in (arguments or {}).items():
            is_text = isinstance(v, str)
            parameters.append(f'<{D} parameter name="{key}" string="{"true" if is_text else "false"}">{v if is_text else dumps(v)}</{D} parameter>')
        lines.append("\n".join(parameters))
        lines.append(f"</{D} invoke>")
    lines.append(f"</{D} calls>")
    return "\n".join(lines)


def encode(messages, thinking, effort, tools, response_format, words):
    ts = turns(messages)
    if tools or response_format:
        if not ts or ts[0][0] != "system":
            ts.insert(0, ["system", {"content": ""}, None])
        ts[0][1] = {**ts[0][1], "tools": tools, "response format": response_format}
    keep = any(m and m.get("tools") for _, m, _ in ts)
    if thinking and not keep:
        last = last_asking(ts)
        ts = [t for i, t in enumerate(ts) if t[0] != "developer" or i >= last]
    last = last_asking(ts)
    p = BOS
    for i, (role, m, blocks) in enumerate(ts):
        head = words["REASONING_EFFORT_TEMPLATE"].format(budget={None: 75, "low": 50, "high": 75, "max": 100}.get(effort, effort)) if thinking and i == 0 else ""
        p += HEAD["system"] if head or role == "system" else ""
        p += head
        if role == "user":
            p += HEAD["user"] + "\n\n".join(f"<tool_result>{t}</tool_result>" if is_result else t for is_result, _, t in blocks)
        elif role == "latest_reminder":
            p += HEAD[role] + m["content"]
        elif role == "assistant":
            if thinking and (keep or i > last):
                p += (m.get("reasoning_content") or "") + "</think>"
            p += text_of(m.get("content"))
            if m.get("tool_calls"):
                p += calls_text(m["tool_calls"])
            p += "" if m.get("unfinished") else EOS
        else:
            p += (HEAD["user"] if role == "developer" else "") + text_of(m.get("content"))
            if m.get("tools"):
                p += "\n\n" + words["TOOLS_TEMPLATE"].format(tool_schemas="\n".join(dumps(t["function"]) for t in m["tools"]), **SLOTS)
            if m.get("response format"):
                p += "\n\n" + words["response_format_template"].format(schema=dumps(m["response format"]))
        answered = i + 1 == len(ts) or ts[i + 1][0] in ("assistant", "latest_reminder")
        if answered and asks(ts[i], i):
            p += HEAD["assistant"] + ("<think>" if thinking and (keep or i >= last) else "</think>")
    return p


# ---- random conversations --------------------------------------------------------------------------------------------

PIECES = ["a", "the ", "\n", "\n\n", " ", "it's", "123", "é", "中文", "😀", "\t", "\"", "\\", "{x}", "{{", "}", "<b>", "</", "tool_result>",
          "\x7f", "\u2028", "\u00a0", "'", "\r\n", ">", "e\u0301", "\uffff", "/", "&", "--"]
TOKENS = list(HEAD.values()) + [BOS, EOS, "<think>", "</think>", D, f"<{D} calls>", "<tool_result>"]


def rtext(r, wild):
    s = "".join(r.choice(PIECES) for _ in range(r.choice((0, 1, 1, 3, 8))))
    if wild and r.random() < .15:
        s += r.choice(TOKENS + ["\x00", "\x01", "\x1f", "\x08\x0c"]) + r.choice(PIECES)
    return s


def rnumber(r):
    k = r.randrange(9)
    if k < 2:
        return r.randrange(-10, 1000)
    if k == 2:
        return r.choice((1, -1)) * (2 ** r.choice((31, 53, 62, 63, 64, 65, 128, 1000)) + r.randrange(-2, 3))
    if k == 3:
        return r.choice((1, -1)) * 10 ** r.randrange(0, 40) + r.randrange(-1, 2)
    if k == 4:
        return r.choice((0.0, -0.0, 1.0, 1e16, 1e15, 123456789012345680.0, 1e-4, 1e-5, 5e-324, 1.7976931348623157e308, 1e22, 1e23, 0.1, 2.5))
    if k == 5:
        return 2.0 ** r.randrange(-1074, 1024)
    if k == 6:
        return r.randrange(1, 10 ** r.randrange(1, 18)) * 10.0 ** r.randrange(-30, 30)
    while True:
        v, = struct.unpack("<d", r.randbytes(8))
        if v == v and abs(v) != float("inf"):
            return v


def rvalue(r, wild, depth=0):
    k = r.randrange(6 if depth < 3 else 4)
    if k == 0:
        return r.choice((True, False, None))
    if k == 1:
        return rnumber(r)
    if k < 4:
        return rtext(r, wild)
    if k == 4:
        return [rvalue(r, wild, depth + 1) for _ in range(r.randrange(4))]
    return robject(r, wild, depth + 1)


def robject(r, wild, depth=0):
    return {rtext(r, wild): rvalue(r, wild, depth) for _ in range(r.randrange(4))}


def rdumps(r, v):
    """JSON text of v in one of its many spellings."""
    return json.dumps(v, ensure_ascii=r.random() < .5, indent=r.choice((None, None, 1)), separators=r.choice((None, (",", ":"))))


def rmessage(r, wild, ids):
    role = r.choice(("user", "user", "assistant", "assistant", "tool", "system", "developer", "latest_reminder"))
    m = {"role": role}
    content = r.choice((rtext(r, wild), rtext(r, wild), rtext(r, wild), None, "absent"))
    if role == "user" and r.random() < .2:
        content = [{**({"type": "text"} if r.random() < .7 else {}), "text": rtext(r, wild)} for _ in range(r.randrange(4))]
    if role == "latest_reminder" and not isinstance(content, str):
        content = ""
    if content != "absent":
        m["content"] = content
    elif role == "latest_reminder":
        m["content"] = "absent"
    if role == "tool" and r.random() < .9:
        m["tool_call_id"] = r.choice(ids + ["", None, "?"])
    if role == "assistant":
        if r.random() < .6:
            m["reasoning_content"] = r.choice((rtext(r, wild), None, ""))
        if r.random() < .4:
            m["tool_calls"] = []
            for _ in range(r.randrange(4)):
                f = {"name": rtext(r, wild) if r.random() < .3 else "f" + str(r.randrange(9))}
                if r.random() < .9:
                    f["arguments"] = r.choice((robject(r, wild), rdumps(r, robject(r, wild)), None, "null", "", " "))
                m["tool_calls"].append({"id": r.choice(ids), **({"type": "function"} if r.random() < .5 else {}), "function": f})
        if r.random() < .1:
            m["unfinished"] = r.choice((True, False, 1, "x", None, [], {}))
    if r.random() < .05:
        m["extra"] = rnumber(r)
    if role not in ("user", "tool") and r.random() < .03:
        m["tools"] = rtools(r, wild)
    return m


def rtools(r, wild):
    return [{**({"type": "function"} if r.random() < .7 else {}), "function": {"name": "t" + str(i), **robject(r, wild)}} for i in range(r.randrange(4))]


def talk(r, wild):
    """(messages, thinking, effort, tools, response_format); wild: text that looks like tokens, control characters."""
    ids = ["a", "b", "c", "call_1", "é"]
    return ([rmessage(r, wild, ids) for _ in range(r.choice((0, 1, 1, 2, 3, 4, 6, 9)))], r.random() < .6, r.choice((None, "low", "high", "max", 1, 33, 100)),
            rtools(r, wild) if r.random() < .4 else None, rvalue(r, wild) if r.random() < .3 else None)
