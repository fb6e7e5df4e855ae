#!/bin/sh
# What mote does, shown on the bundled model in about two minutes.
#   tools/demo.sh MOTE MODEL
set -eu

mote=$1
model=$2
text=$model/heldout.txt
ctx=${DEMO_CTX:-1024}
if [ -t 1 ]; then bold=$(printf '\033[1m') dim=$(printf '\033[2m') off=$(printf '\033[0m'); else bold= dim= off=; fi
title() { printf '\n%s== %s%s\n' "$bold" "$1" "$off"; }
show() { printf '%s$ mote %s%s\n' "$dim" "$*" "$off"; "$mote" "$@"; }

title "1. The model"
show inspect "$model"

title "2. Its cache, before anything is loaded: bytes per token by part, for each format"
show plan "$model" --ctx 4K,64K

title "3. A continuation of a passage it never saw, streamed; speed and memory"
passage="$(head -n 1 "$text" | cut -d. -f1-4)."
printf '%s%s%s' "$dim" "$passage" "$off"
"$mote" run "$model" -p "$passage" -n 120 --temp 0.7 --seed 7 --stats

title "4. A longer prompt: prefill and decode speed"
head -c 16000 "$text" | show run "$model" - -n 32 --temp 0 --ignore-eos --stats

title "5. What the formats cost in quality: perplexity on held-out text, $ctx tokens"
show eval "$model" --text "$text" --ctx "$ctx" --kv fp4,fp8,bf16

title "Next"
echo "mote run $model -p 'It was' --stats      mote chat $model      mote COMMAND --help"
