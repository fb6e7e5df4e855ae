#!/usr/bin/env python3
"""docs/results/lab.md from the JSON that tools/lab_results.sh gathered.   lab_page.py FOLDER MODEL > lab.md

Everything on the page is computed from those files, findings included: a sentence claims an effect only beyond three standard errors.
Needs nothing but Python's library.
"""
import glob
import json
import math
import os
import sys

work, model = sys.argv[1], sys.argv[2]


def load(name):
    path = os.path.join(work, name + ".json")
    return json.load(open(path, encoding="utf-8")) if os.path.exists(path) else None


def command(name):
    path = os.path.join(work, name + ".command")
    return "    " + open(path, encoding="utf-8").read().strip() + "\n" if os.path.exists(path) else ""


def table(headings, rows):
    print("| " + " | ".join(headings) + " |")
    print("|" + "---|" * len(headings))
    for r in rows:
        print("| " + " | ".join("-" if c is None else str(c) for c in r) + " |")
    print()


def fixed(v, digits):
    return None if v is None else f"{v:.{digits}f}"


def signed(v, digits=5):
    return None if v is None else f"{v:+.{digits}f}"


def percent(v):
    return None if v is None else f"{100 * v:.1f}"


def real(mean, error):
    return mean is not None and error is not None and abs(mean) > 3 * error


def say(text):
    print("* " + text)


formats, needle, blame, cuts = load("formats"), load("needle"), load("blame"), load("cuts")
errors, tune, retrieval, ladder = load("kv_error"), load("tune"), load("retrieval"), load("ladder")
formats_long, needle_long = load("formats_long"), load("needle_long")
if formats_long:
    formats["rows"] += formats_long["rows"]
if needle and needle_long:
    needle["needle"]["rows"] += needle_long["needle"]["rows"]

print(f"""# The lab: what each byte of KV costs in quality, on {os.path.basename(os.path.normpath(model))}

Made by `tools/lab_results.sh`; every figure and sentence below is computed from what it measured. Text: `{formats['text']}`; `--math {formats['math']}`.
Losses are means per predicted token in nat; KL is taken against a cache in which nothing is rounded (`main=f32,index=f32,window=f32`), on the same
tokens. +- is one standard error; an effect is claimed beyond three.
""")

print("## Format x context\n\n" + "".join(map(command, ("formats", "formats_long", "needle", "needle_long"))))
asked = {(r["kv"], r["ctx"]): r for r in needle["needle"]["rows"]} if needle else {}
rows = []
for r in formats["rows"]:
    n = asked.get((r["kv"], r["ctx"]), {})
    rows.append((f"`{r['kv']}`", r["ctx"], f"{r['kv_bytes_per_token']:g}", r["tokens"], fixed(r["perplexity"], 3), fixed(r["kl"], 5), fixed(r["kl_se"], 5),
                 fixed(100 * r["top1_agreement"], 2), percent(n.get("recall")), percent(n.get("choice")), signed(n.get("logp_minus_base"), 3),
                 fixed(n.get("logp_minus_base_se"), 3)))
table(["kv", "context", "bytes a token", "tokens", "perplexity", "KL", "+-", "same top-1 %", "recall %", "choice %", "ln p(answer) to exact", "+-"], rows)
if needle:
    rows = [r for r in needle["needle"]["rows"] if r["logp_minus_base"] == 0 and "f32" in r["kv"]]
    print("Recall of the unrounded cache: " + "; ".join(f"{r['ctx']} tokens: recall {percent(r['recall'])} %, choice {percent(r['choice'])} %, margin "
                                                      f"{r['margin']:+.2f} +- {r['margin_se']:.2f}, {r['asked']} facts" for r in rows) + ".")
    print("`recall`: every token of the answer is the likeliest; `choice`: the answer is likelier than those of the other facts of its kind in the context.\n")

print("## What each knob does\n")
by = {(r["kv"], r["ctx"]): r for r in formats["rows"]}


def compare(kv, other, words):
    both = [r["ctx"] for r in formats["rows"] if r["kv"] == kv and (other, r["ctx"]) in by]
    if not both:
        return
    r, o = by[(kv, max(both))], by[(other, max(both))]
    a, b = r["kl"], o["kl"]
    error = math.hypot(r["kl_se"], o["kl_se"])      # not paired: an upper bound of the error, since both were read on the same tokens
    saved = o["kv_bytes_per_token"] - r["kv_bytes_per_token"]
    bytes_text = f"{abs(saved):g} bytes a token {'less' if saved > 0 else 'more'}" if saved else "the same bytes a token"
    verdict = ("no difference that can be told" if abs(a - b) <= 3 * error else "more divergence" if a > b else "less divergence")
    say(f"**{words}** ({bytes_text}): at {max(both):,} tokens KL {a:.5f} instead of {b:.5f}, {verdict} (+- {error:.5f}).")


compare("fp8", "fp4", "Main KV in fp8 instead of fp4")
compare("bf16", "fp4", "Main KV in bf16 instead of fp4")
compare("mxfp4", "fp4", "Power-of-two scales by 32 (mxfp4) instead of E4M3 scales by 16")
compare("fp4-32", "fp4", "Groups of 32 instead of 16")
compare("fp4-64", "fp4", "Groups of 64 instead of 16")
compare("fp4-128", "fp4", "Groups of 128 instead of 16")
compare("index=fp8", "fp4", "Indexer keys in fp8 instead of mxfp4")
compare("index=fp4-64", "fp4", "Indexer keys in fp4 by 64 instead of mxfp4")
compare("window=bf16", "fp4", "Windows in bf16 instead of fp8")
compare("window=fp4-32", "fp4", "Windows in fp4 by 32 instead of fp8")
compare("main=fp4-64,index=fp4-64", "fp4", "Everything that grows in fp4 by 64")
for b in (blame or {}).get("blame", []):
    for c in b["loss"]["causes"]:
        if c["cause"] in ("top-k", "candidates", "prefill", "replay"):
            found = {"costs": "it costs", "helps": "it helps", "within the noise": "no effect on the loss that can be told"}.get(c["judgement"], c["judgement"])
            say(f"**{c['cause']}** ({c['full_is']} instead of {c['exact_is']}): loss {c['alone']:+.5f} +- {c['alone_se']:.5f} alone, {c['last']:+.5f} +- "
                f"{c['last_se']:.5f} with the others: {found}.")
for cut in (cuts or {}).get("cuts", []):
    for w in cut["ways"]:
        if w["way"] != "hit, exact replay":
            say(f"**{w['way']}**, cut at {cut['cut']}: loss {w['minus_cold']:+.5f} +- {w['minus_cold_se']:.5f} against a cold reading"
                + (": a cost." if w["beyond_noise"] and w["minus_cold"] > 0 else ": no cost that can be told."))
        else:
            say(f"**exact replay**, cut at {cut['cut']}: loss {w['minus_cold']:+.5f}: " + ("the cold run itself." if w["minus_cold"] == 0 else "NOT the cold run."))
print()

if blame:
    print("## Blame\n\n" + command("blame"))
    for b in blame["blame"]:
        table(["cause", "exact", "full", "alone", "+-", "with the others", "+-", "judged"],
              [(c["cause"], f"`{c['exact_is']}`", f"`{c['full_is']}`", signed(c["alone"]), fixed(c["alone_se"], 5), signed(c["last"]), fixed(c["last_se"], 5),
                c["judgement"]) for c in b["loss"]["causes"]])
        for line in b["loss"]["verdict"] + [b["kl_verdict"]]:
            say(line)
        print()

if errors:
    print("## The stored KV itself\n\n" + command("kv_error"))
    rows = errors["kv_error"][0]["rows"]
    table(["layer", "part", "format", "rounded once %", "as stored %"],
          [(r["layer"], r["part"], r["format"], fixed(100 * r["rounding"], 2), fixed(100 * r["error"], 2)) for r in rows])
    print("\"As stored\" holds the errors of all layers before; its distance to \"rounded once\" is what depth adds.\n")

for name, t, words in (("tune", tune, "generation"), ("retrieval", retrieval, "retrieval")):
    if not t:
        continue
    print(f"## Tuned for {words}\n\n" + command(name))
    print(f"{t['bytes_per_token']:g} bytes a token of a budget of {t['budget']:g}: `{t['kv']}`. {t['judgement'][0].upper() + t['judgement'][1:]}.\n")
    checked = t.get("heldout") or t["verified"]
    table(["on text that had no part in the choice", "bytes a token", "perplexity", "loss to exact", "+-", "KL", "+-"],
          [(r["name"], f"{r['bytes_per_token']:g}", fixed(r["perplexity"], 3), signed(r["loss_minus_exact"]), fixed(r["loss_minus_exact_se"], 5), fixed(r["kl"], 5),
            fixed(r["kl_se"], 5)) for r in checked])
    chosen, default = checked[1], checked[2]
    d, e = chosen["kl"] - default["kl"], math.hypot(chosen["kl_se"], default["kl_se"])
    say(f"Against the default formats ({default['bytes_per_token']:g} bytes) the KL changes by {d:+.5f} +- {e:.5f}: "
        + ("worth it." if d < -3 * e else "worse." if d > 3 * e else "tuning gained nothing that can be told on this model.") + "\n")

if ladder:
    print("## The ladder\n\n" + command("ladder"))
    table(["context", "prefill tokens/s", "decode tokens/s", "KV", "perplexity of the end", "loss to exact", "+-", "held"],
          [(s["ctx"], fixed(s.get("prefill_tokens_per_s"), 0), fixed(s.get("decode_tokens_per_s"), 0),
            f"{sum(v for k, v in s['memory'].items() if k.startswith('kv_')) / 1048576:.2f} MiB" if "memory" in s else None, fixed(s.get("perplexity"), 3),
            signed(s.get("loss_minus_base")), fixed(s.get("loss_minus_base_se"), 5), "yes" if s["ok"] else "no") for s in ladder["steps"]])
    print((f"Stopped at {ladder['stopped']['ctx']} tokens ({ladder['stopped']['reason']}): {ladder['stopped']['diagnosis']}." if ladder["stopped"] else "Every step held.")
          + " Speeds are of the machine and its load at the time; docs/results/bench.md has those that count.\n")

EXACT = {"dense": "bf16", "csa2": "main=bf16,index=bf16,window=bf16"}


def lossy(t, kv):
    return next((r for r in t["rows"] if r["kv"] == kv), None)


def against(a, b):
    """Two rows of different models, the same tokens but not paired: the difference of their losses in words."""
    d, e = a["loss"] - b["loss"], math.hypot(a["loss_se"], b["loss_se"])
    return f"{d:+.4f} nat +- {e:.4f} at most, perplexity {a['perplexity']:.2f} instead of {b['perplexity']:.2f}: " + (
        "within the noise" if abs(d) <= 3 * e else "worse" if d > 0 else "better")


def twin_findings(t):
    ref = {n: lossy(x, EXACT["csa2" if n.startswith("csa2") else "dense"]) for n, x in t.items()}
    if "mha" in t and "gqa" in t:
        say(f"**Half of the KV heads** (gqa instead of mha, {ref['gqa']['kv_bytes_per_token']:g} instead of {ref['mha']['kv_bytes_per_token']:g} bytes a token "
            f"in bf16): {against(ref['gqa'], ref['mha'])}.")
    if "mha" in t and "csa2" in t:
        say(f"**CSA2 and what comes with it** (csa2 instead of mha, {ref['csa2']['kv_bytes_per_token']:g} instead of {ref['mha']['kv_bytes_per_token']:g} bytes a "
            f"token in bf16, {lossy(t['csa2'], 'fp4')['kv_bytes_per_token']:g} in fp4): {against(ref['csa2'], ref['mha'])}. It is not attention alone: the csa2 "
            "twins have experts, Engram, four residual copies and an untied output matrix besides.")
    if "csa2" in t and "csa2-r4" in t:
        a, b = lossy(t["csa2-r4"], "fp4"), lossy(t["csa2"], "fp4")
        say(f"**Ratio 4 instead of 2 in the encoder** ({a['kv_bytes_per_token']:g} instead of {b['kv_bytes_per_token']:g} bytes a token in fp4): {against(a, b)}.")
    for n, x in t.items():
        r, four = ref[n], lossy(x, "fp4")
        say(f"**fp4 instead of bf16 everywhere, {n}** ({four['kv_bytes_per_token']:g} instead of {r['kv_bytes_per_token']:g} bytes a token): KL to the unrounded cache "
            f"{four['kl']:.5f} +- {four['kl_se']:.5f} instead of {r['kl']:.5f}, loss {four['loss'] - r['loss']:+.5f} nat on the same tokens.")
    for n, x in t.items():
        four, finer = lossy(x, "fp4"), lossy(x, "bf16" if n.startswith("csa2") else "key=fp8,value=fp4")
        words = "main KV alone in fp4, indexer mxfp4 and windows fp8 in both" if n.startswith("csa2") else "keys in fp4 instead of fp8, values fp4"
        say(f"**{n}, {words}**: KL {four['kl'] - finer['kl']:+.5f} +- {math.hypot(four['kl_se'], finer['kl_se']):.5f} at most, for {finer['kv_bytes_per_token'] - four['kv_bytes_per_token']:g} "
            "bytes a token less.")
    if "csa2" in t and "csa2-plain" in t:
        a, b = lossy(t["csa2"], "fp4"), lossy(t["csa2-plain"], "fp4")
        e = math.hypot(a["kl_se"], b["kl_se"])
        say(f"**Cache formats in training** (csa2, with them, against csa2-plain, without): in fp4 {against(a, b)}; KL to its own unrounded cache {a['kl']:.5f} against "
            f"{b['kl']:.5f}, " + ("no difference that can be told" if abs(a["kl"] - b["kl"]) <= 3 * e else "less" if a["kl"] < b["kl"] else "more") + f" (+- {e:.5f}).")


twins = {os.path.basename(p)[5:-5]: json.load(open(p, encoding="utf-8"))
         for p in sorted(glob.glob(os.path.join(work, "twin-*.json")), key=lambda p: ("csa2" in p, p))}
print("## Twins: structure x quantisation\n")
if twins:
    print("Small models trained on the same text in the same order with the same optimiser (`train/README.md`): mha and gqa are Llama-style, the csa2 ones are of the published\n"
          "architecture. KL is against the model's own unrounded cache. Losses of two models on the same tokens are compared as if the tokens were others, so their +- is an\n"
          "upper bound.\n")
    table(["structure", "kv", "context", "tokens", "bytes a token", "perplexity", "loss", "+-", "KL", "+-"],
          [(n, f"`{r['kv']}`", r["ctx"], r["tokens"], f"{r['kv_bytes_per_token']:g}", fixed(r["perplexity"], 3), fixed(r["loss"], 5), fixed(r["loss_se"], 5),
            fixed(r["kl"], 5), fixed(r["kl_se"], 5)) for n, t in twins.items() for r in t["rows"]])
    twin_findings(twins)
else:
    print("No twins were there (`models/twins`, or the folder given as the third argument): run the script again when they are.\n")
