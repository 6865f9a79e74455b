"""Analyses of a model's activations: linear probes, similarity of layers, steering directions, and plots.

`capture` records activations of prompts at named points. The other functions take and return numpy arrays,
so they also work on activations of other programs. docs/inside.md shows them.
"""

try:
    import matplotlib as _matplotlib  # noqa: F401
    import sklearn as _sklearn  # noqa: F401
    import threadpoolctl as _threadpoolctl  # noqa: F401
except ImportError as missing:
    message = f"tabla.probe needs scikit-learn and matplotlib: pip install 'tabla-runtime[probe]' ({missing})"
    raise ImportError(message, name=missing.name) from missing

from . import names, plots, steering
from .attribution import Attribution, logit_attribution
from .capture import capture, split_heads
from .lens import LogitLens, logit_lens
from .linear import ProbeResult, linear_probe, ridge_probe
from .similarity import (
    LayerDivergence,
    LayerSimilarity,
    canonical_correlations,
    cca,
    cka,
    dissimilarity,
    js_divergence,
    layer_divergence,
    layer_similarity,
    pwcca,
    rsa,
    svcca,
)

__all__ = [
    "Attribution",
    "LayerDivergence",
    "LayerSimilarity",
    "LogitLens",
    "ProbeResult",
    "canonical_correlations",
    "capture",
    "cca",
    "cka",
    "dissimilarity",
    "js_divergence",
    "layer_divergence",
    "layer_similarity",
    "linear_probe",
    "logit_attribution",
    "logit_lens",
    "names",
    "plots",
    "pwcca",
    "ridge_probe",
    "rsa",
    "split_heads",
    "steering",
    "svcca",
]
