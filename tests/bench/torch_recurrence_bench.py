#!/usr/bin/env python3
"""The chunkwise CPU operator against a token-by-token recurrence in PyTorch (PyPI), one thread each.

Usage: torch_recurrence_bench.py BUILD_DIR   (needs torch; runs BUILD_DIR/bin/delta_rule_bench too)
"""
import re
import subprocess
import sys
import time

import torch

HEADS, TOKENS, DIM = 16, 1024, 128


def recurrence(q, k, v, g, beta):
    """KDA as its equations say, all heads at once; g is the log decay a channel."""
    state = torch.zeros(HEADS, DIM, DIM)
    out = torch.empty_like(v)
    for t in range(TOKENS):
        state = state * g[t].exp().unsqueeze(-1)
        error = beta[t].unsqueeze(-1) * (v[t] - torch.einsum("hkv,hk->hv", state, k[t]))
        state = state + k[t].unsqueeze(-1) * error.unsqueeze(1)
        out[t] = torch.einsum("hkv,hk->hv", state, q[t])
    return out


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    q, k, v = (torch.nn.functional.normalize(torch.randn(TOKENS, HEADS, DIM), dim=-1)
               for _ in range(3))
    g = -torch.rand(TOKENS, HEADS, DIM)
    beta = torch.rand(TOKENS, HEADS)
    seconds = []
    with torch.inference_mode():
        for _ in range(4):
            started = time.perf_counter()
            recurrence(q, k, v, g, beta)
            seconds.append(time.perf_counter() - started)
    theirs = HEADS * TOKENS / min(seconds[1:]) / 1000
    printed = subprocess.run([f"{sys.argv[1]}/bin/delta_rule_bench", "softplus"], check=True,
                             stdout=subprocess.PIPE, text=True).stdout
    row = re.search(r"softplus +128 +128 +\d+ +([\d.]+) +([\d.]+) +(\d+) %", printed)
    ours, gflops, share = float(row.group(1)), float(row.group(2)), row.group(3)
    print("| K = V = 128, 16 heads, one thread | thousand tokens x heads a second | |")
    print("|---|---|---|")
    print(f"| deltafill, chunkwise | {ours:,.0f} | {gflops:.0f} GFLOP/s, {share} % of sgemm |")
    print(f"| PyTorch {torch.__version__}, recurrence | {theirs:,.1f} | ours is {ours / theirs:.0f} x |")


if __name__ == "__main__":
    main()
