# Sourced by the scripts that run on a machine with a card: commands with limits, one line each in
# $out/summary.txt, and an end before $deadline ($SECONDS), whatever no longer fits being left out and
# said so. The caller has set out and deadline.
# shellcheck shell=bash
failures=0
: >"$out/summary.txt"

say() { echo "$*" | tee -a "$out/summary.txt"; }

# check LOG SECONDS NAME COMMAND...: runs a command and adds its line to the summary.
check() {
  local log=$out/$1.log limit=$2 name=$3 left status start=$SECONDS
  shift 3
  left=$((deadline - SECONDS))
  if ((left < 5)); then
    say "LEFT OUT $name: no time left"
    failures=$((failures + 1))
    return
  fi
  printf '\n===== %s: %s\n' "$name" "$*" >>"$log"
  local mark
  mark=$(wc -l <"$log")
  timeout -k 5 "$((limit < left ? limit : left))" "$@" >>"$log" 2>&1
  status=$?
  local counts
  counts=$(tail -n "+$mark" "$log" |
    grep -oE '^\[  (PASSED|SKIPPED|FAILED)  ?\] [0-9]+ test|^Ran [0-9]+ test|^OK .*|^FAILED \(.*' |
    tr -s ' ' | sort -u | paste -sd' ' -)
  if ((status != 0)) || [[ $counts == *SKIPPED* ]]; then
    failures=$((failures + 1))
    say "FAILED $name: status $status, $((SECONDS - start)) s $counts"
    tail -n "+$mark" "$log" | grep -E 'FAILED|Failure|rror' | head -8 >>"$out/summary.txt"
  else
    say "ok $name: $((SECONDS - start)) s $counts"
  fi
}

# The summary's first lines: the card and, where git is there, the commit.
say_machine() {
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm --format=csv,noheader \
    >>"$out/summary.txt" 2>&1
  git log -1 --format='commit %h' >>"$out/summary.txt" 2>&1
}
