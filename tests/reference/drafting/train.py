"""Trains a small Qwen 3.5 model with its MTP head on sources of the Python standard library, and writes a checkpoint.

    python -m drafting.train FOLDER [--minutes 25] [--bytes 220000]

The loss is the cross-entropy of the next token, plus 0.3 times that of the head for the token after it, which gets the embedding of the
true next token. The model is trained on few bytes, several times, so that its continuations are similar to the text; a random
model is not predictable, and thus no drafts would be accepted. The last 5 % of the text are for evaluation only.
"""
import argparse
import json
import sysconfig
import time
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3_5TextConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5DecoderLayer, Qwen3_5RMSNorm

from common import BYTE_LEVEL_SPECIALS, QWEN2_WORDS

VOCAB, LENGTH, BATCH = 4096, 128, 4
HEAD_WEIGHT, RATE, WARMUP = 0.3, 3e-3, 50
# Packages of the standard library, in the order in which they are read.
SOURCES = ("asyncio", "json", "logging", "unittest", "email", "http", "urllib", "xml", "concurrent", "multiprocessing")
L, FULL = "linear_attention", "full_attention"
CONFIG = dict(
    vocab_size=VOCAB, hidden_size=256, intermediate_size=512, num_hidden_layers=8, layer_types=[L, L, L, FULL] * 2,
    num_attention_heads=4, num_key_value_heads=2, head_dim=64, linear_conv_kernel_dim=4, linear_key_head_dim=64, linear_value_head_dim=64,
    linear_num_key_heads=2, linear_num_value_heads=4, max_position_embeddings=4096, rms_norm_eps=1e-6, tie_word_embeddings=True,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25, "mrope_section": [3, 3, 2], "mrope_interleaved": True})


class Head(torch.nn.Module):
    """MTP head, with the names of published checkpoints."""

    def __init__(self, config):
        super().__init__()
        dim, eps = config.hidden_size, config.rms_norm_eps
        self.fc = torch.nn.Linear(2 * dim, dim, bias=False)
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden, self.norm = (Qwen3_5RMSNorm(dim, eps) for _ in range(3))
        self.layers = torch.nn.ModuleList([Qwen3_5DecoderLayer(config, config.layer_types.index(FULL))])
        for p in self.parameters():
            if p.dim() == 2:
                torch.nn.init.normal_(p, std=config.initializer_range)

    def forward(self, embeddings, states, rotary):
        x = self.fc(torch.cat([self.pre_fc_norm_embedding(embeddings), self.pre_fc_norm_hidden(states)], -1))
        positions = torch.arange(x.shape[1])[None]
        return self.norm(self.layers[0](x, position_embeddings=rotary(x, positions), position_ids=positions))


def text(size):
    root, parts = Path(sysconfig.get_path("stdlib")), []
    for file in (file for source in SOURCES for file in sorted((root / source).rglob("*.py")) if "test" not in file.parts):
        parts.append(file.read_text(errors="replace"))
        if sum(map(len, parts)) > size:
            return parts
    raise SystemExit(f"the sources have fewer than {size} characters")


def tokenizer_of(parts):
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2_WORDS), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    t.train_from_iterator(parts, trainers.BpeTrainer(vocab_size=VOCAB - len(BYTE_LEVEL_SPECIALS), initial_alphabet=alphabet, show_progress=False))
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in BYTE_LEVEL_SPECIALS])
    assert t.get_vocab_size() == VOCAB, f"the text yields only {t.get_vocab_size()} tokens"
    return t


def outputs(model, head, ids):
    """Returns the logits of the model for tokens 1 to n - 1, and those of the head for tokens 2 to n - 1."""
    states = model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
    further = head(model.model.embed_tokens(ids[:, 1:-1]), states[:, :-1], model.model.rotary_emb)
    return model.lm_head(states), model.lm_head(further)


def losses(model, head, ids):
    here, further = outputs(model, head, ids)
    return F.cross_entropy(here.flatten(0, 1), ids[:, 1:].flatten()), F.cross_entropy(further.flatten(0, 1), ids[:, 2:].flatten())


@torch.no_grad()
def evaluate(model, head, windows):
    """Returns losses, the fraction of correct next tokens, and that of tokens of the head that agree with those of the model."""
    here, further = outputs(model, head, windows)
    both = [loss.item() for loss in losses(model, head, windows)]
    correct = (here.argmax(-1) == windows[:, 1:]).float().mean().item()
    agreed = (further.argmax(-1) == here[:, 1:].argmax(-1)).float().mean().item()
    return {"loss": both[0], "head_loss": both[1], "top1": correct, "head_agrees": agreed}


def train(model, head, tokens, minutes):
    parameters = [*model.parameters(), *head.parameters()]
    decayed, others = [p for p in parameters if p.dim() > 1], [p for p in parameters if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.05}, {"params": others, "weight_decay": 0}], betas=(0.9, 0.95))
    rng, start, step = torch.Generator().manual_seed(0), time.monotonic(), 0
    while (done := (time.monotonic() - start) / (60 * minutes)) < 1:
        starts = torch.randint(len(tokens) - LENGTH, (BATCH,), generator=rng)
        ids = torch.stack([tokens[s:s + LENGTH + 1] for s in starts])
        rate = RATE * min(1, (step + 1) / WARMUP) * max(0.02, 1 - done)
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss, further = losses(model, head, ids)
        optimizer.zero_grad()
        (loss + HEAD_WEIGHT * further).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step}, {time.monotonic() - start:.0f} s, loss {loss.item():.3f}, head {further.item():.3f}", flush=True)
        step += 1
    return step


def save(folder, model, head, tokenizer):
    model.to(torch.bfloat16).save_pretrained(folder)
    file = folder / "model.safetensors"
    more = {f"mtp.{name}": t.to(torch.bfloat16).contiguous() for name, t in head.state_dict().items()}
    save_file(load_file(file) | more, file, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config |= {"attn_output_gate": True, "mamba_ssm_dtype": "float32", "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=BYTE_LEVEL_SPECIALS[0], pad_token=BYTE_LEVEL_SPECIALS[0]).save_pretrained(folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=25)
    parser.add_argument("--bytes", type=int, default=220_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    parts = text(options.bytes)
    tokenizer = tokenizer_of(parts)
    end = tokenizer.token_to_id(BYTE_LEVEL_SPECIALS[0])
    tokens = torch.tensor([token for part in parts for token in [*tokenizer.encode(part).ids, end]])
    split = len(tokens) * 95 // 100
    windows = lambda t: t[:len(t) // (LENGTH + 1) * (LENGTH + 1)].reshape(-1, LENGTH + 1)[:32]
    config = Qwen3_5TextConfig(**CONFIG, bos_token_id=None, eos_token_id=end, pad_token_id=end)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    head = Head(model.config)
    count = sum(p.numel() for p in [*model.parameters(), *head.parameters()])
    print(f"{len(tokens)} tokens, {count} parameters", flush=True)
    steps = train(model, head, tokens[:split], options.minutes)
    save(options.folder, model, head, tokenizer)
    model, head = model.float(), head.to(torch.bfloat16).float()
    for name, part in (("trained", tokens[split // 2:split]), ("evaluation", tokens[split:])):
        print(f"{steps} steps, {name} text: {evaluate(model, head, windows(part))}")


if __name__ == "__main__":
    main()
