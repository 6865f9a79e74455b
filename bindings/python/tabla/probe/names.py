"""Names of the points where activations are captured, and their counterparts in TransformerLens.

A point is named after the tensor that computes it:

- `token_embd`: residual stream before layer 0;
- `blk.N`: residual stream after layer N, counted from 0;
- `blk.N.KIND`: a value inside layer N. `KINDS` lists the kinds.

TransformerLens names, such as `blocks.3.attn.hook_q`, are accepted as aliases. The values of two points
differ although the names correspond:

- `hook_normalized` is recorded before the multiplication with the weight of the normalization, `attn_norm`
  and `ffn_norm` after it;
- `hook_embed` has no position embedding, `token_embd` has it in models with learned position embeddings.

`HookedTransformer.from_pretrained` also changes weights by default (`fold_ln`, `center_writing_weights`);
compare with `from_pretrained_no_processing`. The order of the columns in a head of `attn_q` and `attn_k` is
that of the model file; GGUF files of some architectures have another one than Hugging Face.

Source of the TransformerLens names: `transformer_lens/components` of
https://github.com/TransformerLensOrg/TransformerLens.
"""

from __future__ import annotations

import re

TOKEN_EMBD = "token_embd"
"""Residual stream before layer 0, `[tokens, dim]`."""

KINDS = {
    "attn_norm": "input of attention after its normalization, [tokens, dim]",
    "attn_q": "queries before RoPE, [tokens, heads * head_dim]",
    "attn_k": "keys before RoPE, [tokens, kv_heads * head_dim]",
    "attn_v": "values, [tokens, kv_heads * head_dim]",
    "attn_q_rope": "queries after RoPE, [tokens, heads * head_dim]",
    "attn_k_rope": "keys after RoPE, [tokens, kv_heads * head_dim]",
    "attn_weights": "attention weights after softmax, [tokens, heads * positions]",
    "attn": "output of the heads before the output projection, [tokens, heads * head_dim]",
    "attn_output": "output of attention after the output projection, [tokens, dim]",
    "ffn_norm": "input of the feed-forward layer after its normalization, [tokens, dim]",
    "ffn_gate": "gate before the activation function, [tokens, ffn]",
    "ffn_up": "up projection, [tokens, ffn]",
    "ffn": "product of activated gate and up projection, [tokens, ffn]",
    "ffn_down": "output of the feed-forward layer, [tokens, dim]",
}
"""Description and shape of each kind of point inside a layer."""

_HOOKS = {
    "hook_resid_post": "",
    "ln1.hook_normalized": "attn_norm",
    "attn.hook_q": "attn_q",
    "attn.hook_k": "attn_k",
    "attn.hook_v": "attn_v",
    "attn.hook_rot_q": "attn_q_rope",
    "attn.hook_rot_k": "attn_k_rope",
    "attn.hook_pattern": "attn_weights",
    "attn.hook_z": "attn",
    "hook_attn_out": "attn_output",
    "ln2.hook_normalized": "ffn_norm",
    "mlp.hook_pre": "ffn_gate",
    "mlp.hook_pre_linear": "ffn_up",
    "mlp.hook_post": "ffn",
    "hook_mlp_out": "ffn_down",
}
"""Kinds by their names in the layers of TransformerLens, for models whose feed-forward layer has a gate."""

_HOOKS_WITHOUT_GATE = {**_HOOKS, "mlp.hook_pre": "ffn_up"}
del _HOOKS_WITHOUT_GATE["mlp.hook_pre_linear"]

_INSTEAD = {
    "attn.hook_attn_scores": "blk.{layer}.attn_weights has the attention weights after softmax",
    "attn.hook_result": "blk.{layer}.attn has the output of each head before the output projection",
    "hook_resid_mid": "{before} + blk.{layer}.attn_output is this sum in models without post-normalization",
    "hook_attn_in": "{before} has the residual stream before the layer",
    "hook_q_input": "{before} has the residual stream before the layer",
    "hook_k_input": "{before} has the residual stream before the layer",
    "hook_v_input": "{before} has the residual stream before the layer",
    "hook_mlp_in": "blk.{layer}.ffn_norm has this value after normalization",
    "ln1.hook_scale": "blk.{layer}.attn_norm has the normalized value",
    "ln2.hook_scale": "blk.{layer}.ffn_norm has the normalized value",
}
"""The nearest points for names of TransformerLens without a counterpart."""

_LAYER = re.compile(r"(blk|blocks)\.(0|[1-9][0-9]*)(?:\.(.+))?")


def resolve(name: str, layers: int, *, gated: bool = True) -> str:
    """Returns the name of a point for a name of Tabla or TransformerLens.

    `layers` is the number of layers of the model. `gated`: whether its feed-forward layers have a gate, as in
    llama; without one, `mlp.hook_pre` is `ffn_up` and there is no `ffn_gate`.

    Raises `ValueError` for an unknown name, a layer outside the model, or a name of TransformerLens that has no
    counterpart.
    """
    if name == TOKEN_EMBD or name == "hook_embed":
        return TOKEN_EMBD
    match = _LAYER.fullmatch(name)
    if match is None:
        if name.startswith("hook_") or name.startswith(("ln_final.", "unembed.")):
            raise ValueError(f"no counterpart: {name!r} of TransformerLens")
        raise ValueError(f"unknown point: {name!r}, expected {TOKEN_EMBD}, blk.N or blk.N.KIND")
    prefix, layer, rest = match[1], int(match[2]), match[3]
    if layer >= layers:
        raise ValueError(f"layer out of range: {name!r}, expected 0 to {layers - 1}")
    if prefix == "blk":
        kinds = [kind for kind in KINDS if gated or kind != "ffn_gate"]
        if rest is not None and rest not in kinds:
            raise ValueError(f"unknown point: {name!r}, expected blk.{layer} or one of its {', '.join(kinds)}")
        return name
    if rest == "hook_resid_pre":
        return _before(layer)
    hooks = _HOOKS if gated else _HOOKS_WITHOUT_GATE
    if rest not in hooks:
        raise ValueError(_no_counterpart(name, layer, rest or ""))
    return _point(layer, hooks[rest])


def to_transformer_lens(name: str, layers: int, *, gated: bool = True) -> str:
    """Returns the name of a point in TransformerLens. The inverse of `resolve`; `token_embd` is
    `blocks.0.hook_resid_pre`."""
    layer, kind = split(resolve(name, layers, gated=gated))
    if layer is None:
        return "blocks.0.hook_resid_pre"
    hooks = _HOOKS if gated else _HOOKS_WITHOUT_GATE
    [hook] = (hook for hook, other in hooks.items() if other == kind)
    return f"blocks.{layer}.{hook}"


def split(point: str) -> tuple[int | None, str]:
    """Returns the layer and the kind of a point: `(3, "attn_q")` for `blk.3.attn_q`, `(3, "")` for `blk.3`,
    `(None, "")` for `token_embd`."""
    match = _LAYER.fullmatch(point)
    if point == TOKEN_EMBD:
        return None, ""
    if match is None or match[1] != "blk":
        raise ValueError(f"unknown point: {point!r}, expected {TOKEN_EMBD}, blk.N or blk.N.KIND")
    return int(match[2]), match[3] or ""


def residual_points(layers: int) -> list[str]:
    """Returns the points of the residual stream: `token_embd`, `blk.0` and so on, `layers + 1` names."""
    return [TOKEN_EMBD, *(_point(layer, "") for layer in range(layers))]


def layer_points(kind: str, layers: int) -> list[str]:
    """Returns the points of one kind in all layers: `blk.0.attn_q`, `blk.1.attn_q` and so on."""
    return [resolve(_point(layer, kind), layers) for layer in range(layers)]


def _point(layer: int, kind: str) -> str:
    return f"blk.{layer}.{kind}" if kind else f"blk.{layer}"


def _before(layer: int) -> str:
    """Returns the residual stream before a layer."""
    return _point(layer - 1, "") if layer else TOKEN_EMBD


def _no_counterpart(name: str, layer: int, hook: str) -> str:
    instead = _INSTEAD.get(hook, "expected one of " + ", ".join(["hook_resid_pre", *_HOOKS]))
    return f"no counterpart: {name!r} of TransformerLens; " + instead.format(layer=layer, before=_before(layer))
