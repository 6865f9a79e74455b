"""Makes the built-in story model: text, tokenizer, training and the GGUF file.

    python make.py --work DIR --steps 2400 --compile    # everything; leaves story.gguf, story.json, loss.csv here
    python make.py --work DIR --more 600 --compile      # train on from the best checkpoint in DIR, on unseen text
    python make.py --work DIR --export-only             # only write the files, from the best checkpoint in DIR

Needs torch, numpy, tokenizers and gguf. Nothing is downloaded: grammar.py writes the text.
"""
import argparse
import csv
import json
import math
import time
from pathlib import Path

import gguf
import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from grammar import Teller, held_out
from model import Config, Model

HERE = Path(__file__).parent
END = "<|endoftext|>"  # begins every story and so ends the one before
VOCAB = 1280
ROW, ROWS = 512, 4  # tokens in a row, rows in a step
STORIES, HELD = 70000, 400
TOKENIZER_STORIES = 40000
PEAK, AGAIN, FLOOR, WARMUP, DECAY = 3e-3, 1.5e-3, 1e-4, 60, 0.1  # learning rates, steps, weight decay
COLUMNS = ("step", "train_loss", "held_out_loss", "seconds")
PROMPTS = ["Once upon a time", "One day, a curious fox", "Deep in the forest, there lived"]


def write_text():
    """Stories to train on, stories of held-out triples, and the bits of choice in a story."""
    teller, train, held = Teller(1), [], []
    while len(train) < STORIES or len(held) < HELD:
        story, triple = teller.story()
        (held if held_out(triple) else train).append(story)
    return train[:STORIES], held[:HELD], teller.bits / (len(train) + len(held))


def train_tokenizer(stories, path):
    """Byte-level BPE as GPT-2 has it: any byte can be encoded."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(stories, trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=[END], initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False))
    tokenizer.save(str(path))
    return tokenizer


def encode(tokenizer, story):
    return [0] + tokenizer.encode(story).ids  # END is id 0


def pack(tokenizer, stories):
    """Rows of ROW + 1 tokens, each from the start of a story; what is cut off starts no new row."""
    rows, row = [], []
    for story in stories:
        row += encode(tokenizer, story)
        if len(row) > ROW:
            rows.append(row[: ROW + 1])
            row = []
    return torch.tensor(rows)


def loss_of(model, rows):
    logits = model(rows[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


@torch.no_grad()
def evaluate(model, rows):
    return sum(loss_of(model, part).item() * len(part) for part in rows.split(8)) / len(rows)


def train(model, rows, held, peak, log, work, speed_up):
    """One pass over `rows`: AdamW, warm-up then cosine; adds to `log` and keeps the best checkpoint."""
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0.0}],
                                  betas=(0.9, 0.95))
    run = torch.compile(model) if speed_up else model
    before, spent = (log[-1][0], log[-1][3]) if log else (0, 0.0)
    best = min((entry[2] for entry in log), default=math.inf)
    steps, losses, start = len(rows) // ROWS, [], time.time()
    for step in range(1, steps + 1):
        cosine = (1 + math.cos(math.pi * step / steps)) / 2
        for group in optimizer.param_groups:
            group["lr"] = min(step / WARMUP, 1) * (FLOOR + (peak - FLOOR) * cosine)
        loss = loss_of(run, rows[(step - 1) * ROWS : step * ROWS])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if step % 100 == 0 or step == steps:
            log.append((before + step, round(sum(losses) / len(losses), 4), round(evaluate(model, held[:32]), 4),
                        round(spent + time.time() - start, 1)))
            losses.clear()
            print(*log[-1], flush=True)
            with open(work / "loss.csv", "w", newline="") as f:
                csv.writer(f, lineterminator="\n").writerows([COLUMNS, *log])
            if log[-1][2] < best:
                best = log[-1][2]
                torch.save(model.state_dict(), work / "best.part")
                (work / "best.part").replace(work / "best.pt")


def write_gguf(model, tokenizer, path):
    """Q8_0 matrices, F32 norms; gives back the weights as the file holds them, in f32."""
    c, spec = model.c, json.loads(tokenizer.to_str())["model"]
    w = gguf.GGUFWriter(path, "llama")
    w.add_name("tabla-story")
    w.add_license("MIT OR Apache-2.0")
    w.add_description("Small stories, trained from scratch on text of a grammar of our own")
    w.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    w.add_vocab_size(c.vocab)
    w.add_context_length(c.context)
    w.add_embedding_length(c.dim)
    w.add_block_count(c.layers)
    w.add_feed_forward_length(c.ffn)
    w.add_head_count(c.heads)
    w.add_head_count_kv(c.kv_heads)
    w.add_rope_dimension_count(c.dim // c.heads)
    w.add_rope_freq_base(c.theta)
    w.add_layer_norm_rms_eps(c.eps)
    tokens = sorted(spec["vocab"], key=spec["vocab"].get)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(tokens)
    w.add_token_types([gguf.TokenType.CONTROL if t == END else gguf.TokenType.NORMAL for t in tokens])
    w.add_token_merges([" ".join(pair) for pair in spec["merges"]])
    w.add_bos_token_id(0)
    w.add_eos_token_id(0)
    w.add_add_bos_token(True)
    w.add_add_eos_token(False)
    stored = {}
    for name, p in model.state_dict().items():
        array = p.numpy()
        if array.ndim == 2:
            packed = gguf.quants.quantize(array, gguf.GGMLQuantizationType.Q8_0)
            w.add_tensor(name, packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
            array = gguf.quants.dequantize(packed, gguf.GGMLQuantizationType.Q8_0)
        else:
            w.add_tensor(name, array)
        stored[name] = torch.from_numpy(np.ascontiguousarray(array, np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return stored


def export(model, tokenizer, held, work):
    """story.gguf, story.json and loss.csv next to this script, all from the best checkpoint."""
    model.load_state_dict(torch.load(work / "best.pt"))
    (HERE / "loss.csv").write_text((work / "loss.csv").read_text())
    model.load_state_dict(write_gguf(model, tokenizer, HERE / "story.gguf.part"))
    (HERE / "story.gguf.part").replace(HERE / "story.gguf")
    loss = evaluate(model, held)
    goldens = []
    for prompt in PROMPTS:
        ids = encode(tokenizer, prompt)
        out = model.generate(ids, 64, stop=None)
        logits = model(torch.tensor([ids + out]))[0, len(ids) - 1 : -1]
        top = logits.topk(2).values
        goldens.append({"prompt": prompt, "prompt_ids": ids, "greedy_ids": out, "text": tokenizer.decode(out),
                        "min_margin": round((top[:, 0] - top[:, 1]).min().item(), 5)})
    (HERE / "story.json").write_text(json.dumps({"held_out_loss": round(loss, 4), "goldens": goldens}, indent=1) + "\n")
    print(f"held-out loss of the Q8_0 file {loss:.4f}, {(HERE / 'story.gguf').stat().st_size} bytes")
    ids = encode(tokenizer, PROMPTS[0])
    for temperature in (0.0, 0.8):
        print(f"temperature {temperature}:", PROMPTS[0] + tokenizer.decode(model.generate(ids, 300, 0, temperature)))


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--work", type=Path, required=True)
    args.add_argument("--steps", type=int, default=2400)
    args.add_argument("--more", type=int, default=0)
    args.add_argument("--threads", type=int, default=1)
    args.add_argument("--compile", action="store_true")
    args.add_argument("--export-only", action="store_true")
    args = args.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    args.work.mkdir(parents=True, exist_ok=True)
    stories, held, bits = write_text()
    saved = args.work / "tokenizer.json"
    again = args.more or args.export_only
    tokenizer = Tokenizer.from_file(str(saved)) if again else train_tokenizer(stories[:TOKENIZER_STORIES], saved)
    model = Model(Config(vocab=tokenizer.get_vocab_size()))
    held = pack(tokenizer, held)
    if not args.export_only:
        log = []
        if args.more:
            with open(args.work / "loss.csv") as f:
                log = [(int(step), *map(float, rest)) for step, *rest in list(csv.reader(f))[1:]]
            model.load_state_dict(torch.load(args.work / "best.pt"))
        per_story = sum(len(encode(tokenizer, s)) for s in stories[:2000]) / 2000
        print(f"{sum(p.numel() for p in model.parameters())} parameters, vocabulary {model.c.vocab}, {per_story:.1f} tokens "
              f"and {bits:.1f} bits a story, floor {bits * math.log(2) / per_story:.4f} nats a token")
        # Each step has rows of its own, so no story is seen twice.
        first = log[-1][0] * ROWS if log else 0
        count = (args.more or args.steps) * ROWS
        rows = pack(tokenizer, stories)[first : first + count]
        assert len(rows) == count, "not enough text for one pass"
        train(model, rows, held, AGAIN if args.more else PEAK, log, args.work, args.compile)
    export(model, tokenizer, held, args.work)


if __name__ == "__main__":
    main()
