#!/usr/bin/env python3
"""Models of flash-linear-attention's own `kda` family, run by fla on a card and by deltafill there.

Usage: DELTAFILL_BIN=... DELTAFILL_TEST_DEVICE=cuda:0 fla_model_check.py [CASE...]
Needs torch, transformers, safetensors, einops and flash-linear-attention (0.5.2 and 0.6.0 were tried). fla makes a
small random model, saves it (config.json, model.safetensors) and runs it in bf16; deltafill serves the saved
directory. Both are compared with the equations in float64, written here: last tokens' logits of
prompts that end in, at and after blocks, and the recurrent states and convolution tails at a
block's end. Prints a Markdown table; exits 1 if deltafill's error is over 1.5 times fla's, or over the bound.
"""
import math
import pathlib
import sys
import tempfile

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "integration"), str(TESTS / "worker")]
import service  # noqa: E402
from fla_values import fill, norm  # noqa: E402

# Relative root mean square errors that bf16 activations explain through four layers.
ERROR_MAX = 0.04
WORSE_THAN_FLA_MAX = 1.5
BOUNDARY = 1024
LENGTHS = (65, 127, 128, 1000, BOUNDARY + 1, 2047)

SIZES = dict(hidden_size=512, num_heads=4, head_dim=128, num_hidden_layers=4, vocab_size=1000)
CASES = {
    "softplus gate": dict(SIZES),
    "bounded gate": dict(SIZES, safe_gate=True, lower_bound=-5.0),
    "grouped values, softplus gate": dict(SIZES, num_heads=2, num_v_heads=4),
    "grouped values, bounded gate": dict(SIZES, num_heads=2, num_v_heads=4, safe_gate=True,
                                         lower_bound=-5.0, intermediate_size=1408),
}


def take_first_choices():
    """Triton compiles and times all choices of a kernel, minutes of it; here nothing is timed."""
    from triton.runtime import autotuner
    make = autotuner.Autotuner.__init__

    def make_with_one(self, fn, arg_names, configs, *rest, **named):
        make(self, fn, arg_names, configs[:1] if configs else configs, *rest, **named)

    autotuner.Autotuner.__init__ = make_with_one


def delta_rule(q, k, v, log_decay, beta, captures):
    """S <- (I - beta k k^T) diag(decay) S + beta k v^T; o = S^T q / sqrt(K). q, k [T, G, K], the rest
    by value head: v [T, H, V], log_decay [T, H, K], beta [T, H]. Returns o and states [H, V, K] at `captures`."""
    share = v.shape[1] // q.shape[1]
    q, k = (F.normalize(x, dim=-1, eps=0).repeat_interleave(share, 1) for x in (q, k))
    state = v.new_zeros(v.shape[1], v.shape[2], k.shape[2])
    decay, out, kept = log_decay.exp(), torch.empty_like(v), {}
    for t in range(len(v)):
        state = state * decay[t, :, None, :]
        error = v[t] - torch.einsum("hvk,hk->hv", state, k[t])
        state = state + (beta[t, :, None] * error)[:, :, None] * k[t, :, None, :]
        out[t] = torch.einsum("hvk,hk->hv", state, q[t])
        if t + 1 in captures:
            kept[t + 1] = state
    return out / math.sqrt(k.shape[2]), kept


def mixer(x, get, config, kept):
    """One layer's KDA on x [T, hidden]; leaves state and tails at BOUNDARY in `kept`."""
    rows = {which: x @ get(f"{which}_proj.weight").T for which in "qkv"}
    convolved = {}
    for which, before in rows.items():
        weight = get(f"{which}_conv1d.weight")
        padded = F.pad(before.T[None], (weight.shape[-1] - 1, 0))
        convolved[which] = F.silu(F.conv1d(padded, weight, groups=len(weight))[0].T)
        kept[f"conv_state.{which}"] = before[BOUNDARY - 3:BOUNDARY].T
    dim = config.head_dim
    q, k = (convolved[which].view(len(x), -1, dim) for which in "qk")
    v = convolved["v"].view(len(x), config.num_v_heads or config.num_heads, -1)
    raw = x @ get("f_proj.0.weight").T @ get("f_proj.1.weight").T + get("dt_bias")
    raw = raw.view(len(x), v.shape[1], dim)
    rate = get("A_log").exp()[:, None]
    if config.lower_bound is None:
        log_decay = -rate * F.softplus(raw)
    else:
        log_decay = config.lower_bound * torch.sigmoid(rate * raw)
    beta = torch.sigmoid(x @ get("b_proj.weight").T)
    o, states = delta_rule(q, k, v, log_decay, beta, {BOUNDARY})
    kept["recurrent_state"] = states[BOUNDARY]
    gate = x @ get("g_proj.0.weight").T @ get("g_proj.1.weight").T + get("g_proj.1.bias")
    o = norm(o, get("o_norm.weight"), config.norm_eps) * torch.sigmoid(gate.view_as(o))
    return o.flatten(1) @ get("o_proj.weight").T


def reference(tensors, config, tokens):
    """Logits of every token, and each layer's kept state, in the tensors' type."""
    hidden, kept = tensors["model.embeddings.weight"][tokens], []
    for layer in range(config.num_hidden_layers):
        prefix = f"model.layers.{layer}."
        kept.append({})
        normed = norm(hidden, tensors[prefix + "attn_norm.weight"], config.norm_eps)
        hidden = hidden + mixer(normed, lambda name: tensors[f"{prefix}attn.{name}"], config, kept[-1])
        normed = norm(hidden, tensors[prefix + "mlp_norm.weight"], config.norm_eps)
        gate, up = (normed @ tensors[f"{prefix}mlp.{which}_proj.weight"].T for which in ("gate", "up"))
        hidden = hidden + (F.silu(gate) * up) @ tensors[prefix + "mlp.down_proj.weight"].T
    return norm(hidden, tensors["model.norm.weight"], config.norm_eps) @ tensors["lm_head.weight"].T, kept


def run_fla(model, tokens):
    """As `reference`, from fla's own kernels in bf16."""
    with torch.inference_mode():
        logits = {n: model(input_ids=tokens[None, :n], use_cache=False).logits[0, -1] for n in LENGTHS}
        cache = model(input_ids=tokens[None, :BOUNDARY], use_cache=True).past_key_values
    kept = []
    for layer in range(model.config.num_hidden_layers):
        state = cache[layer]
        kept.append({"recurrent_state": state["recurrent_state"]})
        for which, tail in zip("qkv", state["conv_state"]):
            kept[-1][f"conv_state.{which}"] = tail
    return logits, kept


def run_deltafill(client, tokens, layers):
    logits = {}
    for n in LENGTHS:
        done = client.prefill(tokens[:n].tolist(), "--no-resume", logits=True)
        logits[n] = torch.frombuffer(bytearray(done["logits"]), dtype=torch.float32)
        if n == BOUNDARY + 1:
            path = client.path(".safetensors")
            client.call("state", "fetch", done["state"], "--out", path, "--layout", "fla")
    fetched = load_file(path)
    kept = [{} for _ in range(layers)]
    for name, value in fetched.items():
        _, layer, what = name.split(".", 2)
        kept[int(layer)][what] = value
    return logits, kept


def error(got, expected):
    got = got.to(expected)
    if not bool(torch.isfinite(got).all()):
        return math.inf
    return float((got - expected).pow(2).mean().sqrt() / expected.pow(2).mean().sqrt())


def errors(logits, kept, expected_logits, expected_kept):
    """Relative root mean square errors by what is compared; of states the worst layer's."""
    found = {f"logits of {n} tokens": error(logits[n], expected_logits[n - 1]) for n in LENGTHS}
    for what in expected_kept[0]:
        # Of a batch of one; of a convolution's cache, fla never reads the first column.
        found[what] = max(error(layer[what][0, ..., -expected[what].shape[-1]:], expected[what])
                          for layer, expected in zip(kept, expected_kept))
    return found


def compare(name, ours, theirs):
    """Prints a line for each; how many are too far away."""
    faults = 0
    for what, error_of_fla in theirs.items():
        bad = not ours[what] <= min(ERROR_MAX, WORSE_THAN_FLA_MAX * max(error_of_fla, 1e-6))
        faults += bad
        print(f"| {name} | {what} | {ours[what]:.2e} | {error_of_fla:.2e} | {'TOO FAR' if bad else 'ok'} |", flush=True)
    return faults


def check(name, sizes, folder):
    from fla.models import KDAConfig, KDAForCausalLM
    generator = torch.Generator().manual_seed(90 + list(CASES).index(name))
    model = KDAForCausalLM(KDAConfig(**sizes))
    fill(model, generator, 0.2)
    model = model.to(torch.bfloat16).eval()
    model._tied_weights_keys = None  # nothing is tied, and transformers 5 cannot read fla 0.5's list
    model.save_pretrained(folder / "model")
    model = model.cuda()
    tokens = torch.randint(sizes["vocab_size"], (max(LENGTHS),), generator=generator)
    tensors = {key: value.double().cuda()
               for key, value in load_file(folder / "model/model.safetensors").items()}
    with torch.inference_mode():
        expected = reference(tensors, model.config, tokens.cuda())
    fla_logits, fla_kept = run_fla(model, tokens.cuda())
    with service.Service(folder / "service", model=folder / "model") as client:
        logits, kept = run_deltafill(client, tokens, sizes["num_hidden_layers"])
    faults = 0
    for what in fla_kept[0]:  # the layout "fla" is fla's cache
        if kept[0][what].shape != fla_kept[0][what].shape:
            print(f"FAILED {name}: {what} has shape {tuple(kept[0][what].shape)}, in fla "
                  f"{tuple(fla_kept[0][what].shape)}")
            faults += 1
    return faults + compare(name, errors(logits, kept, *expected), errors(fla_logits, fla_kept, *expected))


def main():
    names = sys.argv[1:] or list(CASES)
    take_first_choices()
    import fla
    print(f"fla {fla.__version__}, torch {torch.__version__}, {torch.cuda.get_device_name()}; deltafill on "
          f"{service.DEVICE or 'cpu'}; relative root mean square errors against float64\n")
    print("| model | what | deltafill | fla | |\n|---|---|---|---|---|", flush=True)
    faults = 0
    for name in names:
        with tempfile.TemporaryDirectory(dir=service.WORK) as folder:
            faults += check(name, CASES[name], pathlib.Path(folder))
    print(f"\n{faults} too far away")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
