"""flash-linear-attention's own KDA model on one GPU: prefill of one long sequence, bf16, random weights.

The shape of deltafill's preset dense-1b: 24 layers, hidden 2048, 16 heads of 128, MLP 5632, vocabulary
32,000. Prints a Markdown table: tokens/s of the fastest of three passes, last token's logits only, and
the peak memory. Triton tunes itself in the passes before.

  python fla_model.py TOKENS...
"""
import sys
import time

import torch
from fla.models import KDAConfig, KDAForCausalLM


def seconds(model, tokens):
    ids = torch.randint(0, model.config.vocab_size, (1, tokens), device="cuda")
    best = float("inf")
    for _ in range(5):
        torch.cuda.synchronize()
        started = time.monotonic()
        model(input_ids=ids, use_cache=False, logits_to_keep=1)
        torch.cuda.synchronize()
        best = min(best, time.monotonic() - started)
    return best


def main():
    torch.manual_seed(1)
    config = KDAConfig(num_hidden_layers=24, hidden_size=2048, num_heads=16, head_dim=128,
                       intermediate_size=5632, vocab_size=32000, max_position_embeddings=1 << 21)
    with torch.device("cuda"):
        model = KDAForCausalLM(config).to(torch.bfloat16).eval()
    parameters = sum(p.numel() for p in model.parameters())
    print(f"fla's KDA model, {parameters / 1e9:.2f} B parameters, {torch.cuda.get_device_name()}, "
          f"torch {torch.__version__}\n")
    print("| tokens | s | tokens/s | peak GB |\n|---|---|---|---|")
    with torch.inference_mode():
        for tokens in map(int, sys.argv[1:]):
            torch.cuda.reset_peak_memory_stats()
            taken = seconds(model, tokens)
            print(f"| {tokens:,} | {taken:.3f} | {tokens / taken:,.0f} "
                  f"| {torch.cuda.max_memory_allocated() / 1e9:.1f} |", flush=True)


if __name__ == "__main__":
    main()
