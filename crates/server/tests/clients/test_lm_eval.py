"""Tests of the server with the LM Evaluation Harness, against tasks in a temporary folder.

    pip install "lm-eval[api]" pytest
    TABLA_URL=http://127.0.0.1:8080 TABLA_MODEL=gemma pytest test_lm_eval.py

The harness has no tokenizer: it uses `/tokenize`, `/detokenize` and `/tokenizer_info` of the server.
"""

import json
import math
import os
import urllib.request

import lm_eval
import pytest
from lm_eval.tasks import TaskManager

URL = os.environ.get("TABLA_URL", "http://127.0.0.1:8080").rstrip("/")
MODEL = os.environ.get("TABLA_MODEL", "gemma")

STORIES = [
    {"text": "Once upon a time", "good": " there was a girl.", "bad": " zq xv kj 77."},
    {"text": "The dog ran", "good": " to the tree.", "bad": " 5 # % qq zz."},
    {"text": "She was", "good": " very happy.", "bad": " xx;; {9} vv."},
]
COMMON = """
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
target_delimiter: ""
doc_to_text: "{{{{text}}}}"
"""
TASKS = {
    "choice": """
task: choice
output_type: multiple_choice
doc_to_choice: "{{[good, bad]}}"
doc_to_target: 0
metric_list: [{metric: acc}]
""",
    "perplexity": """
task: perplexity
output_type: loglikelihood_rolling
doc_to_target: "{{text}}{{good}}"
metric_list: [{metric: byte_perplexity}]
""",
    "generation": """
task: generation
output_type: generate_until
doc_to_target: "{{good}}"
generation_kwargs: {until: ["."], max_gen_toks: 16, do_sample: false}
metric_list: [{metric: exact_match}]
""",
}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    data = folder / "stories.json"
    data.write_text(json.dumps(STORIES))
    for name, text in TASKS.items():
        (folder / f"{name}.yaml").write_text(text + COMMON.format(data=data))
    os.environ["HF_DATASETS_CACHE"] = str(folder / "cache")
    return TaskManager(include_path=str(folder), include_defaults=False)


def evaluate(tasks, name, model="local-completions", **arguments):
    path = "chat/completions" if model == "local-chat-completions" else "completions"
    arguments = {"model": MODEL, "base_url": f"{URL}/v1/{path}", "max_retries": 1, **arguments}
    os.environ.setdefault("OPENAI_API_KEY", os.environ.get("TABLA_KEY", "none"))
    results = lm_eval.simple_evaluate(
        model=model,
        model_args=arguments,
        tasks=[name],
        task_manager=tasks,
        apply_chat_template=model == "local-chat-completions",
        bootstrap_iters=0,
        log_samples=True,
    )
    return results["results"][name], sorted(results["samples"][name], key=lambda sample: sample["doc_id"])


def scores(samples):
    """Returns log-likelihood and greedy flag of each choice."""
    return [answer for sample in samples for answer in sample["filtered_resps"]]


def http(path, body):
    request = urllib.request.Request(f"{URL}{path}", json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def test_likelihoods_of_choices(tasks):
    result, samples = evaluate(tasks, "choice", tokenizer_backend="remote")
    assert result["acc,none"] == 1
    for likelihood, _ in scores(samples):
        assert math.isfinite(likelihood) and likelihood < 0

    # The same numbers from the probabilities of the prompt, with the request of another endpoint.
    text = STORIES[0]["text"] + STORIES[0]["good"]
    tokens = http("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]
    context = len(http("/tokenize", {"prompt": STORIES[0]["text"], "add_special_tokens": False})["tokens"])
    request = {"model": MODEL, "prompt": tokens, "max_tokens": 0, "logprobs": 1, "echo": True}
    log_probabilities = http("/v1/completions", request)["choices"][0]["logprobs"]["token_logprobs"]
    assert len(log_probabilities) == len(tokens)
    assert scores(samples)[0][0] == pytest.approx(sum(log_probabilities[context:]), abs=1e-3)


@pytest.mark.parametrize("options", [{"batch_size": 3}, {"num_concurrent": 4}], ids=["batch", "concurrent"])
def test_likelihoods_do_not_depend_on_the_batch(tasks, options):
    _, one = evaluate(tasks, "choice", tokenizer_backend="remote")
    _, many = evaluate(tasks, "choice", tokenizer_backend="remote", **options)
    assert scores(one) == scores(many)


def test_perplexity(tasks):
    result, _ = evaluate(tasks, "perplexity", tokenizer_backend="remote", max_length=512)
    assert 1 < result["byte_perplexity,none"] < 256


@pytest.mark.parametrize("backend", ["remote", "None"])
def test_generation_with_completions(tasks, backend):
    _, samples = evaluate(tasks, "generation", tokenizer_backend=backend)
    texts = [sample["filtered_resps"][0] for sample in samples]
    assert len(texts) == len(STORIES) and all(texts) and not any("." in text for text in texts)


def test_generation_with_chat(tasks):
    _, samples = evaluate(tasks, "generation", model="local-chat-completions")
    assert len(samples) == len(STORIES)
    assert not any("." in sample["filtered_resps"][0] for sample in samples)
