#!/usr/bin/env bash
# Installs what building and testing need on Debian 12. Does nothing where all of it is there.
set -euo pipefail

packages=(
  # tools
  cmake ninja-build g++ ccache mold git python3 pkg-config
  # libraries
  libgrpc++-dev protobuf-compiler-grpc libprotobuf-dev protobuf-compiler
  librocksdb-dev libabsl-dev libspdlog-dev libcli11-dev nlohmann-json3-dev
  libxxhash-dev libssl-dev libjemalloc-dev libdnnl-dev libhwy-dev
  libpcre2-dev libutf8proc-dev
  libgit2-dev
  # tests and benchmarks
  libgtest-dev libgmock-dev libbenchmark-dev python3-grpcio python3-protobuf python3-numpy
)
# With --checks, also what fuzzers and clang-tidy need.
if [[ ${1:-} == --checks ]]; then
  packages+=(clang-19 clang-tidy-19 libclang-rt-19-dev)
fi

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
    missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then
  exit 0
fi
if ! command -v apt-get >/dev/null; then
  echo "install_dependencies.sh: no apt-get here; install these by hand: ${missing[*]}" >&2
  exit 1
fi
as_root=()
if [[ $(id -u) -ne 0 ]]; then
  as_root=(sudo)
fi
echo "installing: ${missing[*]}"
"${as_root[@]}" apt-get update -qq
DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends \
  "${missing[@]}" >/dev/null
