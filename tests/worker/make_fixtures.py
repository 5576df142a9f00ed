#!/usr/bin/env python3
"""Makes the small checkpoints of tests/worker/fixtures and what another implementation computes on them.

The reference is the `kimi_linear` model of PyPI's transformers on the CPU in fp32 (made with torch
2.15.0, transformers 5.24.0, safetensors). Its family has no lower-bound gate; for that one case the
forget gate of its `glm5_next` model, which has it and is otherwise the same, takes its place.

    pip install torch transformers safetensors
    python3 make_fixtures.py tests/worker/fixtures

A case is a model directory NAME and NAME.expected.safetensors: `tokens` [T], `positions` [P], `logits`
[P, vocabulary] of these positions, and of each layer after all tokens `recurrent.N` [head, V, K] and
`tail.N` [3 x channels, 3].
"""
import json
import math
import pathlib
import sys
import tempfile

import torch
from safetensors.torch import save_file
from transformers import KimiLinearForCausalLM
from transformers.models.glm5_next import modeling_glm5_next

from kept_states import kept_states

# name, layers, hidden, intermediate, heads, head dim, vocabulary, and what is special about it
CASES = [
    dict(name="softplus_d32", layers=2, hidden=48, intermediate=77, heads=2, dim=32, vocab=97,
         dtype=torch.bfloat16, tokens=200),
    dict(name="tied_d64_sharded", layers=2, hidden=40, intermediate=64, heads=2, dim=64, vocab=61,
         dtype=torch.bfloat16, tokens=150, tied=True, flat_vectors=True, sharded=True),
    dict(name="lower_bound_d32", layers=3, hidden=36, intermediate=51, heads=3, dim=32, vocab=50,
         dtype=torch.float16, tokens=193, lower_bound=-5.0),
    dict(name="fast_decay_d32_f32", layers=1, hidden=32, intermediate=33, heads=1, dim=32, vocab=40,
         dtype=torch.float32, tokens=300, decay_scale=6.0, eos=[3, 5]),
]


def make_config(case):
    layers = case["layers"]
    linear = dict(full_attn_layers=[], kda_layers=list(range(1, layers + 1)), head_dim=case["dim"],
                  num_heads=case["heads"], short_conv_kernel_size=4)
    if "lower_bound" in case:
        linear["gate_lower_bound"] = case["lower_bound"]
    return dict(
        architectures=["KimiLinearForCausalLM"], model_type="kimi_linear", vocab_size=case["vocab"],
        hidden_size=case["hidden"], intermediate_size=case["intermediate"], num_hidden_layers=layers,
        num_attention_heads=case["heads"], num_key_value_heads=case["heads"], hidden_act="silu",
        rms_norm_eps=1e-5, tie_word_embeddings=case.get("tied", False), first_k_dense_replace=layers,
        linear_attn_config=linear, model_max_length=4096, bos_token_id=0,
        eos_token_id=case.get("eos", 1), pad_token_id=2, use_cache=False)


def make_tensors(case, generator):
    hidden, dim, heads, inner = case["hidden"], case["dim"], case["heads"], case["intermediate"]
    channels = heads * dim

    def normal(*shape, scale):
        return (torch.randn(*shape, generator=generator) * scale).to(case["dtype"])

    def uniform(*shape, low, high):
        return torch.rand(*shape, generator=generator) * (high - low) + low

    tensors = {"model.embed_tokens.weight": normal(case["vocab"], hidden, scale=1.0),
               "model.norm.weight": uniform(hidden, low=0.5, high=1.5)}
    if not case.get("tied", False):
        tensors["lm_head.weight"] = normal(case["vocab"], hidden, scale=hidden ** -0.5)
    for layer in range(case["layers"]):
        prefix = f"model.layers.{layer}."
        mixer, mlp = prefix + "self_attn.", prefix + "mlp."
        for which in "qkv":
            tensors[f"{mixer}{which}_proj.weight"] = normal(channels, hidden, scale=hidden ** -0.5)
            tensors[f"{mixer}{which}_conv1d.weight"] = normal(channels, 1, 4, scale=0.5)
        step = torch.exp(uniform(channels, low=math.log(1e-3), high=math.log(1e-1)))
        tensors[mixer + "dt_bias"] = step + torch.log(-torch.expm1(-step))
        tensors[mixer + "A_log"] = torch.log(uniform(1, 1, heads, 1, low=1.0, high=16.0))
        tensors[mixer + "f_a_proj.weight"] = normal(dim, hidden, scale=hidden ** -0.5)
        tensors[mixer + "f_b_proj.weight"] = normal(channels, dim,
                                                    scale=dim ** -0.5 * case.get("decay_scale", 1.0))
        tensors[mixer + "b_proj.weight"] = normal(heads, hidden, scale=hidden ** -0.5)
        tensors[mixer + "g_a_proj.weight"] = normal(dim, hidden, scale=hidden ** -0.5)
        tensors[mixer + "g_b_proj.weight"] = normal(channels, dim, scale=dim ** -0.5)
        tensors[mixer + "o_norm.weight"] = uniform(dim, low=0.5, high=1.5)
        tensors[mixer + "o_proj.weight"] = normal(hidden, channels, scale=channels ** -0.5)
        tensors[mlp + "gate_proj.weight"] = normal(inner, hidden, scale=hidden ** -0.5)
        tensors[mlp + "up_proj.weight"] = normal(inner, hidden, scale=hidden ** -0.5)
        tensors[mlp + "down_proj.weight"] = normal(hidden, inner, scale=inner ** -0.5)
        tensors[prefix + "input_layernorm.weight"] = uniform(hidden, low=0.5, high=1.5)
        tensors[prefix + "post_attention_layernorm.weight"] = uniform(hidden, low=0.5, high=1.5)
    return tensors


def flatten(tensors):
    """The other shapes that public checkpoints have: A_log [H], convolution weights [C, 4]."""
    flat = dict(tensors)
    for name, tensor in tensors.items():
        if name.endswith("A_log"):
            flat[name] = tensor.flatten()
        if name.endswith("conv1d.weight"):
            flat[name] = tensor.squeeze(1)
    return flat


def save_model(case, directory, tensors):
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(make_config(case), indent=1) + "\n")
    if not case.get("sharded"):
        save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
        return
    names = sorted(tensors)
    shards = {"model-00001-of-00002.safetensors": names[::2],
              "model-00002-of-00002.safetensors": names[1::2]}
    places = {}
    for file_name, members in shards.items():
        save_file({name: tensors[name] for name in members}, directory / file_name,
                  metadata={"format": "pt"})
        places.update({name: file_name for name in members})
    index = dict(metadata={}, weight_map=places)
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def run_reference(case, directory, tokens):
    """Logits [T, vocabulary] and each layer's recurrent state and convolution tail."""
    model = KimiLinearForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    if case.get("tied"):  # the class does not tie them itself
        model.lm_head.weight = model.model.embed_tokens.weight
    if "lower_bound" in case:
        for layer in model.model.layers:
            gate = layer.self_attn.forget_gate
            gate.safe_gate_lower_bound = case["lower_bound"]
            gate.forward = modeling_glm5_next.Glm5NextTextForgetGate.forward.__get__(gate)
    with kept_states() as (states, tails), torch.no_grad():
        logits = model(tokens[None].long(), use_cache=False).logits[0]
    return logits, states, tails


def make_case(case, root):
    generator = torch.Generator().manual_seed(20 + CASES.index(case))
    tensors = make_tensors(case, generator)
    save_model(case, root / case["name"], flatten(tensors) if case.get("flat_vectors") else tensors)
    tokens = torch.randint(case["vocab"], (case["tokens"],), generator=generator).to(torch.int32)
    with tempfile.TemporaryDirectory() as directory:
        save_model(case, pathlib.Path(directory), tensors)
        logits, states, tails = run_reference(case, directory, tokens)
    positions = [0, 1, 2, 62, 63, 64, 127, case["tokens"] - 1]
    expected = dict(tokens=tokens, positions=torch.tensor(positions, dtype=torch.int32),
                    logits=logits[positions].float().contiguous())
    for layer, (state, tail) in enumerate(zip(states, tails)):
        expected[f"recurrent.{layer}"] = state[0].transpose(1, 2).float().contiguous()
        expected[f"tail.{layer}"] = tail.float().contiguous()
    save_file(expected, root / f"{case['name']}.expected.safetensors")
    print(case["name"], "logits rms", float(logits.pow(2).mean().sqrt()), "state rms",
          [float(state.pow(2).mean().sqrt()) for state in states])


def main():
    torch.set_num_threads(1)
    for case in CASES:
        make_case(case, pathlib.Path(sys.argv[1]))


if __name__ == "__main__":
    main()
