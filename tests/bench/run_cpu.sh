#!/usr/bin/env bash
# Runs the CPU benchmarks of a release build on a quiet machine and keeps their tables in
# tests/bench/results. TORCH_PYTHON names a python with torch for the comparison with PyTorch;
# REPLAY_REPOSITORIES are git directories whose history is replayed into snapshots, and orders of whose
# files are compared; ORDER_REPOSITORIES (DIRECTORY or DIRECTORY:FOLDER) are compared only.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=build/release
results=tests/bench/results
export DELTAFILL_BIN=$build/bin/deltafill DELTAFILL_WORK=$build/bench
mkdir -p "$DELTAFILL_WORK"
record() { python3 tests/bench/record.py "$results/$1" "$2" -- "${@:3}"; }

record cpu-delta-rule.md "Chunkwise delta rule on the CPU against sgemm" "$build/bin/delta_rule_bench"
record cpu-latent-attention.md "Latent attention and experts on the CPU against sgemm" \
  "$build/bin/latent_attention_bench"
if [[ -n ${TORCH_PYTHON:-} ]]; then
  record cpu-delta-rule-torch.md "Chunkwise delta rule against a PyTorch recurrence" \
    "$TORCH_PYTHON" tests/bench/torch_recurrence_bench.py "$build"
fi
record cpu-wavefront-tiny.md "Two workers against one, preset tiny" \
  python3 tests/bench/wavefront_bench.py tiny 400000 5
record cpu-wavefront-small.md "Two workers against one, preset small" \
  python3 tests/bench/wavefront_bench.py small 16384 3
if [[ -n ${TOKENIZERS_PYTHON:-} ]]; then
  # A python with tiktoken and tokenizers; TOKENIZER_DIRECTORIES hold real vocabularies.
  read -ra directories <<<"${TOKENIZER_DIRECTORIES:-tests/coordinator/tokenizer/fixtures/kimi}"
  RAYON_NUM_THREADS=1 record tokenizers.md \
    "Tokenizers beside tiktoken and tokenizers, processor time of one thread" "$TOKENIZERS_PYTHON" \
    tests/bench/tokenizers_side_by_side.py "$build/bin/tokenizer_bench" "${directories[@]}"
fi
record lookup.md "A full miss of a 1 M-token lookup, 1 M stored boundaries" "$build/bin/lookup_bench"
record store.md "State store against the raw disk" "$build/bin/store_bench" "$DELTAFILL_WORK/store"
record snapshot-edit.md "An edit of one late file in a snapshot, preset tiny" \
  python3 tests/bench/snapshot_edit.py --picture "$results/snapshot-reuse.svg" \
  absl-headers=/usr/include/absl deltafill=.
if [[ -n ${REPLAY_REPOSITORIES:-} ]]; then
  # Git directories of public repositories; only read.
  read -ra repositories <<<"$REPLAY_REPOSITORIES"
  record snapshot-replay.md "The last 50 commits of public repositories, replayed into snapshots" \
    python3 tests/bench/snapshot_replay.py --one-layer "${repositories[@]}"
  read -ra others <<<"${ORDER_REPOSITORIES:-}"
  record snapshot-orders.md "Orders of a snapshot's files, counted over histories" \
    python3 tests/bench/snapshot_orders.py "$build/bin/file_order_bench" \
    "${repositories[@]}" "${others[@]}"
fi
