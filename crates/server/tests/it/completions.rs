//! `/v1/completions`, `/completion`, tokens and scores.

use crate::client::TestServer;
use serde_json::{Value, json};
use tabla::text::EncodeOptions;
use tabla::{GenerateOptions, Model, Sampling, Session, Source};
use tabla_testkit::fixed_json;

pub(crate) const PROMPT: &str = "Once upon a time";

/// Returns the text that the library generates.
pub(crate) fn expected(seed: u64, tokens: u32) -> String {
    let model = Model::builder(Source::BuiltIn)
        .threads(1)
        .load()
        .expect("the built-in model");
    let prompt = model
        .tokenizer()
        .encode(PROMPT, EncodeOptions::PROMPT)
        .expect("tokens");
    let mut session = Session::new(model);
    session.prefill(&prompt).expect("a prompt");
    let options = GenerateOptions::default()
        .max_tokens(tokens)
        .sampling(Sampling::default().seed(seed));
    let generation = session.generate(&options).expect("a generation");
    generation
        .map(|piece| piece.expect("a piece").text)
        .collect()
}

/// Joins the texts of a stream.
fn streamed(events: &[Value], index: u64) -> String {
    let choices = events.iter().filter_map(|event| event["choices"].get(0));
    let of_index = choices.filter(|choice| choice["index"] == index);
    of_index
        .filter_map(|choice| choice["text"].as_str())
        .collect()
}

#[test]
fn text_is_that_of_the_library_alone_and_under_load() {
    let server = TestServer::new();
    let request = |seed: u64, stream: bool| json!({ "prompt": PROMPT, "max_tokens": 24, "seed": seed, "stream": stream });
    let texts: Vec<String> = (0..6).map(|seed| expected(seed, 24)).collect();
    std::thread::scope(|scope| {
        for (seed, text) in (0..).zip(&texts) {
            let server = &server;
            scope.spawn(move || {
                let whole = server.post("/v1/completions", &request(seed, false)).json();
                assert_eq!(whole["choices"][0]["text"], *text, "seed {seed}");
                let stream = server.post("/v1/completions", &request(seed, true));
                assert_eq!(streamed(&stream.events(), 0), *text, "seed {seed}");
                let own = json!({ "prompt": PROMPT, "n_predict": 24, "seed": seed });
                let own = server.post("/completion", &own).json();
                assert_eq!(own["content"], *text, "seed {seed}");
            });
        }
    });
}

#[test]
fn choices_have_seeds_and_indices() {
    let server = TestServer::new();
    let request = json!({ "prompt": [PROMPT, PROMPT], "n": 3, "max_tokens": 16, "seed": 5 });
    let answer = server.post("/v1/completions", &request).json();
    let choices = answer["choices"].as_array().expect("choices");
    assert_eq!(choices.len(), 6);
    for (index, choice) in choices.iter().enumerate() {
        assert_eq!(choice["index"], index);
        assert_eq!(choice["text"], expected(5 + index as u64 % 3, 16));
    }
    assert_eq!(answer["usage"]["completion_tokens"], 6 * 16);
    let stream = json!({ "prompt": PROMPT, "n": 2, "max_tokens": 16, "seed": 5, "stream": true, "stream_options": { "include_usage": true } });
    let events = server.post("/v1/completions", &stream).events();
    for index in 0..2 {
        assert_eq!(streamed(&events, index), expected(5 + index, 16));
    }
    let last = events.last().expect("events");
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["completion_tokens"], 32);
}

#[test]
fn echo_has_log_probabilities_of_the_prompt() {
    let server = TestServer::new();
    let ids = server
        .post(
            "/tokenize",
            &json!({ "content": PROMPT, "add_special": true }),
        )
        .json();
    let ids = ids["tokens"].as_array().expect("tokens").clone();
    let request =
        json!({ "prompt": [ids], "max_tokens": 1, "logprobs": 1, "echo": true, "temperature": 0 });
    let choice = server.post("/v1/completions", &request).json()["choices"][0].clone();
    assert!(
        choice["text"]
            .as_str()
            .is_some_and(|text| text.starts_with(PROMPT)),
        "{choice}"
    );
    let logprobs = &choice["logprobs"];
    let list = |name: &str| logprobs[name].as_array().expect("a list").clone();
    assert_eq!(list("tokens").len(), ids.len() + 1);
    let (values, tops) = (list("token_logprobs"), list("top_logprobs"));
    assert_eq!(values[0], Value::Null);
    for (at, (value, top)) in values.iter().zip(&tops).enumerate().skip(1) {
        let top = top.as_object().expect("a map");
        let name = list("tokens")[at].as_str().expect("a text").to_string();
        assert_eq!(top[&name], *value, "token {at}");
        assert!(value.as_f64().is_some_and(|value| value <= 0.0));
    }
    let offsets = list("text_offset");
    assert_eq!(offsets.len(), values.len());
    let only = json!({ "prompt": PROMPT, "max_tokens": 0, "echo": true, "logprobs": 0 });
    let only = server.post("/v1/completions", &only).json();
    assert_eq!(only["choices"][0]["text"], PROMPT);
    assert_eq!(only["usage"]["completion_tokens"], 0);
    let score = server
        .post(
            "/score",
            &fixed_json!({ "prompt": "Once upon a", "continuations": [" time"] }),
        )
        .json();
    let score = score["scores"][0]["sum"].as_f64().expect("a number");
    let echoed: f64 = values
        .last()
        .into_iter()
        .chain(&values[1..ids.len()])
        .last()
        .and_then(Value::as_f64)
        .expect("a number");
    assert!((score - echoed).abs() < 1e-4, "{score} {echoed}");
}

#[test]
fn the_likeliest_choices_are_returned() {
    let server = TestServer::new();
    let request = json!({ "prompt": PROMPT, "n": 1, "best_of": 4, "max_tokens": 8, "seed": 1, "logprobs": 0 });
    let best = server.post("/v1/completions", &request).json();
    let all = json!({ "prompt": PROMPT, "n": 4, "max_tokens": 8, "seed": 1, "logprobs": 0 });
    let all = server.post("/v1/completions", &all).json();
    let sum = |choice: &Value| -> f64 {
        let values = choice["logprobs"]["token_logprobs"]
            .as_array()
            .expect("a list");
        values.iter().filter_map(Value::as_f64).sum()
    };
    let choices = all["choices"].as_array().expect("choices");
    let max = choices.iter().map(sum).fold(f64::NEG_INFINITY, f64::max);
    assert_eq!(best["choices"].as_array().map(Vec::len), Some(1));
    assert!((sum(&best["choices"][0]) - max).abs() < 1e-9);
}

#[test]
fn tokens_and_text_convert() {
    let server = TestServer::new();
    let tokens = server
        .post(
            "/tokenize",
            &fixed_json!({ "content": "a dog", "with_pieces": true }),
        )
        .json();
    let pieces = tokens["tokens"].as_array().expect("tokens").iter();
    let ids: Vec<Value> = pieces.map(|piece| piece["id"].clone()).collect();
    let text = server.post("/detokenize", &json!({ "tokens": ids })).json();
    assert_eq!(text["content"].as_str().map(str::trim), Some("a dog"));
    let invalid = server.post("/detokenize", &json!({ "tokens": [1e9] }));
    assert_eq!(
        (invalid.status, &invalid.json()["error"]["param"]),
        (400, &json!("tokens"))
    );
}

#[test]
fn stop_strings_and_grammars_apply() {
    let server = TestServer::new();
    let text = expected(3, 24);
    let stop = text.trim().split(' ').nth(3).expect("words").to_string();
    let request = json!({ "prompt": PROMPT, "max_tokens": 24, "seed": 3, "stop": [stop, ""] });
    let choice = server.post("/v1/completions", &request).json()["choices"][0].clone();
    assert_eq!(choice["finish_reason"], "stop");
    assert_eq!(
        choice["text"].as_str(),
        text.split_once(&stop).map(|(before, _)| before)
    );
    let request =
        json!({ "prompt": PROMPT, "max_tokens": 200, "seed": 3, "guided_regex": "[a-c]{3}" });
    let choice = server.post("/v1/completions", &request).json()["choices"][0].clone();
    assert_eq!(choice["text"].as_str().map(str::len), Some(3), "{choice}");
}

#[test]
fn activations_have_shapes_and_tables_have_commands() {
    let server = TestServer::new();
    let request = json!({ "input": PROMPT, "points": ["blk.0"], "positions": "last" });
    let answer = server.post("/activations", &request).json();
    let point = &answer["points"]["blk.0"];
    assert_eq!(point["shape"][0], 1, "{answer}");
    let count = point["data"].as_array().map(Vec::len);
    assert_eq!(json!(count), point["shape"][1]);
    let invalid = server.post(
        "/activations",
        &json!({ "input": PROMPT, "points": ["none"] }),
    );
    assert_eq!(
        (invalid.status, &invalid.json()["error"]["param"]),
        (400, &json!("points"))
    );
    let tables = server.get("/table?time=1").json();
    let commands = tables["tables"][0]["commands"]
        .as_array()
        .expect("commands");
    assert!(
        commands
            .iter()
            .any(|command| command["seconds"].is_number()),
        "{tables}"
    );
    assert!(
        tables["bandwidth_bytes_per_second"]
            .as_f64()
            .is_some_and(|rate| rate > 1e8)
    );
}

#[test]
fn log_probabilities_cover_the_text() {
    let server = TestServer::new();
    for seed in 0..8 {
        let request = json!({ "prompt": PROMPT, "max_tokens": 24, "seed": seed, "logprobs": 0, "stop": ["the", "w"] });
        let choice = server.post("/v1/completions", &request).json()["choices"][0].clone();
        let tokens = choice["logprobs"]["tokens"].as_array().expect("tokens");
        let joined: String = tokens.iter().filter_map(Value::as_str).collect();
        let text = choice["text"].as_str().expect("a text");
        // The token in which a stop string begins has no entry.
        assert!(text.starts_with(&joined), "{joined:?} {text:?}");
        assert!(text.len() - joined.len() < 16, "{joined:?} {text:?}");
    }
}

#[test]
fn special_tokens_of_a_prompt_are_parsed() {
    let server = TestServer::new();
    let count = |prompt: &str| {
        let request = json!({ "prompt": prompt, "max_tokens": 1 });
        server.post("/v1/completions", &request).json()["usage"]["prompt_tokens"].as_u64()
    };
    let props = server
        .post(
            "/tokenize",
            &fixed_json!({ "content": "", "add_special": true, "with_pieces": true }),
        )
        .json();
    if let Some(bos) = props["tokens"][0]["piece"].as_str() {
        assert_eq!(count(&format!("{bos}{PROMPT}")), count(PROMPT));
    }
}

#[test]
fn fields_of_llama_cpp_select_the_answer() {
    let server = TestServer::new();
    let request = fixed_json!({ "prompt": "Once upon", "n_predict": 4, "seed": 1, "n_probs": 3 });
    let whole = server.post("/completion", &request).json();
    let entries = whole["completion_probabilities"]
        .as_array()
        .expect("a list");
    assert_eq!(entries.len(), 4, "{whole}");
    let mut stream = request.clone();
    stream["stream"] = true.into();
    let events = server.post("/completion", &stream).events();
    let streamed = events
        .iter()
        .filter_map(|event| event["completion_probabilities"].as_array());
    assert_eq!(
        streamed.flatten().collect::<Vec<_>>(),
        entries.iter().collect::<Vec<_>>()
    );
    let mut text = Vec::new();
    for entry in entries {
        assert_eq!(entry["top_logprobs"].as_array().map(Vec::len), Some(3));
        assert!(entry["id"].is_u64() && entry["token"].is_string());
        assert!(entry["logprob"].as_f64() <= Some(0.0), "{entry}");
        let bytes = entry["bytes"].as_array().expect("bytes");
        text.extend(
            bytes
                .iter()
                .filter_map(Value::as_u64)
                .filter_map(|byte| u8::try_from(byte).ok()),
        );
    }
    assert_eq!(
        String::from_utf8(text).ok().as_deref(),
        whole["content"].as_str()
    );
    for (fields, names) in [
        (
            fixed_json!(["content", "timings/predicted_n", "none", "content/x"]),
            vec!["content", "timings/predicted_n"],
        ),
        (json!([""]), vec![]),
    ] {
        for is_stream in [false, true] {
            let request = json!({ "prompt": "a", "n_predict": 2, "response_fields": fields, "stream": is_stream });
            let answer = server.post("/completion", &request);
            let last = match is_stream {
                true => answer.events().pop().expect("events"),
                false => answer.json(),
            };
            let keys: Vec<&str> = last
                .as_object()
                .expect("fields")
                .keys()
                .map(String::as_str)
                .collect();
            assert_eq!(keys, names, "{last}");
        }
    }
}

#[test]
fn pieces_that_cut_a_character_are_bytes() {
    let server = TestServer::new();
    let text = "a \u{1f600}";
    let request = json!({ "content": text, "with_pieces": true });
    let answer = server.post("/tokenize", &request).json();
    let tokens = answer["tokens"].as_array().expect("tokens");
    let bytes: Vec<u8> = tokens
        .iter()
        .flat_map(|token| match &token["piece"] {
            Value::String(text) => text.clone().into_bytes(),
            bytes => serde_json::from_value(bytes.clone()).expect("bytes"),
        })
        .collect();
    assert_eq!(String::from_utf8_lossy(&bytes).trim_start(), text);
    assert!(
        tokens.iter().any(|token| token["piece"].is_array()),
        "{answer}"
    );
}
