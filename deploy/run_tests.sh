#!/usr/bin/env bash
# Installs what is missing, builds and runs the tests. Stages, all by default:
#   release   everything, built optimised (CUDA too where nvcc is), every test
#   asan      AddressSanitizer over the tests labelled core
#   tsan      ThreadSanitizer over the tests labelled concurrency
#   fuzz      each fuzzer for 20 seconds
#   tidy      clang-tidy over the sources changed since DELTAFILL_BASE (default HEAD~1)
#
# Usage: deploy/run_tests.sh [STAGE...]
set -euo pipefail
cd "$(dirname "$0")/.."

parallel=$(nproc)
export CTEST_OUTPUT_ON_FAILURE=1

stage_release() {
  cmake --preset release
  cmake --build --preset release
  ctest --test-dir build/release --parallel "$parallel"
}

stage_asan() {
  cmake --preset asan
  cmake --build --preset asan --target tests_core
  # RocksDB and gRPC keep globals for the life of the process.
  ASAN_OPTIONS=detect_leaks=0 ctest --test-dir build/asan --label-regex core --parallel "$parallel"
}

stage_tsan() {
  cmake --preset tsan
  cmake --build --preset tsan --target tests_concurrency
  # gRPC's and RocksDB's own code is not instrumented; races inside them are not ours to judge.
  TSAN_OPTIONS="ignore_noninstrumented_modules=1 suppressions=$PWD/tests/testing/grpc_tsan.supp" \
    ctest --test-dir build/tsan --label-regex concurrency --parallel "$parallel"
}

stage_fuzz() {
  cmake --preset fuzz
  cmake --build --preset fuzz --target fuzzers
  local fuzzer name corpus seeds
  for fuzzer in build/fuzz/bin/*_fuzz; do
    name=$(basename "$fuzzer" _fuzz)
    echo "fuzzing: $name"
    # New inputs go to the corpus; seeds are only read.
    corpus=build/fuzz/corpus/$name
    seeds=build/fuzz/fuzz_seeds/$name
    mkdir -p "$corpus" "$seeds"
    if ! "$fuzzer" -max_total_time="${DELTAFILL_FUZZ_SECONDS:-20}" -rss_limit_mb=2048 \
      "$corpus" "$seeds" >"build/fuzz/$name.log" 2>&1; then
      tail -n 60 "build/fuzz/$name.log"
      return 1
    fi
  done
}

stage_tidy() {
  local base=${DELTAFILL_BASE:-HEAD~1} changed=()
  git rev-parse --verify --quiet "$base" >/dev/null || return 0
  mapfile -t changed < <(git diff --name-only --diff-filter=d "$base" -- '*.cc' |
    grep -v '^tests/\(gpu\|fuzz\)/' | head -n 12)
  if [[ ${#changed[@]} -eq 0 ]]; then
    echo "tidy: no sources changed since $base"
    return
  fi
  cmake --preset release >/dev/null
  # Sources include what is made of the protos.
  cmake --build --preset release --target proto_prefill proto_snapshot proto_statestore proto_worker
  clang-tidy-19 -p build/release --quiet "${changed[@]}"
}

stages=("$@")
if [[ ${#stages[@]} -eq 0 ]]; then
  stages=(asan tsan fuzz tidy release)
fi
deploy/install_dependencies.sh --checks
report=
for stage in "${stages[@]}"; do
  if ! declare -F "stage_$stage" >/dev/null; then
    echo "usage: deploy/run_tests.sh [release|asan|tsan|fuzz|tidy ...]" >&2
    exit 2
  fi
  echo "== $stage"
  started=$SECONDS
  "stage_$stage"
  report+=$(printf '%-8s %5.1f minutes' "$stage" "$(((SECONDS - started) * 10 / 60))e-1")$'\n'
done
printf '\n%s' "$report"
