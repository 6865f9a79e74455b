"""The Llama architecture at its smallest, in PyTorch; used by make.py.

RoPE turns the pairs (2i, 2i+1), the order the weights of a "llama" GGUF file are in, so that
the matrices go to the file just as they were trained.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    vocab: int
    dim: int = 192
    layers: int = 6
    heads: int = 6
    kv_heads: int = 2
    ffn: int = 640
    context: int = 512
    theta: float = 10000.0
    eps: float = 1e-5


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


def rope(x, cos, sin):
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        kv = c.dim // c.heads * c.kv_heads
        self.attn_norm, self.ffn_norm = (nn.RMSNorm(c.dim, c.eps) for _ in range(2))
        self.attn_q, self.attn_k, self.attn_v = linear(c.dim, c.dim), linear(c.dim, kv), linear(c.dim, kv)
        self.attn_output = linear(c.dim, c.dim)
        self.ffn_gate, self.ffn_up, self.ffn_down = linear(c.dim, c.ffn), linear(c.dim, c.ffn), linear(c.ffn, c.dim)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        h = self.attn_norm(x)
        q, k, v = (p(h).view(batch, length, n, -1).transpose(1, 2) for p, n in (
            (self.attn_q, self.c.heads), (self.attn_k, self.c.kv_heads), (self.attn_v, self.c.kv_heads)))
        q, k = rope(q, cos, sin), rope(k, cos, sin)
        group = self.c.heads // self.c.kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_output(h.transpose(1, 2).flatten(2))
        h = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))


class Model(nn.Module):
    """Module names are the tensor names of the file; the embedding is also the output matrix."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        self.token_embd = nn.Embedding(c.vocab, c.dim)
        self.blk = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.output_norm = nn.RMSNorm(c.dim, c.eps)
        half = c.dim // c.heads // 2
        angles = torch.outer(torch.arange(c.context).float(), c.theta ** (-torch.arange(half) / half))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                # The two matrices that write to the residual stream start smaller, as there are 2 a layer.
                last = "output" in name or "down" in name
                nn.init.normal_(p, std=0.02 / (2 * c.layers) ** 0.5 if last else 0.02)

    def forward(self, ids):
        x = self.token_embd(ids)
        for block in self.blk:
            x = block(x, self.cos[: ids.shape[1]], self.sin[: ids.shape[1]])
        return F.linear(self.output_norm(x), self.token_embd.weight)

    @torch.no_grad()
    def generate(self, ids, count, stop, temperature=0.0, seed=0):
        """Continues `ids` by up to `count` tokens; `stop` ends it and is kept."""
        rng, out = torch.Generator().manual_seed(seed), list(ids)
        for _ in range(count):
            logits = self(torch.tensor([out[-self.c.context:]]))[0, -1]
            if temperature:
                out.append(torch.multinomial((logits / temperature).softmax(-1), 1, generator=rng).item())
            else:
                out.append(logits.argmax().item())
            if out[-1] == stop:
                break
        return out[len(ids):]
