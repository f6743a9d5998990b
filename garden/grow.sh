#!/usr/bin/env bash
# Pre-train the garden's models at once on one GPU, a process each: garden/grow.sh MINUTES OUT SHARD...
# MODELS names other models than all (recipe-sSEED), BATCH another batch, STAGGER the seconds between two starts.
# Run again with the same arguments it goes on where it was: finished models are left alone, others resume.
set -euo pipefail
minutes=$1 out=$2
shift 2
models=${MODELS:-"bert-s0 roberta-s0 albert-s0 electra-s0 gpt2-s0 xlnet-s0 bert-s1 bert-s2 bert-s3 bert-s4 \
elmo-s0 elmo4-s0 elmo-transformer-s0"}
here=$(dirname "$0")
export OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false
export TORCHINDUCTOR_COMPILE_THREADS=${TORCHINDUCTOR_COMPILE_THREADS:-2}  # many processes compile at once
mkdir -p "$out"
if grep -qv '^elmo' <<< "${models// /$'\n'}"; then python "$here/pretrain.py" tokenise "$@"; fi
if grep -q '^elmo' <<< "${models// /$'\n'}"; then python "$here/pretrain.py" words "$@"; fi
for name in $models; do
  python "$here/pretrain.py" train "${name%-s*}" "$@" --seed "${name##*-s}" --minutes "$minutes" --out "$out/$name" \
    ${BATCH:+--batch "$BATCH"} >> "$out/$name.log" 2>&1 &
  sleep "${STAGGER:-0}"
done
wait
grep -H held_out_loss "$out"/*/log.jsonl | awk -F: '{last[$1] = $0} END {for (name in last) print last[name]}' | sort
