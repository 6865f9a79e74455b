//! Every architecture against its reference: a tiny random checkpoint of each family, from every
//! kind of file, and on every device. `tests/reference/arch` made them.

use crate::common::{argmax, devices, golden, greedy, picks, print, session, worst};
use crate::npy::Npy;
use crate::scratch::Folder;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use tabla::{DeviceChoice, LoadOptions, Precision, Session, Source};

/// Greatest difference of a logit.
const TOLERANCE: f32 = 1e-4;

/// What a reference says of a checkpoint.
struct Golden {
    tokens: Vec<u32>,
    prompt: usize,
    greedy: Vec<u32>,
    logits: Npy,
    hidden: Npy,
    /// The greatest difference found: of logits, of the residual stream relative to its layer.
    worst: [Cell<f32>; 2],
}

/// `tests/golden/arch/<name>/<file>`.
fn file(name: &str, file: &str) -> PathBuf {
    golden("arch").join(name).join(file)
}

impl Golden {
    fn read(name: &str) -> Self {
        let text = std::fs::read_to_string(file(name, "golden.json")).expect("a golden file");
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let ids = |key: &str| -> Vec<u32> {
            let list = json[key].as_array().expect("a list of ids");
            let id = |id: &serde_json::Value| u32::try_from(id.as_u64().expect("an id"));
            list.iter().map(|v| id(v).expect("an id")).collect()
        };
        Self {
            tokens: ids("tokens"),
            prompt: usize::try_from(json["prompt_len"].as_u64().expect("a length")).expect("small"),
            greedy: ids("greedy"),
            logits: Npy::read(&file(name, "logits.npy")),
            hidden: Npy::read(&file(name, "hidden.npy")),
            worst: [const { Cell::new(0.0) }; 2],
        }
    }

    /// Keeps a difference for the summary.
    fn note(&self, kind: usize, difference: f32) {
        let worst = &self.worst[kind];
        worst.set(worst.get().max(difference));
    }

    fn row(&self, position: usize) -> &[f32] {
        &self.logits.data[position * self.logits.cols..][..self.logits.cols]
    }
}

/// Every form of a checkpoint on every device; but a GPU, of which a software one is slow, reads the folder
/// of Hugging Face where there is no GGUF file with the same weights, and its stored types in `checkpoints`.
fn check(name: &str) {
    let golden = Golden::read(name);
    let scratch = Folder::new(&format!("archs-{name}"));
    let forms = ["model.gguf", "model_tq1_0.gguf", "hf", "mlx"].map(|form| file(name, form));
    let mut forms: Vec<_> = forms.into_iter().filter(|path| path.exists()).collect();
    assert!(!forms.is_empty(), "{name}: no checkpoint");
    if let Some(mlx) = forms.iter_mut().find(|path| path.ends_with("mlx")) {
        *mlx = with_tokenizer(mlx, &file(name, "hf"), &scratch);
    }
    for (at, path) in forms.iter().enumerate() {
        for (device, options) in devices(Precision::Exact) {
            if at > 0 && path.ends_with("hf") && options.device == DeviceChoice::Gpu {
                continue;
            }
            let what = format!("{} on {device}", path.display());
            let options = LoadOptions {
                context: 96,
                chunk_tokens: 32,
                // No sampler hears of the architecture.
                samplers: Some(Vec::new()),
                ..options
            };
            let source = &Source::Path(path.clone());
            check_layers(&what, source, &options, &golden);
            let mut s = session(path, &options);
            check_rows(&what, &mut s, &golden);
            for chunk in [1, 7, 32] {
                check_chunks(&what, &mut s, &golden, chunk);
            }
            check_decode(&what, &mut s, &golden);
            check_greedy(&what, &mut s, &golden);
        }
    }
    // The shortest passes: of two tokens.
    check_tight(&forms[0], &golden);
    let [logits, layers] = golden.worst.each_ref().map(Cell::get);
    print(&format!(
        "{name}: logits {logits:.1e}, layers {layers:.1e} at worst"
    ));
}

/// A folder with the files of `weights` and the tokenizer of `other`, which is not committed twice.
fn with_tokenizer(weights: &Path, other: &Path, scratch: &Folder) -> PathBuf {
    scratch.copy(weights);
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        let bytes = std::fs::read(other.join(name)).expect("a tokenizer");
        scratch.write(name, &bytes);
    }
    scratch.0.clone()
}

/// The residual stream behind every layer, so that a fault has a place.
fn check_layers(what: &str, source: &Source, options: &LoadOptions, golden: &Golden) {
    let text = golden.tokens[..golden.logits.data.len() / golden.logits.cols].to_vec();
    let found = tabla::hidden_states(source, options, &[text]).expect("the model runs");
    let layers = found.against(&golden.hidden.data).expect("as many layers");
    for (at, layer) in layers.iter().enumerate() {
        let cols = golden.hidden.cols;
        golden.note(1, layer.worst / layer.largest.max(1.0));
        assert!(
            layer.agrees(),
            "{what}: layer {at}: {} at position {} number {} of {}",
            layer.worst,
            layer.element / cols,
            layer.element % cols,
            layer.largest
        );
    }
}

/// Panics unless a row of logits is the reference's.
fn check_row(what: &str, found: &[f32], golden: &Golden, position: usize) {
    let (at, difference) = worst(found, golden.row(position));
    golden.note(0, difference);
    assert!(
        difference <= TOLERANCE,
        "{what}: {difference} at position {position} token {at}"
    );
}

/// All rows of logits, after a prefill at once.
fn check_rows(what: &str, s: &mut Session, golden: &Golden) {
    let vocab = golden.logits.cols;
    let rows = golden.logits.data.len() / vocab;
    let mut out = vec![0.0; golden.logits.data.len()];
    s.prefill(&golden.tokens[..rows], &mut |_, _| {})
        .expect("it fits");
    s.logits_all(&mut out).expect("the room is right");
    for (position, row) in out.chunks(vocab).enumerate() {
        check_row(&format!("{what}: score"), row, golden, position);
    }
    let mut last = vec![0.0; vocab];
    s.logits(&mut last).expect("the room is right");
    check_row(&format!("{what}: prefill"), &last, golden, rows - 1);
}

/// The last row of every chunk.
fn check_chunks(what: &str, s: &mut Session, golden: &Golden, chunk: usize) {
    let mut out = vec![0.0; golden.logits.cols];
    let rows = golden.logits.data.len() / golden.logits.cols;
    s.reset();
    for (at, tokens) in golden.tokens[..rows].chunks(chunk).enumerate() {
        s.prefill(tokens, &mut |_, _| {}).expect("it fits");
        s.logits(&mut out).expect("the room is right");
        let position = at * chunk + tokens.len() - 1;
        check_row(
            &format!("{what}: chunks of {chunk}"),
            &out,
            golden,
            position,
        );
    }
}

/// A token at a time through the decode table.
fn check_decode(what: &str, s: &mut Session, golden: &Golden) {
    let mut out = vec![0.0; golden.logits.cols];
    let rows = golden.logits.data.len() / golden.logits.cols;
    s.reset();
    for (position, &token) in golden.tokens[..rows].iter().enumerate() {
        s.force(token).expect("a token of the vocabulary");
        s.logits(&mut out).expect("the room is right");
        check_row(&format!("{what}: decode"), &out, golden, position);
    }
}

fn check_greedy(what: &str, s: &mut Session, golden: &Golden) {
    let prompt = &golden.tokens[..golden.prompt];
    let count = u32::try_from(golden.greedy.len()).expect("64");
    let found = picks(s, prompt, &greedy(count));
    assert_eq!(found, golden.greedy, "{what}: greedy");
}

/// Prefill by two tokens, a fork in the road, and back.
fn check_tight(path: &Path, golden: &Golden) {
    let (device, options) = devices(Precision::Exact).remove(0);
    let options = LoadOptions {
        context: 96,
        chunk_tokens: 2,
        ..options
    };
    let what = format!("{} on {device}, tight", path.display());
    let mut s = session(path, &options);
    let rows = golden.logits.data.len() / golden.logits.cols;
    check_chunks(&what, &mut s, golden, 7);
    // Back, another way, back again.
    for keep in [rows - 3, rows / 2, 3] {
        s.truncate(keep);
        s.prefill(&[1, 2, 3], &mut |_, _| {}).expect("it fits");
        s.truncate(keep);
        s.prefill(&golden.tokens[keep..rows], &mut |_, _| {})
            .expect("it fits");
        let mut out = vec![0.0; golden.logits.cols];
        s.logits(&mut out).expect("the room is right");
        check_row(&format!("{what}: back to {keep}"), &out, golden, rows - 1);
        assert_eq!(argmax(&out), argmax(golden.row(rows - 1)));
    }
}

/// Positions that are embeddings end where those end, whatever is asked for.
#[test]
fn learned_positions_end() {
    let (_, options) = devices(Precision::Exact).remove(0);
    let wide = LoadOptions {
        context: 200,
        ..options
    };
    let s = session(&file("gpt2", "model.gguf"), &wide);
    assert_eq!(s.facts().context, 96);
}

macro_rules! architectures {
    ($($name:ident),+ $(,)?) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })+
    };
}
architectures! {
    llama, llama_bias, llama_dynamic, mistral, smollm3, phi3, phi3_short, olmo2, granite,
    qwen2, qwen3, qwen3moe, gpt2, starcoder2,
    gemma, gemma2, gemma3, gemma3_nested, gemma4, gemma4_dense,
    bitnet, bitnet_silu, bitnet_tq, falcon_e,
}
