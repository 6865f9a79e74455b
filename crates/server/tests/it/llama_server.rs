//! What clients of llama-server send and expect.

use crate::client::{TestServer, config};
use crate::completions::{PROMPT, expected};
use serde_json::{Value, json};
use tabla_server::{MetricsCompat, ServerEvent};
use tabla_testkit::fixed_json;

#[test]
fn limits_of_minus_one_and_zero_have_the_meaning_of_llama_cpp() {
    let server = TestServer::new();
    let text = expected(1, u32::MAX);
    for field in ["max_tokens", "max_completion_tokens", "n_predict"] {
        let request = json!({ "prompt": PROMPT, "seed": 1, field: -1 });
        let whole = server.post("/v1/completions", &request).json();
        assert_eq!(whole["choices"][0]["text"], text, "{field}");
        let native = server.post("/completion", &request).json();
        assert_eq!(native["content"], text, "{field}");
    }
    let messages = json!([{ "role": "user", "content": "a long message for the cache" }]);
    for (path, mut request) in [
        (
            "/v1/completions",
            json!({ "prompt": PROMPT, "max_tokens": 0 }),
        ),
        (
            "/v1/chat/completions",
            json!({ "messages": messages, "max_tokens": 0 }),
        ),
    ] {
        let before = server.get("/metrics").body;
        let answer = server.post(path, &request).json();
        let choice = &answer["choices"][0];
        let text = match path {
            "/v1/completions" => &choice["text"],
            _ => &choice["message"]["content"],
        };
        assert_eq!(
            (text, &choice["finish_reason"]),
            (&json!(""), &json!("length")),
            "{path}"
        );
        assert_eq!(answer["usage"]["completion_tokens"], 0, "{path}");
        let generated = |text: &str| {
            let lines = text.lines().map(str::to_string);
            lines
                .filter(|line| line.starts_with("tabla_generation_tokens_total"))
                .collect::<Vec<_>>()
        };
        assert_eq!(generated(&before), generated(&server.get("/metrics").body));
        // The prompt is in the cache.
        let again = server.post(path, &request).json();
        let cached = &again["usage"]["prompt_tokens_details"]["cached_tokens"];
        assert!(cached.as_u64() > Some(0), "{path}: {again}");
        request["stream"] = true.into();
        let events = server.post(path, &request).events();
        assert_eq!(
            events.last().expect("events")["choices"][0]["finish_reason"],
            "length"
        );
    }
    for (path, request) in [
        (
            "/v1/responses",
            json!({ "input": "Hi", "max_output_tokens": 0 }),
        ),
        (
            "/v1/messages",
            json!({ "messages": messages, "max_tokens": 0 }),
        ),
        ("/completion", json!({ "prompt": PROMPT, "n_predict": 0 })),
    ] {
        let answer = server.post(path, &request);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    }
}

#[test]
fn a_model_without_a_chat_template_has_chatml() {
    let mut config = config();
    config.models[0].chat_template = None;
    let server = TestServer::with(config);
    let messages = json!([{ "role": "user", "content": "Hi" }]);
    let chat = json!({ "messages": messages, "max_tokens": 2, "verbose": true });
    for _ in 0..2 {
        let answer = server.post("/v1/chat/completions", &chat);
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert_eq!(
            answer.json()["__verbose"]["prompt"],
            "<|endoftext|><|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        );
    }
    let events = server.events.lock().expect("no panic");
    let is_warning = |event: &&ServerEvent| matches!(event, ServerEvent::Warning(text) if text.contains("chatml"));
    assert_eq!(events.iter().filter(is_warning).count(), 1);
    drop(events);
    // The page completes text with such a model.
    let listed = server.get("/v1/models").json();
    assert_eq!(
        listed["data"][0]["capabilities"],
        fixed_json!(["completion"])
    );
}

/// Returns the prompt of a conversation.
fn prompt(server: &TestServer, mut fields: Value) -> String {
    if fields.get("messages").is_none() {
        fields["messages"] = fixed_json!([{ "role": "user", "content": "Hi" }]);
    }
    let answer = server.post("/apply-template", &fields);
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["prompt"]
        .as_str()
        .expect("a prompt")
        .to_string()
}

#[test]
fn the_configured_template_replaces_that_of_the_model() {
    let mut config = config();
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    config.models[0].source = tabla::Source::from(&golden.join("reranker/hf"));
    config.models[0].chat_template = None;
    let own = prompt(&TestServer::with(config.clone()), json!({}));
    config.models[0].chat_template = Some("zephyr".to_string());
    let other = prompt(&TestServer::with(config), json!({}));
    assert!(!own.contains("<|user|>"), "{own}");
    assert!(other.contains("<|user|>\nHi"), "{other}");
}

#[test]
fn prompts_end_as_requested() {
    let server = TestServer::new();
    assert_eq!(prompt(&server, json!({})), "user: Hi\nassistant: ");
    let without = json!({ "add_generation_prompt": false });
    assert_eq!(prompt(&server, without), "user: Hi\n");
    let messages = fixed_json!([
        { "role": "user", "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] },
        { "role": "assistant", "content": "Well" },
    ]);
    for (extra, expected) in [
        (json!({}), "user: a\nb\nassistant: Well"),
        (
            json!({ "continue_final_message": true, "add_generation_prompt": false }),
            "user: a\nb\nassistant: Well",
        ),
        (
            json!({ "continue_final_message": false }),
            "user: a\nb\nassistant: Well\nassistant: ",
        ),
        (
            json!({ "add_generation_prompt": false }),
            "user: a\nb\nassistant: Well\n",
        ),
    ] {
        let mut request = extra.clone();
        request["messages"] = messages.clone();
        assert_eq!(prompt(&server, request), expected, "{extra}");
    }
    for extra in [
        json!({ "messages": messages, "continue_final_message": true, "add_generation_prompt": true }),
        fixed_json!({ "messages": [{ "role": "user", "content": "a" }], "continue_final_message": true }),
    ] {
        let answer = server.post("/apply-template", &extra);
        let error = answer.json();
        assert_eq!(
            (answer.status, &error["error"]["param"]),
            (400, &json!("continue_final_message"))
        );
    }
    let counted = server.post(
        "/chat/completions/input_tokens",
        &json!({ "messages": messages }),
    );
    let tokenized = json!({ "content": "user: a\nb\nassistant: Well" });
    let tokens = server.post("/tokenize", &tokenized).json();
    // The text that the answer continues is tokenized apart from the prompt.
    let count = counted.json()["input_tokens"].as_u64().expect("a number");
    let whole = tokens["count"].as_u64().expect("a number");
    assert!((whole..whole + 2).contains(&count), "{count} {whole}");
}

#[test]
fn native_answers_have_the_fields_of_llama_cpp() {
    let server = TestServer::new();
    let request = json!({
        "prompt": PROMPT, "n_predict": 12, "seed": 7, "top_k": 30, "stop": ["zzz"], "return_tokens": true,
        "logit_bias": [[3, 1.5]], "ignore_eos": true,
    });
    let answer = server.post("/completion", &request).json();
    let settings = &answer["generation_settings"];
    for (name, value) in [
        ("seed", json!(7)),
        ("n_predict", json!(12)),
        ("max_tokens", json!(12)),
        ("top_k", json!(30)),
        ("min_p", json!(0.05f32)),
        ("stop", json!(["zzz"])),
        ("ignore_eos", json!(true)),
        ("stream", json!(false)),
        (
            "samplers",
            json!([
                "penalties",
                "dry",
                "top_n_sigma",
                "top_k",
                "typ_p",
                "top_p",
                "min_p",
                "xtc",
                "temperature"
            ]),
        ),
    ] {
        assert_eq!(settings[name], value, "{name}");
    }
    // Stop tokens, which are the beginning of a story, have the bias null.
    let biases = fixed_json!([{ "token": 3, "bias": 1.5 }, { "token": 0, "bias": null }]);
    assert_eq!(settings["logit_bias"], biases);
    assert_eq!(answer["prompt"], format!("<|endoftext|>{PROMPT}"));
    assert_eq!(answer["has_new_line"], false);
    assert_eq!(answer["stop_type"], "limit");
    let tokens = json!({ "tokens": answer["tokens"] });
    let text = server.post("/detokenize", &tokens).json();
    assert_eq!(text["content"], answer["content"]);
    assert_eq!(answer["tokens"].as_array().map(Vec::len), Some(12));

    let mut stream = request.clone();
    stream["stream"] = true.into();
    stream["timings_per_token"] = true.into();
    let mut events = server.post("/completion", &stream).events();
    let end = events.pop().expect("events");
    assert_eq!(end["tokens_predicted"], 12);
    assert_eq!(end["generation_settings"]["stream"], true);
    let streamed = events
        .iter()
        .flat_map(|event| event["tokens"].as_array().expect("tokens"));
    assert_eq!(
        streamed.collect::<Vec<_>>(),
        answer["tokens"]
            .as_array()
            .expect("tokens")
            .iter()
            .collect::<Vec<_>>()
    );
    for event in &events {
        assert_eq!(event["timings"]["predicted_n"], event["tokens_predicted"]);
    }
    // Without `/v1`, the endpoint is that of llama.cpp.
    let native = server.post("/completions", &request).json();
    assert_eq!(native["content"], answer["content"]);
    assert_eq!(native["tokens"], answer["tokens"]);
}

#[test]
fn speeds_are_those_of_decoding_steps() {
    let server = TestServer::new();
    let timings = |count: u32| {
        let request = json!({ "prompt": PROMPT, "n_predict": count, "ignore_eos": true });
        server.post("/completion", &request).json()["timings"].clone()
    };
    let number = |timings: &Value, name: &str| timings[name].as_f64().expect("a number");
    // The first token costs no step.
    let one = timings(1);
    assert_eq!(number(&one, "predicted_per_second"), 0.0);
    assert_eq!(number(&one, "predicted_per_token_ms"), 0.0);
    let many = timings(9);
    let millis = number(&many, "predicted_ms");
    assert!((number(&many, "predicted_per_second") - 8e3 / millis).abs() < 1e-6);
    assert!((number(&many, "predicted_per_token_ms") - millis / 8.0).abs() < 1e-6);
    let computed = number(&one, "prompt_n");
    let millis = number(&one, "prompt_ms");
    assert!((number(&one, "prompt_per_token_ms") * computed - millis).abs() < 1e-6);
}

#[test]
fn prompts_may_be_lists_of_texts_and_ids() {
    let server = TestServer::new();
    let ids = json!({ "content": PROMPT, "add_special": true });
    let ids = server.post("/tokenize", &ids).json()["tokens"].clone();
    let text = expected(3, 8);
    let post = |prompt: &Value| {
        let request = json!({ "prompt": prompt, "n_predict": 8, "seed": 3 });
        let answer = server.post("/completion", &request);
        assert_eq!(answer.status, 200, "{prompt}: {}", answer.body);
        answer.json()
    };
    let object = json!({ "prompt_string": PROMPT });
    for prompt in [json!(PROMPT), ids.clone(), object.clone(), json!([PROMPT])] {
        assert_eq!(post(&prompt)["content"], text, "{prompt}");
    }
    let several = post(&json!([PROMPT, ids, object]));
    let several = several.as_array().expect("a list");
    assert_eq!(several.len(), 3);
    for (index, answer) in several.iter().enumerate() {
        assert_eq!(answer["index"], index);
        assert_eq!(answer["content"], text);
        assert_eq!(answer["tokens_predicted"], 8);
    }
    // Ids and texts in one prompt.
    let mixed = post(&json!([PROMPT, 5, " x", 6]));
    let pieces = json!({ "content": PROMPT, "add_special": true });
    let before = server.post("/tokenize", &pieces).json()["count"].clone();
    let x = server.post("/tokenize", &json!({ "content": " x" })).json()["count"].clone();
    let count = before.as_u64().zip(x.as_u64()).map(|(a, b)| a + b + 2);
    assert_eq!(mixed["tokens_evaluated"].as_u64(), count);
    let request = json!({ "prompt": [PROMPT, PROMPT], "n_predict": 8, "seed": 3, "stream": true });
    let events = server.post("/completion", &request).events();
    for index in 0..2 {
        let of_index = events.iter().filter(|event| event["index"] == index);
        let contents = of_index.filter_map(|event| event["content"].as_str());
        assert_eq!(contents.collect::<String>(), text);
    }
    let media = json!({ "prompt": { "prompt_string": "a", "multimodal_data": ["x"] } });
    let error = server.post("/completion", &media).json();
    assert_eq!(error["error"]["param"], "prompt.multimodal_data");
}

#[test]
fn fields_of_llama_cpp_work_or_are_refused_by_name() {
    let server = TestServer::new();
    for (name, refused, accepted) in [
        ("min_keep", json!(2), json!(0)),
        ("adaptive_target", json!(0.5), json!(-1.0)),
        ("lora", fixed_json!([{ "id": 0, "scale": 1.0 }]), json!([])),
        ("post_sampling_probs", json!(true), json!(false)),
        ("grammar_lazy", json!(true), json!(false)),
        ("grammar_triggers", json!(["a"]), json!([])),
        (
            "samplers",
            json!(["top_p", "top_k"]),
            json!(["top_k", "top_p", "infill"]),
        ),
        ("mirostat", json!(1), json!(2)),
        ("n_indent", json!(-1), json!(0)),
        ("t_max_predict_ms", json!(-2), json!(-1)),
        ("n_probs", json!(21), json!(0)),
    ] {
        for path in ["/completion", "/v1/chat/completions"] {
            if name == "n_probs" && path != "/completion" {
                continue;
            }
            let request = |value: &Value| {
                json!({
                    "prompt": "a", "messages": [{ "role": "user", "content": "a" }], "n_predict": 1, name: value,
                })
            };
            let answer = server.post(path, &request(&refused));
            assert_eq!(
                (answer.status, &answer.json()["error"]["param"]),
                (400, &json!(name)),
                "{path}: {}",
                answer.body
            );
            let answer = server.post(path, &request(&accepted));
            assert_eq!(answer.status, 200, "{path} {name}: {}", answer.body);
        }
    }
    // They change at most the speed.
    let hints = json!({
        "prompt": PROMPT, "n_predict": 8, "seed": 3, "cache_prompt": false, "id_slot": 2, "n_keep": -1,
        "n_discard": 4, "n_cache_reuse": 256, "speculative.n_max": 4, "backend_sampling": true,
    });
    let answer = server.post("/completion", &hints).json();
    assert_eq!(answer["content"], expected(3, 8));
    // Without the other samplers, the likeliest token remains at any temperature.
    let greedy = json!({ "prompt": PROMPT, "n_predict": 12, "temperature": 0 });
    let mut listed = greedy.clone();
    listed["samplers"] = json!(["top_k", "temperature"]);
    listed["temperature"] = json!(50);
    listed["top_k"] = json!(1);
    listed["repeat_penalty"] = json!(50);
    let text = |request: &Value| server.post("/completion", request).json()["content"].clone();
    assert_eq!(text(&listed), text(&greedy));
}

#[test]
fn lines_end_answers() {
    let server = TestServer::new();
    let prompt = PROMPT.repeat(30);
    let complete = |grammar: &str, field: &str, value: i64| {
        let grammar = format!("root ::= {}", json!(grammar));
        let request =
            json!({ "prompt": prompt, "n_predict": 20, "grammar": grammar, field: value });
        server.post("/completion", &request).json()
    };
    // The time of the prompt does not count.
    let late = complete("\nab", "t_max_predict_ms", 1);
    assert_eq!(
        (&late["content"], &late["has_new_line"]),
        (&json!("\nab"), &json!(true))
    );
    for (indent, content) in [(0, "a\n b\n  c"), (1, "a\n b\n  c"), (2, "a\n ")] {
        let answer = complete("a\n b\n  c", "n_indent", indent);
        assert_eq!(answer["content"], content, "{indent}");
    }
}

#[test]
fn streams_report_the_progress_of_the_prompt() {
    let server = TestServer::new();
    let text = PROMPT.repeat(30);
    let messages = json!([{ "role": "user", "content": text }]);
    for (path, mut request) in [
        ("/completion", json!({ "prompt": text, "n_predict": 2 })),
        (
            "/v1/completions",
            json!({ "prompt": format!("b{text}"), "max_tokens": 2 }),
        ),
        (
            "/v1/chat/completions",
            json!({ "messages": messages, "max_tokens": 2 }),
        ),
        (
            "/v1/responses",
            json!({ "input": format!("c{text}"), "max_output_tokens": 2 }),
        ),
    ] {
        request["stream"] = true.into();
        let without = server.post(path, &request).events();
        assert!(
            without
                .iter()
                .all(|event| event.get("prompt_progress").is_none()),
            "{path}"
        );
        request["return_progress"] = true.into();
        let events = server.post(path, &request).events();
        let reports: Vec<&Value> = events
            .iter()
            .filter_map(|event| event.get("prompt_progress"))
            .collect();
        let first = reports.first().expect("a report");
        assert_eq!(first["processed"], first["cache"], "{path}");
        // The first request has filled the cache.
        assert!(first["cache"].as_u64() > Some(0), "{path}: {first}");
        let last = reports.last().expect("a report");
        assert_eq!(last["processed"], last["total"], "{path}");
    }
}

#[test]
fn embeddings_and_rankings_have_the_formats_of_other_servers() {
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let mut config = config();
    config.models[0].source = tabla::Source::from(&golden.join("arch/bert/hf"));
    config.models[0].chat_template = None;
    config.metrics_compat = Some(MetricsCompat::LlamaCpp);
    let server = TestServer::with(config.clone());
    let openai = server
        .post("/v1/embeddings", &json!({ "input": ["a b", "c"] }))
        .json();
    let rows: Vec<Value> = (0..2)
        .map(|at| json!({ "index": at, "embedding": [openai["data"][at]["embedding"]] }))
        .collect();
    for path in ["/embedding", "/embeddings"] {
        let native = server
            .post(path, &json!({ "content": ["a b", "c"] }))
            .json();
        assert_eq!(native, json!(rows), "{path}");
    }
    for input in [
        fixed_json!([{ "prompt_string": "a b" }]),
        fixed_json!([{ "content": [{ "type": "text", "text": "a " }, { "type": "text", "text": "b" }] }]),
    ] {
        let answer = server
            .post("/v1/embeddings", &json!({ "input": input }))
            .json();
        assert_eq!(
            answer["data"][0]["embedding"], openai["data"][0]["embedding"],
            "{input}"
        );
    }
    let tokens = openai["usage"]["prompt_tokens"].as_u64().expect("a number");
    let one = json!({ "content": "a b", "add_special": true });
    let one = server.post("/tokenize", &one).json()["count"]
        .as_u64()
        .expect("a number");
    let total = 3 * tokens + 2 * one;
    let metrics = server.get("/metrics").body;
    for line in [
        "tabla_embedding_requests_total{model=\"story\"} 5".to_string(),
        format!("tabla_embedding_tokens_total{{model=\"story\"}} {total}"),
        format!("llamacpp:prompt_tokens_total {total}"),
        "llamacpp:tokens_predicted_total 0".to_string(),
    ] {
        assert!(
            metrics.lines().any(|other| other == line),
            "{line}\n{metrics}"
        );
    }

    config.models[0].source = tabla::Source::from(&golden.join("cross_encoder/xlm_roberta/hf"));
    let server = TestServer::with(config);
    let texts = json!(["the sun", "a moon", "rain"]);
    let jina = json!({ "query": "sun", "documents": texts, "top_n": 2, "return_documents": true });
    let jina = server.post("/v1/rerank", &jina).json();
    let expected = jina["results"].as_array().expect("results").iter().map(|result| {
        json!({ "index": result["index"], "score": result["relevance_score"], "text": result["document"]["text"] })
    });
    let tei = json!({ "query": "sun", "texts": texts, "top_n": 2, "return_text": true });
    let tei = server.post("/rerank", &tei).json();
    assert_eq!(tei, json!(expected.collect::<Vec<_>>()));
    let wrong = server
        .post("/rerank", &json!({ "query": "sun", "texts": [1] }))
        .json();
    assert_eq!(wrong["error"]["param"], "texts[0]");
}

#[test]
fn metrics_have_the_names_of_llama_cpp() {
    let mut config = config();
    config.metrics_compat = Some(MetricsCompat::LlamaCpp);
    let server = TestServer::with(config);
    let request = json!({ "prompt": PROMPT, "n_predict": 4, "ignore_eos": true });
    let (mut computed, mut cached) = (0, 0);
    for _ in 0..2 {
        let timings = server.post("/completion", &request).json()["timings"].clone();
        computed += timings["prompt_n"].as_u64().expect("a number");
        cached += timings["cache_n"].as_u64().expect("a number");
    }
    assert!(cached > 0);
    let metrics = server.get("/metrics");
    let sequence = (computed + cached) / 2 + 4;
    for line in [
        format!("llamacpp:prompt_tokens_total {computed}"),
        format!("llamacpp:prompt_tokens_cached_total {cached}"),
        format!("llamacpp:n_tokens_max {sequence}"),
        "llamacpp:tokens_predicted_total 8".to_string(),
        "llamacpp:spec_decode_num_draft_tokens_total 0".to_string(),
    ] {
        assert!(
            metrics.body.lines().any(|other| other == line),
            "{line}\n{}",
            metrics.body
        );
    }
    assert!(metrics.header("process-start-time-unix").is_some());
}
