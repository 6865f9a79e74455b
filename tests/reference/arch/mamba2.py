"""Shared functions of the scripts of models with Mamba-2 layers: weights in the value range of released models, and ablations.

In float32 the chunked form of `transformers` is the reference; a float64 copy of the model, which `rounding_error` compares,
runs the stepwise recurrence in float64."""
import json
import sys
from functools import wraps

import torch

from arch.common import ROOT, load, logits

# Rates of decay: one step multiplies the state of a head by exp(-rate * time step).
RATES = (0.01, 2.0)
# Biases of the time steps, before softplus.
BIASES = (-2.5, 0.5)
SCAN = "mamba2_chunk_scan"


def recurrence(x, dt, a, b, c, chunk_size, D=None, dt_bias=None, initial_states=None, dt_softplus=False, dt_limit=None, return_final_states=False, **_):
    """Selective state space, step by step in float64."""
    repeats = x.shape[2] // b.shape[2]
    b, c = (m.double().repeat_interleave(repeats, 2) for m in (b, c))
    dt = torch.nn.functional.softplus(dt.double() + dt_bias.double()).clamp(*dt_limit)
    state, out = torch.zeros(x.shape[0], *x.shape[2:], b.shape[-1], dtype=torch.float64), []
    for t in range(x.shape[1]):
        decay = (dt[:, t] * a.double()).exp()[..., None, None]
        state = state * decay + dt[:, t, :, None, None] * x[:, t, :, :, None] * b[:, t, :, None]
        out.append((state * c[:, t, :, None]).sum(-1) + D[:, None] * x[:, t])
    out = torch.stack(out, 1)
    return (out, state) if return_final_states else out


def exact(modeling):
    """Replaces the chunked form in a module of `transformers` by `recurrence` for float64."""
    chunked = getattr(modeling, SCAN)
    setattr(modeling, SCAN, wraps(chunked)(lambda x, *rest, **options: (chunked if x.dtype == torch.float32 else recurrence)(x, *rest, **options)))


def mixers(model):
    """Returns the Mamba-2 layers."""
    return [m for m in model.modules() if hasattr(m, "A_log")]


def realistic(model):
    """Sets decays from slow to fast heads, time steps above 0.001, and factors of the skip connection near 1."""
    rng = torch.Generator().manual_seed(0)
    for m in mixers(model):
        count = m.num_heads
        shuffled = lambda values: values[torch.randperm(count, generator=rng)]
        m.A_log.data = shuffled(torch.logspace(*torch.tensor(RATES).log10(), count)).log()
        m.dt_bias.data = shuffled(torch.linspace(*BIASES, count))
        m.D.data = 1 + 2 * m.D.data
        m.in_proj.weight.data[-count:] *= 0.5


def check_decay(name):
    """Checks that most decays of one step are between about 0.4 and 0.999, and that no implementation clamps a time step."""
    model, ids = load(ROOT / name / "hf"), json.loads((ROOT / name / "golden.json").read_text())["tokens"]
    steps, decays = [], []
    for m in mixers(model):
        def keep(module, args, out, m=m):
            out = out * getattr(m, "mup_vector", 1)
            steps.append(torch.nn.functional.softplus(out[..., -m.num_heads:] + m.dt_bias).reshape(-1, m.num_heads))
            decays.append((-m.A_log.exp() * steps[-1]).exp().flatten())
        m.in_proj.register_forward_hook(keep)
    logits(model, ids)
    low, middle, high = torch.cat(decays).quantile(torch.tensor([0.05, 0.5, 0.95])).tolist()
    smallest = torch.cat(steps).min().item()
    print(f"    decays: {low:.3f} {middle:.3f} {high:.4f}, smallest time step {smallest:.4f}")
    assert 0.2 < low < 0.8 and 0.9 < middle and high > 0.99 and smallest > 0.002


def convolution(model):
    """Keeps only the tap of the same position."""
    for m in mixers(model):
        m.conv1d.weight.data[..., :-1] = 0


def convolution_bias(model):
    for m in mixers(model):
        m.conv1d.bias.data.zero_()


def decay(model):
    for m in mixers(model):
        m.A_log.data.fill_(-50)


def step_bias(model):
    for m in mixers(model):
        m.dt_bias.data.zero_()


def skip(model):
    for m in mixers(model):
        m.D.data.zero_()


def output_gate(model):
    """Opens the output gates."""
    for m in mixers(model):
        m.norm.forward = lambda x, gate, norm=m.norm.forward: norm(x, torch.full_like(gate, 1.278464))  # silu(1.278464) = 1


def gate_after_norm(model):
    for m in mixers(model):
        m.norm.forward = lambda x, gate, norm=m.norm.forward: norm(x, torch.full_like(gate, 1.278464)) * torch.nn.functional.silu(gate)


def norm_groups(model):
    """Normalizes the whole row instead of its groups."""
    for m in mixers(model):
        m.norm.group_size = m.intermediate_size


def replaced_scan(model, change):
    """Replaces the scan by `change(scan, x, dt, a, b, c, options)`, only while the Mamba-2 layers of this model run."""
    for m in mixers(model):
        module = sys.modules[type(m).__module__]
        scan = getattr(module, SCAN)

        def before(*_, module=module, scan=scan):
            setattr(module, SCAN, lambda x, dt, a, b, c, **options: change(scan, x, dt, a, b, c, options))

        def after(*_, module=module, scan=scan):
            setattr(module, SCAN, scan)
        m.register_forward_pre_hook(before)
        m.register_forward_hook(after)


def head_groups(model):
    """Gives head h the group h modulo their count."""
    tiled = lambda m, x: m.repeat(1, 1, x.shape[2] // m.shape[2], 1)
    replaced_scan(model, lambda scan, x, dt, a, b, c, options: scan(x, dt, a, tiled(b, x), tiled(c, x), **options))


def swapped_matrices(model):
    """Swaps B and C."""
    replaced_scan(model, lambda scan, x, dt, a, b, c, options: scan(x, dt, a, c, b, **options))


def softplus(model):
    """Takes time steps of at least 0 by ReLU."""
    replaced_scan(model, lambda scan, x, dt, a, b, c, options: scan(
        x, torch.relu(dt + options["dt_bias"]), a, b, c, **options | {"dt_bias": None, "dt_softplus": False}))


ABLATIONS = (convolution, convolution_bias, decay, step_bias, skip, swapped_matrices, softplus)
NORM_ABLATIONS = (output_gate, gate_after_norm)
GROUP_ABLATIONS = (head_groups, norm_groups)


def to_checkpoint(name, array):
    """Maps the values of a GGUF to those of the checkpoint: `ssm_a` is -exp(A_log)."""
    if name.endswith("ssm_a"):
        # Rounded, because log is not the exact inverse of exp.
        return torch.from_numpy(array.copy()).neg().log().bfloat16().float().numpy()
    return array
