#!/usr/bin/env python3
"""Makes the hybrids among tests/worker/fixtures: models with latent attention and experts.

The reference is the `kimi_linear` model of PyPI's transformers on the CPU in fp32 (made with torch
2.15.0, transformers 5.24.0, safetensors). It has what vLLM does not: an eps of 1e-6 in
kv_a_layernorm whatever rms_norm_eps says. Cases without the switch for it set both equal, or give
the reference vLLM's.

    pip install torch transformers safetensors
    python3 make_hybrid_fixtures.py tests/worker/fixtures

A case is a model directory NAME and NAME.expected.safetensors: `tokens` [T], `positions` [P],
`logits` [P, vocabulary] of these positions; after all tokens, of each KDA layer `recurrent.N`
[head, V, K] and `tail.N` [3 x channels, 3]; and of each attention layer `latent.N` [P, rank + rope]
at these positions.
"""
import json
import pathlib
import sys
import tempfile

import torch
from safetensors.torch import save_file
from transformers import KimiLinearConfig, KimiLinearForCausalLM

from kept_states import kept_states

CASES = [
    # Crosses two pages of the latent cache; ends inside, at and after page and block edges.
    dict(name="hybrid_pages", layers=3, attention=[2], hidden=32, inner=40, heads=1, vocab=40,
         mla=dict(heads=2, rank=40, nope=24, rope=8, value=20),
         experts=dict(count=6, top=2, width=16, shared=1), tokens=8300, eps=1e-5, kv_eps=1e-6,
         positions=[0, 63, 64, 4031, 4032, 4094, 4095, 4096, 4097, 4159, 4160, 8127, 8128, 8190,
                    8191, 8192, 8193, 8255, 8256, 8298, 8299]),
    # As transformers itself saves it: its spelling of config.json, dense layers among the experts.
    dict(name="hybrid_native", layers=4, attention=[2, 4], hidden=52, inner=70, heads=2, vocab=61,
         mla=dict(heads=3, rank=40, nope=24, rope=8, value=20), native=True,
         experts=dict(count=5, top=3, width=20, shared=2), tokens=200, eps=1e-5, kv_eps=1e-6),
    # An attention layer first, no dense layer, weights that do not sum to one; eps equal by itself.
    dict(name="hybrid_attention_first", layers=2, attention=[1], hidden=36, inner=51, heads=1,
         vocab=50, mla=dict(heads=1, rank=24, nope=16, rope=16, value=40), dense=0,
         experts=dict(count=5, top=2, width=33, shared=1, renormalize=False, scale=1.7),
         tokens=193, eps=1e-6),
    # The other setting of each switch; an eps at which vLLM and transformers differ visibly.
    dict(name="hybrid_switches", layers=2, attention=[2], hidden=32, inner=33, heads=1, vocab=40,
         mla=dict(heads=2, rank=20, nope=12, rope=4, value=12), dense=0, biased=True, vllm_eps=True,
         experts=dict(count=4, top=2, width=24, shared=1), tokens=130, eps=1e-2),
]


def make_config(case):
    layers, mla, experts = case["layers"], case["mla"], case["experts"]
    config = dict(
        architectures=["KimiLinearForCausalLM"], model_type="kimi_linear",
        vocab_size=case["vocab"], hidden_size=case["hidden"], intermediate_size=case["inner"],
        num_hidden_layers=layers, num_attention_heads=mla["heads"],
        num_key_value_heads=mla["heads"], hidden_act="silu", rms_norm_eps=case["eps"],
        tie_word_embeddings=False, first_k_dense_replace=case.get("dense", 1),
        kv_lora_rank=mla["rank"], q_lora_rank=None, qk_nope_head_dim=mla["nope"],
        qk_rope_head_dim=mla["rope"], v_head_dim=mla["value"], mla_use_nope=True,
        num_experts=experts["count"], num_experts_per_token=experts["top"],
        moe_intermediate_size=experts["width"], num_shared_experts=experts["shared"],
        moe_renormalize=experts.get("renormalize", True), moe_layer_freq=1,
        moe_router_activation_func="sigmoid", routed_scaling_factor=experts.get("scale", 2.446),
        use_grouped_topk=True, num_expert_group=1, topk_group=1,
        linear_attn_config=dict(
            full_attn_layers=case["attention"],
            kda_layers=[n for n in range(1, layers + 1) if n not in case["attention"]],
            head_dim=32, num_heads=case["heads"], short_conv_kernel_size=4),
        model_max_length=65536, bos_token_id=0, eos_token_id=1, pad_token_id=2)
    switches = {}
    if "kv_eps" in case:
        switches["kv_a_layernorm_eps"] = case["kv_eps"]
    if case.get("biased"):
        switches["biased_expert_weights"] = True
    return config, switches


def fill(model, generator):
    """Random weights at which every part of the model matters, rounded to bf16."""
    for name, tensor in list(model.named_parameters()) + list(model.named_buffers()):
        with torch.no_grad():
            noise = torch.randn(tensor.shape, generator=generator)
            if "norm" in name:
                value = 1.0 + 0.3 * noise
            elif name.endswith("A_log"):
                value = torch.log(1.0 + 15.0 * torch.rand(tensor.shape, generator=generator))
            elif name.endswith("dt_bias"):
                value = noise - 3.0
            elif name.endswith("e_score_correction_bias"):
                value = 0.2 * noise
            elif "embed_tokens" in name or "conv1d" in name:
                value = noise * (1.0 if "embed" in name else 0.5)
            else:
                value = noise * tensor.shape[-1] ** -0.5
            if "q_proj" in name:
                value = value * 3.0  # attention that picks some tokens
            tensor.copy_(value.to(torch.bfloat16).to(torch.float32))


def save_model(model, config, switches, directory, native):
    """The model in bf16, by the names that transformers itself saves."""
    with tempfile.TemporaryDirectory() as saved:
        model.to(torch.bfloat16).save_pretrained(saved)
        tensors = load(pathlib.Path(saved) / "model.safetensors")
        written = json.loads((pathlib.Path(saved) / "config.json").read_text())
    model.to(torch.float32)
    directory.mkdir(parents=True, exist_ok=True)
    if not native:
        written = config
        for layer in range(config["first_k_dense_replace"]):
            prefix = f"model.layers.{layer}."
            for which in ("gate_proj", "up_proj", "down_proj"):
                tensors[f"{prefix}mlp.{which}.weight"] = tensors.pop(
                    f"{prefix}block_sparse_moe.{which}.weight")
    if switches:
        written = {**written, "deltafill": switches}
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "config.json").write_text(json.dumps(written, indent=1) + "\n")
    (directory / "model.safetensors").chmod(0o644)


def load(path):
    from safetensors.torch import load_file
    return load_file(path)


def biased_forward(router):
    """The router with weights from the biased scores."""
    def forward(hidden):
        hidden = hidden.view(-1, router.hidden_dim).float()
        logits = torch.nn.functional.linear(hidden, router.weight.float())
        scores = logits.sigmoid() + router.e_score_correction_bias
        weights, chosen = torch.topk(scores, k=router.top_k, dim=-1)
        weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
        return logits, weights * router.routed_scaling_factor, chosen
    return forward


def prepare(model, case, latents):
    """vLLM's variants where the case asks for them, and hooks that keep the latents."""
    for index, layer in enumerate(model.model.layers):
        if index + 1 in case["attention"]:
            attention = layer.self_attn
            if case.get("vllm_eps"):
                attention.kv_a_layernorm.variance_epsilon = case["eps"]
            rope = case["mla"]["rope"]
            kept = latents.setdefault(index, [None, None])
            attention.kv_a_layernorm.register_forward_hook(
                lambda module, args, out, kept=kept: kept.__setitem__(0, out[0]))
            attention.kv_a_proj_with_mqa.register_forward_hook(
                lambda module, args, out, kept=kept: kept.__setitem__(1, out[0][:, -rope:]))
        if case.get("biased") and hasattr(layer.mlp, "gate"):
            layer.mlp.gate.forward = biased_forward(layer.mlp.gate)


def run_reference(model, case, tokens):
    latents = {}
    prepare(model, case, latents)
    with kept_states() as (states, tails), torch.no_grad():
        logits = model(tokens[None].long(), use_cache=False).logits[0]
    kda = [n for n in range(case["layers"]) if n + 1 not in case["attention"]]
    return (logits, {n: state[0].transpose(1, 2) for n, state in zip(kda, states)},
            dict(zip(kda, tails)), {n: torch.cat(parts, -1) for n, parts in latents.items()})


def make_case(case, root):
    generator = torch.Generator().manual_seed(60 + CASES.index(case))
    config, switches = make_config(case)
    model = KimiLinearForCausalLM(KimiLinearConfig(**config)).eval()
    model.set_experts_implementation("eager")  # the other one wants widths that are multiples
    fill(model, generator)
    save_model(model, config, switches, root / case["name"], case.get("native"))
    tokens = torch.randint(case["vocab"], (case["tokens"],), generator=generator).to(torch.int32)
    logits, states, tails, latents = run_reference(model, case, tokens)
    positions = case.get("positions", [0, 1, 2, 62, 63, 64, 127, 128, case["tokens"] - 1])
    expected = dict(tokens=tokens, positions=torch.tensor(positions, dtype=torch.int32),
                    logits=logits[positions].float().contiguous())
    for kind, parts in (("recurrent", states), ("tail", tails)):
        for layer, values in parts.items():
            expected[f"{kind}.{layer}"] = values.float().contiguous()
    for layer, values in latents.items():
        expected[f"latent.{layer}"] = values[positions].float().contiguous()
    save_file(expected, root / f"{case['name']}.expected.safetensors")
    (root / f"{case['name']}.expected.safetensors").chmod(0o644)
    print(case["name"], "logits rms", float(logits.pow(2).mean().sqrt()), "latent rms",
          [float(values.pow(2).mean().sqrt()) for values in latents.values()])


def main():
    torch.set_num_threads(1)
    for case in CASES:
        make_case(case, pathlib.Path(sys.argv[1]))


if __name__ == "__main__":
    main()
