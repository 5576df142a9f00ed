#!/usr/bin/env bash
# Runs the carried service on a machine with a card: the GPU tests of the release build, the
# integration tests with --device cuda, and the 1.4 B benchmark. Needs python3, no network.
# Usage: run_service.sh LOG_FOLDER [STEP...]
#   steps: tests integration bench (these three by default), bench48 (Kimi-Linear's 48 B shape)
# DELTAFILL_CARRIED names the folder that carry_service.sh filled (build/carried), DELTAFILL_TEST_DEVICE
# another --device, DELTAFILL_INTEGRATION the integration tests to run. Writes a log a step,
# summary.txt and service-logs.tar.gz; a failed step does not stop the others. Exits 1 if any failed.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
out=$(mkdir -p "${1:?LOG_FOLDER}" && cd "$1" && pwd) || exit 2
shift
steps=${*:-tests integration bench}
deadline=$((SECONDS + ${DELTAFILL_DEVICE_SECONDS:-560}))
. tests/gpu/device_checks.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar -C "$work" -xzf "${DELTAFILL_CARRIED:-build/carried}/service.tar.gz" || exit 2
mkdir "$work/files" "$work/logs"
export DELTAFILL_BIN=$work/bin/deltafill DELTAFILL_WORK=$work/files DELTAFILL_TEST_LOGS=$work/logs
export DELTAFILL_TEST_DEVICE=${DELTAFILL_TEST_DEVICE:-cuda} DELTAFILL_TEST_GPU=required
# cuBLASLt where the loader does not look.
if ! ldconfig -p | grep -q 'libcublasLt\.so\.13'; then
  for library in /usr/local/cuda*/{lib64,lib,targets/x86_64-linux/lib}/libcublasLt.so.13; do
    if [[ -e $library ]]; then
      LD_LIBRARY_PATH=$(dirname "$library")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
      export LD_LIBRARY_PATH
      break
    fi
  done
fi

# The snapshot test makes a work tree.
if ! command -v git >/dev/null; then
  mkdir "$work/path"
  printf '#!/bin/sh\nLD_LIBRARY_PATH=%q GIT_EXEC_PATH=%q exec %q "$@"\n' "$work/lib" "$work/bin" \
    "$work/bin/git" >"$work/path/git"
  chmod +x "$work/path/git"
  PATH=$PATH:$work/path
fi

run_tests() {
  local test links='*'
  # Links between cards are run_two_gpus.sh's.
  if (($(nvidia-smi -L | wc -l) < 2)) || [[ ${CUDA_VISIBLE_DEVICES:-} =~ ^[0-9]+$ ]]; then
    links='NcclLinkTest.*'
  fi
  for test in "$work"/bin/gpu_*_test; do
    # The tests' own search path is the machine's that built them.
    check tests 100 "$(basename "$test")" \
      env LD_LIBRARY_PATH="$work/bin:$work/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$test" \
      "--gtest_filter=$([[ $test == */gpu_nccl_link_test ]] && echo "$links" || echo '*')"
  done
}

# Four at a time, each with a log of its own until all have ended.
run_integration() {
  local name pid names pids=()
  names=${DELTAFILL_INTEGRATION:-identity hybrid resume worker_loss crash bad_input lifecycle damage
    snapshot device}
  for name in $names; do
    while (($(jobs -rp | wc -l) >= 4)); do wait -n; done
    (
      failures=0
      check "integration-$name" 420 "integration $name" \
        python3 -B "tests/integration/${name}_test.py"
      exit "$failures"
    ) &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || failures=$((failures + 1)); done
  cat "$out"/integration-*.log >"$out/integration.log"
  rm -f "$out"/integration-*.log
}

run_bench() {
  DELTAFILL_AT_ONCE=16,64 check bench 300 "service, 1.4 B" \
    python3 -B tests/bench/service_bench.py dense-1b 1048576 1x8192 2x8192 1x4096 1x16384
}

run_bench48() {
  check bench48 400 "service, 48 B" python3 -B tests/bench/service_bench.py kimi-linear-48b 262144 \
    1x8192
}

say_machine
"$DELTAFILL_BIN" --version >>"$out/summary.txt" 2>&1
for step in $steps; do "run_$step"; done
grep -hE '^\|' "$out"/bench*.log >>"$out/summary.txt" 2>/dev/null
tar -C "$work" -czf "$out/service-logs.tar.gz" logs
say "$failures failures, $SECONDS s"
((failures == 0))
