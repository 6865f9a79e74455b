"""Shared ablations of the scripts of LFM2: gated short convolutions."""
import torch


def convolutions(model):
    """Returns the layers of short convolutions."""
    return [m for m in model.modules() if hasattr(m, "in_proj") and hasattr(m, "conv")]


def taps(model):
    """Keeps only the tap of the same position."""
    for m in convolutions(model):
        m.conv.weight.data[..., :-1] = 0


def reversed_taps(model):
    for m in convolutions(model):
        m.conv.weight.data = m.conv.weight.data.flip(-1)


def reordered(model, order):
    """Reorders the three parts of the input projections."""
    for m in convolutions(model):
        parts = m.in_proj.weight.data.chunk(3)
        m.in_proj.weight.data = torch.cat([parts[i] for i in order])


def gate_after(model):
    """Swaps the gate before the convolution with the gate after it."""
    reordered(model, (1, 0, 2))


def swapped_input(model):
    """Swaps the gate after the convolution with the input."""
    reordered(model, (0, 2, 1))


def head_norms(model):
    """Sets the norms of queries and keys to identity."""
    for m in model.modules():
        if hasattr(m, "q_layernorm"):
            m.q_layernorm = m.k_layernorm = torch.nn.Identity()


def rotary(model):
    for m in model.modules():
        if hasattr(m, "inv_freq"):
            m.inv_freq.zero_()


CONV, FULL = "conv", "full_attention"
ABLATIONS = (taps, reversed_taps, gate_after, swapped_input, head_norms, rotary)
