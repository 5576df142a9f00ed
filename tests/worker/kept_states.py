"""What transformers' Kimi-Linear hands from layer to layer inside: kept while a model runs."""
import contextlib

from transformers.models.kimi_linear import modeling_kimi_linear


@contextlib.contextmanager
def kept_states():
    """Yields two lists, a KDA layer each in order: recurrent states [batch, head, K, V] and the last
    three pre-convolution rows [channels, 3]."""
    states, tails = [], []
    chunk_rule = modeling_kimi_linear.chunk_kimi_delta_attention
    convolution = modeling_kimi_linear.causal_conv1d_fn

    def keep_state(*args, **kwargs):
        kwargs["output_final_state"] = True
        out, state = chunk_rule(*args, **kwargs)
        states.append(state)
        return out, None

    def keep_tail(rows, *args, **kwargs):
        tails.append(rows[0, :, -3:].clone())
        return convolution(rows, *args, **kwargs)

    modeling_kimi_linear.chunk_kimi_delta_attention = keep_state
    modeling_kimi_linear.causal_conv1d_fn = keep_tail
    try:
        yield states, tails
    finally:
        modeling_kimi_linear.chunk_kimi_delta_attention = chunk_rule
        modeling_kimi_linear.causal_conv1d_fn = convolution
