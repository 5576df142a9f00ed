"""KDA forward on one GPU: ours, flash-linear-attention and, where it can be imported, FlashKDA.

Runs every shape in one process and writes a Markdown table: ms (median), share of the memory floor
at the copy bandwidth measured in the same run, peak memory beyond the inputs, and relative errors
of o and the final state against a float64 recurrence at a small shape.

  python kda_side_by_side.py --library libdeltafill_cuda.so --out results/kda-h200.md \
      [--commit HASH] [--date DATE] [--seconds N]

fla compiles some 80 kernels a head count when it tunes itself, one after the other, which takes
minutes; kda_fla_compile.py puts them into Triton's cache in parallel beforehand.
"""
import argparse
import ctypes
import functools
import statistics
import time

import torch

D = 128
BYTES_A_TOKEN_HEAD = 1282  # q, k, v, f read and o written once in bf16, and beta
LOWER_BOUND = -5.0

# sequences, tokens each, heads, mean of the raw gate, target ms
SHAPES = [
    (1, 8192, 32, 0.0, 0.16), (1, 32768, 32, 0.0, 0.63), (1, 131072, 32, 0.0, 2.5),
    (1, 131072, 32, -6.0, None), (1, 1048576, 32, 0.0, 20.0), (1, 8192, 64, 0.0, 0.31),
    (1, 8192, 96, 0.0, 0.47), (8, 1024, 96, 0.0, 0.47), (1, 262144, 8, 0.0, None),
    (1, 262144, 16, 0.0, None), (1, 1048576, 16, 0.0, 12.0),
]


def make_inputs(sequences, tokens, heads, gate, seed=0):
    generator = torch.Generator(device="cuda").manual_seed(seed)

    def normal(*shape, mean=0.0):
        # In slices: a full fp32 intermediate would not fit beside the longest inputs.
        out = torch.empty(*shape, dtype=torch.bfloat16, device="cuda")
        for piece in out.split(65536):
            piece.copy_(torch.randn(piece.shape, generator=generator, device="cuda") + mean)
        return out

    rows = sequences * tokens
    return {
        "q": normal(rows, heads, D), "k": normal(rows, heads, D), "v": normal(rows, heads, D),
        "f": normal(rows, heads, D, mean=gate), "beta": normal(rows, heads),
        "a_log": torch.zeros(heads, device="cuda"),
        "dt_bias": torch.zeros(heads * D, device="cuda"),
        "offsets": [i * tokens for i in range(sequences + 1)],
    }


class Ours:
    name = "deltafill"

    def __init__(self, path):
        self.call = ctypes.CDLL(path).deltafill_cuda_kda_forward

    def __call__(self, x):
        rows, heads, _ = x["q"].shape
        sequences = len(x["offsets"]) - 1
        o = torch.empty_like(x["v"])
        state = torch.empty(sequences, heads, D, D, device="cuda")
        offsets = (ctypes.c_int64 * (sequences + 1))(*x["offsets"])
        message = ctypes.create_string_buffer(500)
        pointer = lambda t: ctypes.c_void_p(t.data_ptr())
        failed = self.call(
            *(pointer(x[n]) for n in ("q", "k", "v", "f", "beta", "a_log", "dt_bias")), pointer(o),
            pointer(state), offsets, ctypes.c_int64(sequences), ctypes.c_int(heads),
            ctypes.c_float(LOWER_BOUND),
            ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), message, ctypes.c_int64(500))
        if failed:
            raise RuntimeError(message.value.decode())
        return o, state


class Fla:
    name = "fla"

    def __init__(self):
        from fla.ops.kda import chunk_kda
        self.chunk_kda = chunk_kda

    def __call__(self, x):
        packed = None
        if len(x["offsets"]) > 2:
            packed = torch.tensor(x["offsets"], device="cuda", dtype=torch.long)
        with torch.no_grad():
            o, state = self.chunk_kda(
                *(x[n].unsqueeze(0) for n in ("q", "k", "v", "f", "beta")), scale=D ** -0.5,
                output_final_state=True, use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True,
                use_beta_sigmoid_in_kernel=True, safe_gate=True, lower_bound=LOWER_BOUND,
                A_log=x["a_log"], dt_bias=x["dt_bias"], cu_seqlens=packed)
        return o[0], state.transpose(-1, -2)


class FlashKda:
    name = "FlashKDA"

    def __init__(self):
        import flash_kda
        self.forward = flash_kda.fwd

    def __call__(self, x):
        heads = x["q"].shape[1]
        packed = torch.tensor(x["offsets"], device="cuda", dtype=torch.long)
        o = torch.empty_like(x["v"]).unsqueeze(0)
        state = torch.empty(len(x["offsets"]) - 1, heads, D, D, device="cuda")
        self.forward(*(x[n].unsqueeze(0) for n in ("q", "k", "v", "f", "beta")), D ** -0.5, o,
                     A_log=x["a_log"], dt_bias=x["dt_bias"].view(heads, D),
                     lower_bound=LOWER_BOUND, final_state=state, cu_seqlens=packed)
        return o[0], state


def quick_tuning():
    """Triton's tuner times each choice for 20 ms instead of 100."""
    import triton.testing
    triton.testing.do_bench = functools.partial(triton.testing.do_bench, warmup=5, rep=20)


def median_ms(call, repeats):
    times = []
    for i in range(repeats + 2):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        end.synchronize()
        if i >= 2:
            times.append(start.elapsed_time(end))
    return statistics.median(times)


def copy_bandwidth():
    source = torch.empty(4 << 30, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    return 2 * source.numel() / (median_ms(lambda: target.copy_(source), 5) * 1e-3)


def reference(x):
    q, k, v, f, beta = (x[n].double() for n in ("q", "k", "v", "f", "beta"))
    norm = lambda t: t / (t.square().sum(-1, keepdim=True) + 1e-6).sqrt()
    q, k, beta = norm(q) * D ** -0.5, norm(k), beta.sigmoid()
    decay = (LOWER_BOUND * f.sigmoid()).exp()
    state = torch.zeros(q.shape[1], D, D, dtype=torch.double, device="cuda")  # [H, V, K]
    o = torch.empty_like(v)
    for t in range(q.shape[0]):
        state *= decay[t].unsqueeze(1)
        e = beta[t].unsqueeze(-1) * (v[t] - torch.einsum("hvk,hk->hv", state, k[t]))
        state += e.unsqueeze(-1) * k[t].unsqueeze(1)
        o[t] = torch.einsum("hvk,hk->hv", state, q[t])
    return o, state


def relative_error(x, expected):
    return ((x.double() - expected).norm() / expected.norm()).item()


def measure(implementation, x, repeats):
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    free_before = torch.cuda.mem_get_info()[0]
    torch.cuda.reset_peak_memory_stats()
    allocated = torch.cuda.memory_allocated()
    try:
        ms = median_ms(lambda: implementation(x), repeats)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return None, None
    peak = torch.cuda.max_memory_allocated() - allocated
    torch.cuda.empty_cache()
    kept = max(0, free_before - torch.cuda.mem_get_info()[0])  # outside torch's allocator
    return ms, (peak + kept) / 1e9


def error_lines(implementations):
    lines = ["| gate | implementation | error of o | error of the state |", "|---|---|---|---|"]
    for label, gate in (("mixed", 0.0), ("slow", -6.0), ("fast", 4.0)):
        x = make_inputs(1, 2048, 32, gate, seed=7)
        expected_o, expected_state = reference(x)
        for implementation in implementations:
            o, state = implementation(x)
            lines.append(f"| {label} | {implementation.name} | {relative_error(o, expected_o):.2e} | "
                         f"{relative_error(state[0], expected_state):.2e} |")
    return lines


def write(path, lines):
    with open(path, "w") as out:
        out.write("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--date", default="unknown")
    parser.add_argument("--heads", default="8,16,32,64,96",
                        help="head counts of the shapes that run; fla tunes itself at each")
    parser.add_argument("--quick-tuning", action="store_true", help=quick_tuning.__doc__)
    parser.add_argument("--seconds", type=float, default=float("inf"),
                        help="shapes that would start later are left out, and listed as such")
    args = parser.parse_args()

    started = time.monotonic()
    if args.quick_tuning:
        quick_tuning()
    heads_run = [int(h) for h in args.heads.split(",")]
    implementations = [Ours(args.library)]
    for kind in (Fla, FlashKda):
        try:
            implementations.append(kind())
        except ImportError as error:
            print(f"{kind.name} is left out: {error}")
    bandwidth = copy_bandwidth()
    lines = [
        "# KDA forward, K = V = 128, lower-bound gate, bf16 in and out, fp32 final state", "",
        f"{torch.cuda.get_device_name()}, copy {bandwidth * 1e-12:.2f} TB/s (read + written), "
        f"torch {torch.__version__}, {args.date}, commit {args.commit}. Written by "
        "`tests/bench/kda_side_by_side.py`; implementations not listed could not be imported.", "",
        "| shape | implementation | ms | against ours | % of memory floor | memory beyond inputs, GB "
        "| target ms |", "|---|---|---|---|---|---|---|"]
    for sequences, tokens, heads, gate, target in SHAPES:
        if heads not in heads_run:
            continue
        x = make_inputs(sequences, tokens, heads, gate)
        floor = sequences * tokens * heads * BYTES_A_TOKEN_HEAD / bandwidth * 1e3
        shape = f"{sequences} × {tokens:,} · H {heads}" + (f" · gate {gate}" if gate else "")
        ours = None
        for implementation in implementations:
            if time.monotonic() - started > args.seconds:
                lines.append(f"| {shape} | {implementation.name} | not run | | | | |")
                continue
            ms, peak = measure(implementation, x, 5 if tokens > 200000 else 10)
            if ms is None:
                lines.append(f"| {shape} | {implementation.name} | out of memory | | | | |")
                print(lines[-1], flush=True)
                continue
            ours = ours or ms
            lines.append(f"| {shape} | {implementation.name} | {ms:.3f} | {ms / ours:.2f} × | "
                         f"{100 * floor / ms:.1f} | {peak:.2f} | {target or ''} |")
            print(lines[-1], flush=True)
        del x
        torch.cuda.empty_cache()
        write(args.out, lines)
    if 32 in heads_run:
        lines += ["", "Relative errors against a float64 recurrence, T = 2,048, H = 32:", ""]
        lines += error_lines(implementations)
        write(args.out, lines)


if __name__ == "__main__":
    main()
