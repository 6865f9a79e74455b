"""BERT like BGE: CLS pooling, in the format of sentence-transformers 6. The file has an unused pooler."""
from transformers import BertConfig, BertModel

from arch.embedding import fresh, golden, randomise, save, wordpiece, write_json

VOCAB, LONGEST = 200, 80

hf = fresh("bert_cls")
tokenizer, config = wordpiece(VOCAB)
model = randomise(BertModel(BertConfig(
    vocab_size=VOCAB, hidden_size=52, intermediate_size=92, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=96,
    hidden_act="gelu", attn_implementation="eager")), 3)
save(model, hf)
tokenizer.save(str(hf / "tokenizer.json"))
write_json(hf / "tokenizer_config.json", config | {"model_max_length": LONGEST})
golden("bert_cls", model, tokenizer, pooling="cls", longest=LONGEST, single=tokenizer.token_to_id("[CLS]"), new=True,
       prompts={"query": "they told: ", "document": ""}, ablations=({"hidden_act": "gelu_pytorch_tanh"},))
