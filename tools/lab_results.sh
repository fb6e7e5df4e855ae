#!/bin/sh
# docs/results/lab.md, made anew from measurements: about 20 minutes for the bundled model on two quiet cores, a third of it for 64K.
#   tools/lab_results.sh [MOTE] [MODEL] [TWINS]
# TWINS: a folder of checkpoints to compare (default models/twins; left out where it does not exist). Sizes can be set:
#   LAB_CTX (formats), LAB_WINDOWS, LAB_NEEDLE_CTX, LAB_SAMPLES, LAB_LONG_CTX (one window, few formats; empty: left out), LAB_LONG_KV,
#   LAB_LONG_NEEDLE_KV, LAB_BLAME_CTX, LAB_CUT, LAB_CUT_CTX, LAB_LADDER, LAB_TUNE_CTX, LAB_BUDGET, LAB_TWINS_CTX, LAB_TWINS_WINDOWS,
#   LAB_TEXT, LAB_OUT (the page), LAB_WORK (JSON and reports; what is there is not measured again)
set -eu
cd "$(dirname "$0")/.."
mote=${1:-build/src/cli/mote}
model=${2:-models/nano}
twins=${3:-models/twins}
text=${LAB_TEXT:-$model/heldout.txt}
work=${LAB_WORK:-build/lab}
out=${LAB_OUT:-docs/results/lab.md}
exact=main=f32,index=f32,window=f32
mkdir -p "$work"

# run NAME ARGUMENTS...: the command's JSON in $work/NAME.json, its report beside it
run() {
    name=$1; shift
    [ -s "$work/$name.json" ] && return 0
    echo "-- $name: mote $*" >&2
    printf 'mote %s\n' "$*" > "$work/$name.command"
    "$mote" "$@" --json --html "$work/$name.html" --svg "$work/$name.svg" > "$work/$name.tmp"
    mv "$work/$name.tmp" "$work/$name.json"
}
formats='fp4;mxfp4;fp4-32;fp4-64;fp4-128;fp8;bf16'
parts='index=fp8;index=fp4-64;window=bf16;window=fp4-32;main=fp4-64,index=fp4-64'
run formats eval "$model" --text "$text" --ctx "${LAB_CTX:-1K,4K,16K}" --windows "${LAB_WINDOWS:-1}" --kv "$formats;$parts" --base "$exact"
run needle eval "$model" --text "$text" --no-loss --needle --ctx "${LAB_NEEDLE_CTX:-1K,4K,16K}" --samples "${LAB_SAMPLES:-2}" --kv "$formats" --base "$exact"
long=${LAB_LONG_CTX-64K}
if [ -n "$long" ]; then
    run formats_long eval "$model" --text "$text" --ctx "$long" --kv "${LAB_LONG_KV:-fp4;bf16}" --base "$exact"
    run needle_long eval "$model" --text "$text" --no-loss --needle --ctx "$long" --kv "${LAB_LONG_NEEDLE_KV:-fp4}" --base "$exact"
fi
run blame eval "$model" --text "$text" --no-loss --blame --ctx "${LAB_BLAME_CTX:-2K}"
run cuts eval "$model" --text "$text" --no-loss --cut "${LAB_CUT:-256,1K}" --ctx "${LAB_CUT_CTX:-2K}"
run kv_error eval "$model" --text "$text" --no-loss --kv-error --ctx "${LAB_CUT_CTX:-2K}"
run tune tune "$model" --text "$text" --ctx "${LAB_TUNE_CTX:-1K}" --budget "${LAB_BUDGET:-240}"
run retrieval tune "$model" --text "$text" --ctx "${LAB_TUNE_CTX:-1K}" --budget "${LAB_BUDGET:-240}" --task retrieval --samples 1
run ladder ladder "$model" --text "$text" --ctx "${LAB_LADDER:-4K,8K,16K}" --no-needle
for twin in "$twins"/*/; do
    [ -f "$twin/config.json" ] || continue
    if grep -q '"model_type": "llama"' "$twin/config.json"; then
        kv='bf16;fp8;key=fp8,value=fp4;fp4' base=f32
    else
        kv='main=bf16,index=bf16,window=bf16;bf16;fp8;fp4;mxfp4' base=$exact
    fi
    run "twin-$(basename "$twin")" eval "$twin" --text "$text" --ctx "${LAB_TWINS_CTX:-4K}" --windows "${LAB_TWINS_WINDOWS:-8}" --kv "$kv" --base "$base"
done
python3 tools/lab_page.py "$work" "$model" > "$out"
echo "$out" >&2
