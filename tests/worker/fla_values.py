"""Values for small random models of flash-linear-attention's `kda` family, and a part of their equations."""
import torch


def fill(model, generator, norm_spread):
    """Values of a trained model's size that bf16 holds; norms' weights are 1 give or take norm_spread."""
    for name, tensor in model.named_parameters():
        noise = torch.randn(tensor.shape, generator=generator)
        if "norm" in name:
            value = 1.0 + norm_spread * noise
        elif name.endswith("A_log"):
            value = torch.log(1.0 + 15.0 * torch.rand(tensor.shape, generator=generator))
            value = value * (0.2 if model.config.lower_bound is not None else 1.0)
        elif name.endswith("dt_bias"):
            value = noise - 3.0
        elif name.endswith("bias") or "conv1d" in name:
            value = 0.5 * noise
        elif "embeddings" in name:
            value = noise
        else:
            value = noise * tensor.shape[-1] ** -0.5
        with torch.no_grad():
            tensor.copy_(value.to(torch.bfloat16))


def norm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight
