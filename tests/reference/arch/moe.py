"""Shared ablations of the scripts of models with experts. Routers return scores, weights, and ids of the chosen experts."""
import torch

from arch.common import routers


def reweighted(model, weights):
    """Replaces the weights of the chosen experts by `weights(scores, weights, ids)`."""
    for router in routers(model):
        router.register_forward_hook(lambda module, args, out: (out[0], weights(*out), out[2]))


def normalization(model):
    """Takes the softmax over all experts as weights."""
    reweighted(model, lambda scores, weights, ids: scores.softmax(-1).gather(-1, ids))


def raw_weights(model):
    """Normalizes the weights of the chosen experts."""
    reweighted(model, lambda scores, weights, ids: weights / weights.sum(-1, keepdim=True))


def one_expert_less(model):
    reweighted(model, lambda scores, weights, ids: torch.cat([weights[:, :-1], torch.zeros_like(weights[:, -1:])], -1))


def shared_expert(model):
    for module in model.modules():
        if hasattr(module, "shared_expert"):
            module.shared_expert.down_proj.weight.data.zero_()


def shared_gate(model):
    """Opens the gate of the shared expert half."""
    for module in model.modules():
        if hasattr(module, "shared_expert_gate"):
            module.shared_expert_gate.weight.data.zero_()
