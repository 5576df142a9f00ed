#!/usr/bin/env bash
# Runs the carried service on a machine with two (DELTAFILL_GPUS) cards, a worker process on each: bits,
# speed, exchange, loss of a worker; see two_gpus.py. Usage: run_two_gpus.sh LOG_FOLDER
# DELTAFILL_CARRIED names the folder that carry_service.sh filled (build/carried). Writes
# results.md, results.json and processes.tar.gz (their logs) within DELTAFILL_DEVICE_SECONDS (520). Exits 1 if a
# promise is broken or a step failed.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
out=$(mkdir -p "${1:?LOG_FOLDER}" && cd "$1" && pwd) || exit 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar -C "$work" -xzf "${DELTAFILL_CARRIED:-build/carried}/service.tar.gz" || exit 2
export DELTAFILL_BIN=$work/bin/deltafill NCCL_NVLS_ENABLE=0
export LD_LIBRARY_PATH=$work/bin:$work/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
for name in cublasLt.so.13 nccl.so.2; do  # where the loader does not look
  if ldconfig -p | grep -qF "lib$name"; then continue; fi
  for library in /usr/local/cuda*/{lib64,lib,targets/x86_64-linux/lib}/lib$name; do
    if [[ -e $library ]]; then LD_LIBRARY_PATH+=:$(dirname "$library"); fi
  done
done
{
  nvidia-smi --query-gpu=index,name,driver_version,memory.total --format=csv,noheader
  nvidia-smi topo -m
  git log -1 --format='commit %h'
} >"$out/machine.log" 2>&1
python3 -B tests/gpu/two_gpus.py "$out" 2>&1 | tee "$out/two_gpus.log"
status=${PIPESTATUS[0]}
tar -C "$out" -czf "$out/processes.tar.gz" processes && rm -rf "$out/processes"
exit "$status"
