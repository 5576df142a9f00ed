#!/usr/bin/env bash
# Packs the release build's service and GPU tests with the libraries that they need, and git, for a
# machine that has a card, cuBLASLt and NCCL and none of the others, and a glibc and libstdc++ at least
# as new as this one's. Usage: carry_service.sh FOLDER
# Writes FOLDER/service.tar.gz, at most 55 MiB; run_service.sh unpacks and runs it there.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(mkdir -p "${1:?FOLDER}" && cd "$1" && pwd)
bin=${DELTAFILL_RELEASE_BUILD:-build/release}/bin
bytes_max=$((55 << 20))
# Of the machine itself: glibc, the compiler's runtime (a newer one serves), CUDA, the driver.
of_machine='^(ld-linux|linux-vdso|lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s|cuda|cublasLt|nccl)\.so)'

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir "$stage/bin" "$stage/lib"
for library in libdeltafill_cuda.so libdeltafill_nccl.so; do
  if [[ ! -e $bin/$library ]]; then
    echo "carry_service.sh: $bin/$library is not built: is nvcc here?" >&2
    exit 1
  fi
done
cp "$bin/deltafill" "$bin"/libdeltafill_{cuda,nccl}.so "$bin"/gpu_*_test "$stage/bin/"
for bench in model_walk_bench model_prefill_bench kda_forward_bench kda_rows_bench hybrid_cuda_bench; do
  if [[ -e $bin/$bench ]]; then cp "$bin/$bench" "$stage/bin/"; fi
done
cp -L "$(command -v git)" "$stage/bin/git"
for file in "$stage"/bin/*; do ldd "$file"; done |
  awk '$2 == "=>" && $3 ~ /^\// {print $1, $3}' | sort -u |
  while read -r name path; do
    # The backend's own library is beside the executables.
    if [[ $name =~ $of_machine || $name == libdeltafill_* ]]; then continue; fi
    cp -L "$path" "$stage/lib/$name"
  done
chmod u+w "$stage"/lib/*
strip --strip-unneeded "$stage"/bin/* "$stage"/lib/*
tar -C "$stage" -czf "$folder/service.tar.gz" bin lib
bytes=$(stat -c %s "$folder/service.tar.gz")
echo "$folder/service.tar.gz: $((bytes >> 10)) KiB, $(ls "$stage/lib" | wc -l) libraries"
if ((bytes > bytes_max)); then
  echo "carry_service.sh: over $bytes_max bytes" >&2
  exit 1
fi
