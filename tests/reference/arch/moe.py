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
        for name in ("shared_expert", "shared_experts"):
            if hasattr(module, name):
                getattr(module, name).down_proj.weight.data.zero_()


def shared_gate(model):
    """Opens the gate of the shared expert half."""
    for module in model.modules():
        if hasattr(module, "shared_expert_gate"):
            module.shared_expert_gate.weight.data.zero_()


# Routers that take weights from sigmoids, and choose by sigmoids with a bias.


def biases(model):
    """Returns the biases of the choice of experts."""
    return [b for name, b in model.named_buffers() if name.endswith(("expert_bias", "e_score_correction_bias"))]


def random_biases(model):
    """Sets biases that change the choice of some experts, and are exact in BF16."""
    rng = torch.Generator().manual_seed(0)
    for b in biases(model):
        b.copy_((0.15 * torch.randn(b.shape, generator=rng)).bfloat16().float())


def f32_biases(tensors):
    """Stores the biases of the choice in F32, as published files do."""
    return {name: t.float() if name.endswith(("expert_bias", "e_score_correction_bias")) else t for name, t in tensors.items()}


def choice_bias(model):
    for b in biases(model):
        b.zero_()


def biased_weights(model):
    """Adds the bias to the weights too."""
    for router in routers(model):
        def look(module, args, out):
            bias = getattr(module, "e_score_correction_bias", args[1] if len(args) > 1 else None)
            weights = (out[0].sigmoid() + bias).gather(-1, out[2])
            return out[0], weights / weights.sum(-1, keepdim=True) * module.routed_scaling_factor, out[2]
        router.register_forward_hook(look)


def softmax_weights(model):
    """Takes the softmax over the chosen scores as weights."""
    for router in routers(model):
        router.register_forward_hook(lambda module, args, out: (out[0], out[0].gather(-1, out[2]).softmax(-1) * module.routed_scaling_factor, out[2]))


def sigmoid_weights(model):
    """Takes sigmoids as weights, without normalization."""
    for router in routers(model):
        router.register_forward_hook(lambda module, args, out: (out[0], out[0].sigmoid().gather(-1, out[2]) * module.routed_scaling_factor, out[2]))


def scaling_factor(model):
    """Divides the weights by the routed scaling factor."""
    for router in routers(model):
        router.register_forward_hook(lambda module, args, out: (out[0], out[1] / module.routed_scaling_factor, out[2]))


def groups(model):
    """Chooses among the experts of all groups."""
    for router in routers(model):
        router.topk_group = router.num_group


def regrouped(model, count):
    """Takes the sum of the `count` best experts as the score of a group."""
    def choose(router, args, out):
        bias = getattr(router, "e_score_correction_bias", None)
        p = out[0].softmax(-1) if bias is None else out[0].sigmoid()
        parts = (p if bias is None else p + bias).unflatten(-1, (router.num_group, -1))
        best = parts.topk(count, -1).values.sum(-1).topk(router.topk_group, -1).indices
        kept = torch.zeros(parts.shape[:-1]).scatter(-1, best, 1).bool()
        ids = parts.masked_fill(~kept[..., None], -1).flatten(-2).topk(out[2].shape[-1], -1).indices
        weights = p.gather(-1, ids)
        return out[0], weights / (1 if bias is None else weights.sum(-1, keepdim=True)) * router.routed_scaling_factor, ids
    for router in routers(model):
        router.register_forward_hook(choose)


def group_maxima(model):
    regrouped(model, 1)


def group_sums(model):
    regrouped(model, 2)


SIGMOID_ABLATIONS = (choice_bias, biased_weights, softmax_weights, sigmoid_weights, one_expert_less)
