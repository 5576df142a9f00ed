#!/usr/bin/env python3
"""Makes the models of flash-linear-attention's `kda` family among tests/worker/fixtures.

The directory is what PyPI's flash-linear-attention saves (made with 0.6.0, torch 2.15.0, transformers
5.24.0): its names, shapes and config.json. Its kernels need a GPU, so the reference puts its layer
together from torch's operators and fla's own naive functions (naive_recurrent_kda, naive_kda_gate,
naive_kda_lowerbound_gate) on the CPU in fp32.

    pip install torch transformers safetensors einops flash-linear-attention
    python3 make_fla_fixtures.py tests/worker/fixtures

The files are as make_fixtures.py says.
"""
import pathlib
import sys
import tempfile

import torch
import torch.nn.functional as F
from fla.models.kda import KDAConfig, KDAForCausalLM
from fla.ops.kda.gate import naive_kda_gate, naive_kda_lowerbound_gate
from fla.ops.kda.naive import naive_recurrent_kda
from fla_values import fill, norm
from safetensors.torch import load_file, save_file

CASES = [
    dict(name="fla_plain", tokens=150, vocab_size=50,
         sizes=dict(hidden_size=40, num_heads=2, head_dim=32, num_hidden_layers=2,
                    intermediate_size=None, hidden_ratio=1)),
    dict(name="fla_grouped_values", tokens=131, vocab_size=45,
         sizes=dict(hidden_size=36, num_heads=1, num_v_heads=2, head_dim=32, expand_v=2.0,
                    num_hidden_layers=2, intermediate_size=51, safe_gate=True, lower_bound=-4.0,
                    tie_word_embeddings=False, norm_eps=1e-5)),
]


def mixer(x, get, config, kept):
    """One KimiDeltaAttention on x [T, hidden]."""
    heads, dim = config.num_heads, config.head_dim
    value_heads = config.num_v_heads or heads
    rows, convolved = [], []
    for which in "qkv":
        rows.append(F.linear(x, get(f"{which}_proj.weight")))
        channels = F.pad(rows[-1].T[None], (3, 0))
        weight = get(f"{which}_conv1d.weight")
        convolved.append(F.silu(F.conv1d(channels, weight, groups=weight.shape[0])[0].T))
    kept["tail"] = torch.cat(rows, -1)[-3:].T.contiguous()
    q, k = (part.view(1, len(x), heads, dim) for part in convolved[:2])
    v = convolved[2].view(1, len(x), value_heads, -1)
    raw = F.linear(F.linear(x, get("f_proj.0.weight")), get("f_proj.1.weight"))
    raw = raw.view(1, len(x), value_heads, dim)
    if config.lower_bound is None:
        g = naive_kda_gate(raw, get("A_log"), get("dt_bias"))
    else:
        g = naive_kda_lowerbound_gate(raw, get("A_log"), get("dt_bias"), config.lower_bound)
    q, k = (part * torch.rsqrt(part.pow(2).sum(-1, keepdim=True) + 1e-6) for part in (q, k))
    beta = F.linear(x, get("b_proj.weight")).sigmoid()[None]
    o, state = naive_recurrent_kda(q, k, v, g, beta, output_final_state=True)
    kept["recurrent"] = state[0].transpose(1, 2).contiguous()
    gate = F.linear(F.linear(x, get("g_proj.0.weight")), get("g_proj.1.weight"),
                    get("g_proj.1.bias")).view_as(o[0])
    o = norm(o[0], get("o_norm.weight"), config.norm_eps) * gate.sigmoid()
    return F.linear(o.flatten(1), get("o_proj.weight"))


def run_reference(tensors, config, tokens):
    kept = []
    hidden = tensors["model.embeddings.weight"][tokens.long()]
    for layer in range(config.num_hidden_layers):
        prefix = f"model.layers.{layer}."
        kept.append({})
        normed = norm(hidden, tensors[prefix + "attn_norm.weight"], config.norm_eps)
        hidden = hidden + mixer(normed, lambda name: tensors[f"{prefix}attn.{name}"], config,
                                kept[-1])
        normed = norm(hidden, tensors[prefix + "mlp_norm.weight"], config.norm_eps)
        gate, up = (F.linear(normed, tensors[f"{prefix}mlp.{which}_proj.weight"])
                    for which in ("gate", "up"))
        hidden = hidden + F.linear(F.silu(gate) * up, tensors[prefix + "mlp.down_proj.weight"])
    hidden = norm(hidden, tensors["model.norm.weight"], config.norm_eps)
    return F.linear(hidden, tensors["lm_head.weight"]), kept


def make_case(case, root):
    generator = torch.Generator().manual_seed(80 + CASES.index(case))
    config = KDAConfig(vocab_size=case["vocab_size"], **case["sizes"])
    model = KDAForCausalLM(config)
    fill(model, generator, 0.3)
    directory = root / case["name"]
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as saved:
        model.to(torch.bfloat16).save_pretrained(saved)
        for file in ("config.json", "model.safetensors"):
            (directory / file).write_bytes((pathlib.Path(saved) / file).read_bytes())
    tensors = {name: value.float() for name, value in
               load_file(directory / "model.safetensors").items()}
    tokens = torch.randint(case["vocab_size"], (case["tokens"],), generator=generator)
    with torch.no_grad():
        logits, kept = run_reference(tensors, config, tokens)
    positions = [0, 1, 2, 62, 63, 64, 127, case["tokens"] - 1]
    expected = dict(tokens=tokens.to(torch.int32),
                    positions=torch.tensor(positions, dtype=torch.int32),
                    logits=logits[positions].contiguous())
    for layer, parts in enumerate(kept):
        for kind, values in parts.items():
            expected[f"{kind}.{layer}"] = values
    path = root / f"{case['name']}.expected.safetensors"
    save_file(expected, path)
    path.chmod(0o644)
    print(case["name"], "logits rms", float(logits.pow(2).mean().sqrt()))


def main():
    torch.set_num_threads(1)
    for case in CASES:
        make_case(case, pathlib.Path(sys.argv[1]))


if __name__ == "__main__":
    main()
