#!/usr/bin/env bash
# Builds, checks and times the CUDA backend on a machine with a card, nvcc and GoogleTest; needs no
# network. Usage: run_device.sh LOG_FOLDER [STEP...], steps: build tests sanitizer bench (all).
# A failed step does not stop the others. Writes LOG_FOLDER/{build,tests,sanitizer,bench}.log and
# summary.txt, and ends within DELTAFILL_DEVICE_SECONDS (530): what no longer fits is left out and
# said so. Exits 1 if anything failed.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
out=$(mkdir -p "${1:?LOG_FOLDER}" && cd "$1" && pwd) || exit 2
shift
steps=${*:-build tests sanitizer bench}
build=${DELTAFILL_DEVICE_BUILD:-build/kernels-only}
export DELTAFILL_TEST_GPU=required
deadline=$((SECONDS + ${DELTAFILL_DEVICE_SECONDS:-530}))
. tests/gpu/device_checks.sh

bench() { check bench "$@"; }
# tool NAME TOOL TEST FILTER: our kernels only; cuBLASLt's own are full of hazards that
# racecheck reports.
tool() {
  check sanitizer 90 "$1" compute-sanitizer --tool "$2" --error-exitcode 9 \
    --print-limit 20 --kernel-name kns=deltafill "$build/bin/$3" "--gtest_filter=$4"
}

run_build() {
  check build 60 configure cmake --preset kernels-only -B "$build"
  check build 300 build cmake --build "$build" -j "$(nproc)"
}

# What tells most comes first.
run_tests() {
  for name in products_test fused_products_test step_products_test step_portable_test backend_test backend_rows_test device_failure_test layer_walk_test latent_test mixture_test \
    hybrid_walk_test row_operators_test recurrent_test forward_test forward_bits_test \
    forward_large_test; do
    check tests 100 "gpu_$name" "$build/bin/gpu_$name"
  done
  check tests 60 gpu_nccl_link_test "$build/bin/gpu_nccl_link_test" '--gtest_filter=NcclLinkTest.*'
  check tests 30 cuda_loader_test "$build/bin/cuda_loader_test"
}

# Racecheck leaves out what multiplies rows by cuBLASLt, whose kernels fail under it (2025.3).
run_sanitizer() {
  local forward='*RunTwice*:*AloneAndPacked*:*CheckpointsCutsAndSlices/ring*'
  tool "memcheck forward" memcheck gpu_forward_bits_test "$forward"
  tool "memcheck layouts" memcheck gpu_forward_test '*BlockEdges*:*RowLayouts*:*Grouped*:*HeadDims*'
  tool "synccheck forward" synccheck gpu_forward_bits_test "$forward"
  tool "racecheck portable" racecheck gpu_forward_bits_test '*RunTwice/portable*'
  tool "memcheck rows" memcheck gpu_backend_rows_test '*'
  tool "memcheck backend" memcheck gpu_backend_test '*Errors*:*Outlive*:*Aligned*'
  tool "memcheck latent" memcheck gpu_latent_test '*Values*'
  tool "memcheck steps" memcheck gpu_step_products_test '*Alignment*:*Convolved*:*Gated*'
  tool "memcheck mixture" memcheck gpu_mixture_test '*Ties*:*OneExpert*:*Lanes*'
  tool "racecheck rows" racecheck gpu_backend_rows_test '*SwiGlu*:*ConvolutionsOfSingleRows*'
  tool "racecheck steps" racecheck gpu_step_products_test '*Alignment*'
  # Of whole blocks: the copy engine's boxes are what racecheck accepts. Partial blocks come by
  # cp.async (kernels/NOTES.md).
  tool "racecheck ring" racecheck gpu_forward_bits_test '*WholeBlocks/ring_bounded'
}

run_bench() {
  local walk=$build/bin/model_walk_bench
  bench 60 "prefill 262,144" "$walk" prefill 262144 4096
  bench 60 "prefill 1,048,576" "$walk" prefill 1048576 8192
  bench 40 "decode, batch 1" "$walk" decode-operators 100 1
  bench 40 "decode, batch 64" "$walk" decode-operators 100 64
  bench 20 "products of steps" "$walk" steps 1 8 16 64
  bench 60 "products" "$walk" products
  bench 40 "experts" "$build/bin/hybrid_cuda_bench" experts
  bench 30 "latent attention" "$build/bin/hybrid_cuda_bench" latent
  bench 45 "delta rule" "$build/bin/kda_forward_bench" 1x131072x32 1x8192x32 1x32768x32 \
    1x131072x32:gate=-6 1x1048576x32 1x8192x64 1x8192x96 8x1024x96 1x262144x8 1x262144x16 \
    1x1048576x16 1x131072x16 1x131072x8 1x131072x32
  bench 30 "rows" "$build/bin/kda_rows_bench"
  grep -hE '^(prefill|decode|memory|weights|numerics)' "$out/bench.log" >>"$out/summary.txt"
}

say_machine
for step in $steps; do "run_$step"; done
say "$failures failures, $SECONDS s"
((failures == 0))
