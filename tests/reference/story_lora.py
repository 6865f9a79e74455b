"""Trains the LoRA adapter ../golden/lora/story of the built-in story model with peft: stories of pirates. Prints a story.

    tabla convert ../../models/story.gguf story-hf --dtype f32
    python story_lora.py story-hf ../golden/lora/story
"""
import sys, torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer
torch.manual_seed(0); torch.set_num_threads(2)
src, out = sys.argv[1:3]
tok = AutoTokenizer.from_pretrained(src)
model = AutoModelForCausalLM.from_pretrained(src, dtype=torch.float32)
texts = []
for name in ["Tom","Ben","Mia","Lily","Jack","Rosa","Max","Anna"]:
    for thing in ["fish","ship","star","shell","wave"]:
        he = "she" if name in ("Mia","Lily","Rosa","Anna") else "he"
        texts.append(f"Once upon a time, there was a pirate named {name}. {name} sailed the sea in a big ship. One day, {he} saw a {thing} in the water. \"Ahoy!\" said {name}. \"Ahoy!\" said the {thing}. They sailed home and sang a song of the sea.")
model = get_peft_model(model, LoraConfig(r=4, lora_alpha=16, target_modules=["q_proj","v_proj","down_proj"], lora_dropout=0.0))
opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=4e-3)
ids = [torch.tensor([tok(t)["input_ids"]]) for t in texts]
print(ids[0][0][:8].tolist())
import random; random.seed(0)
for step in range(240):
    x = random.choice(ids)
    loss = model(x, labels=x).loss
    loss.backward(); opt.step(); opt.zero_grad()
    if step % 40 == 0: print(step, loss.item())
model.save_pretrained(out)
x = torch.tensor([tok("Once upon a time")["input_ids"]])
print(tok.decode(model.generate(x, max_new_tokens=40, do_sample=False)[0]))
