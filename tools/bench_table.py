#!/usr/bin/env python3
"""bench.json -> the table of docs/results/bench.md.   bench_table.py FILE"""
import json
import sys

o = json.load(open(sys.argv[1]))
num = lambda v: "" if v is None else f"{v:.3g}" if abs(v) < 1000 else f"{v:,.0f}"
limit = lambda l: (f"read {num(l['read_gb_s'])} GB/s, FP32 FMA {num(l['fp32_fma_gflop_s'])} GFLOP/s, BF16 dot {num(l['bf16_dot_gflop_s'])} "
                   f"GFLOP/s, int8 VNNI {num(l['int8_vnni_gop_s'])} GOP/s"
                   + (f", a loop that all threads join {num(l['empty_loop_us'])} us" if l["empty_loop_us"] else ""))
print(f"{o['threads']} threads, {o['kernels']} kernels; load average {num(o['load_average_before'])} before and "
      f"{num(o['load_average_after'])} after; {num(o['total_seconds'])} s, at most {o['peak_rss_bytes'] / 1e9:.2f} GB.\n")
for key, name in (("limits", "At the start"), ("limits_one_thread", "One thread"), ("limits_at_end", "At the end")):
    print(f"* {name}: {limit(o[key])}.")
print("\n| row | shape | value | limit | ratio | target | spread |\n|---|---|---|---|---|---|---|")
for r in o["rows"]:
    target = "" if r["target"] is None else f"{'at most' if r['lower_is_better'] else 'at least'} {num(r['target'])}{'' if r['met'] else ' (missed)'}"
    spread = "" if r["spread"] is None else f"{100 * r['spread']:.1f} %"
    print(f"| {r['name']} | {r['shape']} | {num(r['value'])} {r['unit']} | {num(r['limit'])} | {num(r['ratio'])} | {target} | {spread} |")
notes = {}
for r in o["rows"]:
    if r["note"]:
        notes.setdefault(r["note"], []).append(r["name"])
print("\nNotes of the rows:\n")
for note, names in notes.items():
    print(f"* {names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {note}")
