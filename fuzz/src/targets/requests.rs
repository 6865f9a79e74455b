//! Requests: bodies of all kinds of endpoints, whose values are changed, rarely bytes that are not JSON.

use super::choices::Choices;
use super::json_edits;
use super::speech_model;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use tabla::Source;
use tabla::load::DeviceChoice;
use tabla_server::{Config, ModelConfig};

/// A request.
pub(crate) struct Post {
    pub(crate) path: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) body: Vec<u8>,
}

/// Endpoints with bodies that have most of their fields.
const BODIES: [(&str, &str); 25] = [
    (
        "/v1/chat/completions",
        r#"{"model":"story","messages":[{"role":"system","content":"Be brief."},
        {"role":"user","content":[{"type":"text","text":"Hi"}],"name":"n"}],"max_completion_tokens":4,"temperature":0.5,
        "top_p":0.9,"top_k":5,"min_p":0.1,"seed":1,"stop":["x"],"logprobs":true,"top_logprobs":2,"n":2,
        "logit_bias":{"5":1},"frequency_penalty":0.1,"presence_penalty":0.1,"user":"u","metadata":{"a":"b"}}"#,
    ),
    (
        "/v1/chat/completions",
        r#"{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":null,"reasoning_content":"r",
        "tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},
        {"role":"tool","tool_call_id":"c1","content":"2"}],"tools":[{"type":"function","function":{"name":"f",
        "description":"d","strict":true,"parameters":{"type":"object","properties":{"a":{"type":"integer"}},
        "required":["a"]}}}],"tool_choice":"required","parallel_tool_calls":true,"max_tokens":4,"stream":true,
        "stream_options":{"include_usage":true},"reasoning_effort":"low","chat_template_kwargs":{"a":1}}"#,
    ),
    (
        "/v1/chat/completions",
        r#"{"messages":[{"role":"user","content":"Hi"}],"max_tokens":4,"response_format":{"type":"json_schema",
        "json_schema":{"name":"n","strict":true,"schema":{"type":"object","properties":{"a":{"type":"string",
        "pattern":"^[ab]+$"},"b":{"type":"array","items":{"enum":[1,2]}}},"required":["a"]}}}}"#,
    ),
    (
        "/v1/chat/completions/input_tokens",
        r#"{"messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function","function":{"name":"f"}}]}"#,
    ),
    (
        "/v1/completions",
        r#"{"model":"story","prompt":["Once",[1,2]],"max_tokens":4,"n":2,"best_of":2,"echo":true,"logprobs":1,
        "stop":"x","seed":1,"temperature":0.5,"repeat_penalty":1.1,"repeat_last_n":8,"dry_multiplier":0.5,
        "dry_base":1.75,"dry_allowed_length":2,"dry_penalty_last_n":8,"dry_sequence_breakers":["."],"top_n_sigma":1,
        "typical_p":0.9,"xtc_probability":0.1,"xtc_threshold":0.1,"dynatemp_range":0.1,"dynatemp_exponent":1,
        "min_tokens":1,"stop_token_ids":[2],"ignore_eos":true,"stream":true}"#,
    ),
    (
        "/v1/completions",
        r#"{"prompt":"Once","max_tokens":4,"grammar":"root ::= \"a\" [b-c]*","mirostat_tau":5,"mirostat_eta":0.1}"#,
    ),
    (
        "/v1/completions",
        r#"{"prompt":"Once","max_tokens":4,"guided_regex":"[a-c]{3}","suffix":"end"}"#,
    ),
    (
        "/v1/responses",
        r#"{"model":"story","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Hi"}]},
        {"type":"reasoning","id":"r1","summary":[{"type":"summary_text","text":"r"}]},
        {"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},
        {"type":"function_call_output","call_id":"c1","output":"2"}],"instructions":"Be brief.",
        "previous_response_id":null,"tools":[{"type":"function","name":"f","parameters":{"type":"object"}}],
        "tool_choice":"auto","max_output_tokens":4,"stream":true,"store":true,"reasoning":{"effort":"low"},
        "truncation":"auto","include":["message.output_text.logprobs"],"top_logprobs":1,"metadata":{"a":"b"}}"#,
    ),
    (
        "/v1/responses",
        r#"{"input":"Hi","max_output_tokens":4,"text":{"format":{"type":"json_schema","name":"n","schema":{
        "type":"object","properties":{"a":{"type":"boolean"}}}}}}"#,
    ),
    (
        "/v1/responses/input_tokens",
        r#"{"input":[{"role":"user","content":"Hi"}],"instructions":"Be brief."}"#,
    ),
    (
        "/v1/messages",
        r#"{"model":"story","max_tokens":4,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":[
        {"type":"text","text":"Hi","cache_control":{"type":"ephemeral"}}]},{"role":"assistant","content":[
        {"type":"thinking","thinking":"t","signature":"s"},{"type":"tool_use","id":"t1","name":"f","input":{"a":1}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"2","is_error":false}]}],
        "tools":[{"name":"f","description":"d","input_schema":{"type":"object","properties":{"a":{"type":"number"}}}}],
        "tool_choice":{"type":"auto"},"thinking":{"type":"enabled","budget_tokens":2},"stop_sequences":["x"],
        "metadata":{"user_id":"u"},"stream":true,"top_k":5,"temperature":0.5}"#,
    ),
    (
        "/v1/messages/count_tokens",
        r#"{"messages":[{"role":"user","content":"Hi"}],"system":"s","tools":[{"name":"f","input_schema":{}}]}"#,
    ),
    (
        "/completion",
        r#"{"prompt":"Once","n_predict":4,"n_probs":2,"stream":true,"cache_prompt":true,"temperature":0.5,
        "samplers":["top_k","temperature"],"response_fields":["content"],"id_slot":0,"return_tokens":true,
        "post_sampling_probs":false,"logit_bias":[[5,1.0],["a",false]],"json_schema":{"type":"integer"},
        "t_max_predict_ms":100,"n_indent":1,"timings_per_token":true}"#,
    ),
    (
        "/infill",
        r#"{"input_prefix":"a","input_suffix":"b","input_extra":[{"filename":"f","text":"t"}],"prompt":"p","n_predict":2}"#,
    ),
    (
        "/tokenize",
        r#"{"content":"Hello","add_special":true,"parse_special":true,"with_pieces":true}"#,
    ),
    ("/detokenize", r#"{"tokens":[1,2,300]}"#),
    (
        "/apply-template",
        r#"{"messages":[{"role":"user","content":"Hi"}],"add_generation_prompt":true}"#,
    ),
    ("/score", r#"{"prompt":"a","continuations":["b"," c"]}"#),
    (
        "/activations",
        r#"{"input":"Once","points":["blk.0"],"positions":"last"}"#,
    ),
    (
        "/v1/embeddings",
        r#"{"model":"embed","input":["a",[1,2]],"encoding_format":"base64","dimensions":4,"truncate":true}"#,
    ),
    (
        "/v1/rerank",
        r#"{"model":"rank","query":"q","documents":["a",{"text":"b"}],"top_n":1,"return_documents":true}"#,
    ),
    (
        "/embedding",
        r#"{"model":"embed","content":["a",{"prompt_string":"b"}],"embd_normalize":2}"#,
    ),
    (
        "/classify",
        r#"{"model":"labels","input":[[5,6],"the sun"],"use_activation":false}"#,
    ),
    (
        "/predict",
        r#"{"model":"labels","inputs":[["a","b"],["the sun"]],"raw_scores":true}"#,
    ),
    (
        FORM,
        r#"{"model":"speech","language":"en","prompt":"p","response_format":"verbose_json","temperature":0,
        "timestamp_granularities[]":"word","stream":false}"#,
    ),
];

/// Chat template with the reasoning and the tool calls of Qwen 3.
const TEMPLATE: &str = "{%- if tools %}{{ tools | tojson }} <tool_call></tool_call><think>{% endif -%}\
    {%- for m in messages %}{{ m.role }}: {{ m.content }}{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}\n\
    {% endfor -%}{%- if add_generation_prompt %}assistant: {% endif -%}";

/// The endpoint whose fields are parts of a form. Its audio does not change: that is the target `audio`.
const FORM: &str = "/v1/audio/transcriptions";

/// Returns a server of small models of every kind. `root` is the folder of the repository; a model is written to `folder`.
pub(crate) fn config(root: &Path, folder: &Path) -> Config {
    let of = |path: &str| Source::from(&root.join("tests/golden").join(path));
    let speech = folder.join("speech.bin");
    let file = speech_model::ggml_model_with_context(speech_model::ENGLISH, 30);
    std::fs::write(&speech, file).expect("the folder is writable");
    let model = |name: &str, source: Source, chat_template: Option<String>| ModelConfig {
        name: name.to_string(),
        aliases: Vec::new(),
        source,
        chat_template,
        template_variables: Default::default(),
        overflow: tabla::Overflow::Stop,
    };
    let mut config = Config::new(vec![
        model("story", Source::BuiltIn, Some(TEMPLATE.to_string())),
        model("embed", of("arch/bert/hf"), None),
        model("rank", of("cross_encoder/xlm_roberta/hf"), None),
        model("labels", of("cross_encoder/xlm_roberta_labels/hf"), None),
        model("speech", Source::from(&speech), None),
    ]);
    config.address = SocketAddr::from(([127, 0, 0, 1], 0));
    config.load = config
        .load
        .device(DeviceChoice::Cpu)
        .threads(1)
        .max_context(256);
    config
}

/// Returns the request of the fuzzer's decisions.
pub(crate) fn post(input: &[u8]) -> Post {
    let mut choices = Choices::new(input);
    let (path, body) = *choices.pick(&BODIES);
    let is_raw = choices.rarely(16);
    let mut value: Value = serde_json::from_str(body).expect("JSON");
    let body = match is_raw {
        true => choices.rest().to_vec(),
        false => {
            json_edits::edit(&mut value, &mut choices);
            match path {
                FORM => form(&value),
                _ => value.to_string().into_bytes(),
            }
        }
    };
    Post {
        path,
        content_type: match path {
            FORM => "multipart/form-data; boundary=boundary",
            _ => "application/json",
        },
        body,
    }
}

/// Returns a form with the fields of an object, and audio without samples: to decode some takes seconds here.
fn form(fields: &Value) -> Vec<u8> {
    let part =
        |name: &str| format!("--boundary\r\nContent-Disposition: form-data; name=\"{name}\"");
    let mut body = Vec::new();
    for (name, value) in fields.as_object().into_iter().flatten() {
        let value = value
            .as_str()
            .map_or_else(|| json!(value).to_string(), str::to_string);
        body.extend(format!("{}\r\n\r\n{value}\r\n", part(name)).bytes());
    }
    body.extend(format!("{}; filename=\"a.wav\"\r\n\r\n", part("file")).bytes());
    body.extend(speech_model::wav(0, None));
    body.extend(b"\r\n--boundary--\r\n");
    body
}
