#!/usr/bin/env bash
# The main job in one command: installs what is missing, builds, starts the service with a small random
# model, prefills a real text of a million tokens over two workers, resumes it with 1,000 more, decodes
# from the result and prints what each step took. Leaves nothing running; --keep leaves the service up.
#
# Usage: deploy/quickstart.sh [--keep] [--tokens N]   (N: default 1000000)
set -euo pipefail
cd "$(dirname "$0")/.."

keep=0
tokens=1000000
while [[ $# -gt 0 ]]; do
  case $1 in
    --keep) keep=1 ;;
    --tokens) tokens=${2-}; [[ $# -lt 2 ]] || shift ;;
    *) echo "usage: deploy/quickstart.sh [--keep] [--tokens N]" >&2; exit 2 ;;
  esac
  shift
done

if [[ ! $tokens =~ ^[1-9][0-9]*$ ]]; then
  echo "quickstart: --tokens wants a number" >&2
  exit 2
fi

address=127.0.0.1:7450
workers=2
work=build/quickstart
server_pid=

stop_server() {
  if [[ -n $server_pid && $keep -eq 0 ]]; then
    kill -TERM "$server_pid" 2>/dev/null || true
    wait "$server_pid" 2>/dev/null || true
  fi
}
trap stop_server EXIT

build() {
  deploy/install_dependencies.sh
  cmake --preset release >build/quickstart-configure.log
  cmake --build --preset release --target deltafill python_package
}

# The text of the installed C and C++ headers: one byte is one token of the byte-level model.
make_text() {
  find -L /usr/include -type f \( -name '*.h' -o -name '*.hpp' \) 2>/dev/null | LC_ALL=C sort |
    while read -r file; do
      printf '// %s\n' "$file"
      iconv -f utf-8 -t utf-8 -c "$file" 2>/dev/null || true
    done 2>/dev/null | head -c "$((tokens + 2000))" >"$work/source.txt" || true
  local size
  size=$(stat -c %s "$work/source.txt")
  if [[ $size -lt $((tokens + 1000)) ]]; then
    echo "quickstart: /usr/include has only $size bytes of headers; give a smaller --tokens" >&2
    exit 1
  fi
  head -c "$tokens" "$work/source.txt" >"$work/prompt.txt"
  head -c "$((tokens + 1000))" "$work/source.txt" >"$work/longer.txt"
}

start_server() {
  rm -rf "$work/store"
  "$deltafill" serve --model "$work/model" --store "$work/store" --listen "$address" \
    --workers "$workers" >"$work/serve.log" 2>&1 &
  server_pid=$!
  for _ in $(seq 300); do
    # Not what answers at the address: that may be somebody else's.
    if grep -q ' ready: ' "$work/serve.log"; then
      return
    fi
    if ! kill -0 "$server_pid" 2>/dev/null; then
      break
    fi
    sleep 0.1
  done
  echo "quickstart: the service did not start; the end of $work/serve.log:" >&2
  tail -n 20 "$work/serve.log" >&2
  exit 1
}

field() { # FILE NAME: a field of the JSON object on FILE's last line
  tail -n 1 "$1" | python3 -c "import json,sys; print(json.load(sys.stdin)['$2'])"
}

mkdir -p "$work"
build
deltafill=build/release/bin/deltafill
[[ -d $work/model ]] || "$deltafill" model init --preset tiny --seed 1 --out "$work/model"
make_text
start_server

echo "prefilling $tokens tokens of /usr/include over $workers workers"
"$deltafill" prefill --server "$address" --text "$work/prompt.txt" --json >"$work/cold.json"
echo "prefilling the same and 1,000 tokens more"
"$deltafill" prefill --server "$address" --text "$work/longer.txt" --json >"$work/resumed.json"
echo "decoding 64 tokens (the model is random: so is what it says)"
"$deltafill" decode --server "$address" --state "$(field "$work/resumed.json" state)" \
  --max-tokens 64 --json >"$work/decode.json"

peak_kib=$(awk '/VmHWM/ {print $2}' "/proc/$server_pid/status")
python3 - "$work" "$peak_kib" <<'PYTHON'
import json, pathlib, sys
work, peak_kib = pathlib.Path(sys.argv[1]), int(sys.argv[2])
cold, resumed, decode = (
    json.loads((work / name).read_text().splitlines()[-1])
    for name in ("cold.json", "resumed.json", "decode.json"))
rows = [
    ("cold prefill", cold["tokens"], cold["cached_tokens"], cold["elapsed_s"], ""),
    ("resumed, 1,000 tokens more", resumed["tokens"], resumed["cached_tokens"],
     resumed["elapsed_s"], f"{cold['elapsed_s'] / resumed['elapsed_s']:.0f} x faster"),
    ("decode from the state", len(decode["tokens"]), 0, decode["elapsed_s"],
     f"{len(decode['tokens']) / decode['elapsed_s']:.0f} tokens/s"),
]
print(f"\n{'step':<28}{'tokens':>10}{'cached':>10}{'seconds':>10}  ")
for step, tokens, cached, seconds, note in rows:
    print(f"{step:<28}{tokens:>10,}{cached:>10,}{seconds:>10.3f}  {note}")
print(f"peak memory of the service: {peak_kib / 1024:.0f} MiB")
PYTHON
if [[ $keep -eq 1 ]]; then
  echo "the service goes on at $address (process $server_pid); stop it with: kill $server_pid"
fi
