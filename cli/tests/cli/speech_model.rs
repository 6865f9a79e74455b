//! A small speech model with a known transcript.

/// Number of tokens of English models, of multilingual ones, and of large-v3-turbo.
pub(crate) const ENGLISH: usize = 51_864;
pub(crate) const MULTILINGUAL: usize = 51_865;
pub(crate) const TURBO: usize = 51_866;

/// Text of every segment.
pub(crate) const TEXT: &str = " w300";
/// Number of segments of a window, of equal length: 10 seconds in a window of 30 seconds.
pub(crate) const SEGMENTS: usize = 3;

/// Output rows of the encoder, of 20 ms each, for windows of 30 seconds.
const CONTEXT: usize = 1500;
/// Sizes: positions of the decoder, width, mel bands.
const POSITIONS: usize = 64;
const DIM: usize = 16;
const MELS: usize = 80;

/// Returns a ggml file whose every window has [`SEGMENTS`] segments with the text [`TEXT`], in
/// German if the model is multilingual.
///
/// The last norm of the decoder ignores its input, so that the logits of a token are its embedding.
/// Other weights are random.
pub(crate) fn ggml_model(vocab: usize) -> Vec<u8> {
    ggml_model_with_context(vocab, CONTEXT)
}

/// Returns the file of [`ggml_model`] with `context` output rows of the encoder, a multiple of
/// [`SEGMENTS`]: windows have `context` times 20 ms.
pub(crate) fn ggml_model_with_context(vocab: usize, context: usize) -> Vec<u8> {
    let number = |n: usize| u32::try_from(n).expect("small").to_le_bytes();
    let texts = if vocab == ENGLISH { 50_256 } else { 50_257 };
    let mut file = b"lmgg".to_vec();
    for n in [
        vocab,
        context,
        DIM,
        1,
        1,
        POSITIONS,
        DIM,
        1,
        layers(vocab),
        MELS,
        0,
        MELS,
        201,
    ] {
        file.extend(number(n));
    }
    // A mel band has two bins of the spectrum.
    let filter = |i: usize| if i % 201 / 2 == i / 201 { 0.01 } else { 0.0f32 };
    file.extend((0..MELS * 201).map(filter).flat_map(f32::to_le_bytes));
    file.extend(number(texts));
    for id in 0..texts {
        let token = match u8::try_from(id) {
            Ok(byte) => vec![byte],
            Err(_) => format!(" w{id}").into_bytes(),
        };
        file.extend(number(token.len()));
        file.extend(token);
    }
    for (name, shape) in tensors(vocab, context) {
        file.extend([number(shape.len()), number(name.len()), number(0)].concat());
        file.extend(shape.iter().rev().flat_map(|n| number(*n)));
        file.extend(name.as_bytes());
        let values = values(&name, [vocab, context], shape.iter().product());
        file.extend(values.iter().flat_map(|x| x.to_le_bytes()));
    }
    file
}

/// Number of decoder layers.
fn layers(vocab: usize) -> usize {
    if vocab == TURBO { 4 } else { 1 }
}

/// Logit of a token.
fn logit(token: usize, [vocab, context]: [usize; 2]) -> f32 {
    let first_timestamp = vocab - 1501;
    let step = context / SEGMENTS;
    let last_timestamp = first_timestamp + SEGMENTS * step;
    match token {
        300 => 20.0,
        // The language token of German.
        50_261 if vocab != ENGLISH => 10.0,
        // The ends of segments.
        _ if (first_timestamp..=last_timestamp).contains(&token)
            && (token - first_timestamp).is_multiple_of(step) =>
        {
            40.0 - ((token - first_timestamp) / step) as f32 * 6.0
        }
        _ => 0.0,
    }
}

fn values(name: &str, sizes: [usize; 2], count: usize) -> Vec<f32> {
    match name {
        "decoder.token_embedding.weight" => (0..count)
            .map(|i| match i % DIM {
                0 => logit(i / DIM, sizes),
                _ => 0.0,
            })
            .collect(),
        "decoder.ln.weight" => vec![0.0; count],
        "decoder.ln.bias" => (0..count).map(|i| f32::from(u8::from(i == 0))).collect(),
        _ => {
            let seed = name
                .bytes()
                .fold(1u64, |h, b| h * 31 % 65_521 + u64::from(b));
            let mut state = seed;
            let next = |_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as f32 / 33_554_432.0 - 0.25
            };
            (0..count).map(next).collect()
        }
    }
}

/// Names and shapes of all tensors.
fn tensors(vocab: usize, context: usize) -> Vec<(String, Vec<usize>)> {
    const D: usize = DIM;
    let mut all: Vec<(String, Vec<usize>)> = Vec::new();
    let mut add = |name: &str, shape: &[usize]| all.push((name.to_string(), shape.to_vec()));
    add("encoder.conv1.weight", &[D, MELS, 3]);
    add("encoder.conv1.bias", &[D, 1]);
    add("encoder.conv2.weight", &[D, D, 3]);
    add("encoder.conv2.bias", &[D, 1]);
    add("encoder.positional_embedding", &[context, D]);
    add("decoder.positional_embedding", &[POSITIONS, D]);
    add("decoder.token_embedding.weight", &[vocab, D]);
    let mut norms = vec!["encoder.ln_post".to_string(), "decoder.ln".to_string()];
    let mut blocks = vec![("encoder.blocks.0".to_string(), &["attn"][..])];
    for layer in 0..layers(vocab) {
        blocks.push((format!("decoder.blocks.{layer}"), &["attn", "cross_attn"]));
    }
    for (block, attentions) in blocks {
        for attention in attentions {
            for part in ["query", "key", "value", "out"] {
                add(&format!("{block}.{attention}.{part}.weight"), &[D, D]);
                if part != "key" {
                    add(&format!("{block}.{attention}.{part}.bias"), &[D]);
                }
            }
            norms.push(format!("{block}.{attention}_ln"));
        }
        add(&format!("{block}.mlp.0.weight"), &[4 * D, D]);
        add(&format!("{block}.mlp.0.bias"), &[4 * D]);
        add(&format!("{block}.mlp.2.weight"), &[D, 4 * D]);
        add(&format!("{block}.mlp.2.bias"), &[D]);
        norms.push(format!("{block}.mlp_ln"));
    }
    for norm in norms {
        add(&format!("{norm}.weight"), &[D]);
        add(&format!("{norm}.bias"), &[D]);
    }
    all
}

/// Returns a WAV file of 16-bit samples at 16 kHz with a tone. `bytes`: size of the data in the header.
pub(crate) fn wav(seconds: usize, bytes: Option<u32>) -> Vec<u8> {
    // A sawtooth of 400 Hz.
    let sample = |i: usize| 400 * (i16::try_from(i % 40).expect("small") - 20);
    let samples = (0..seconds * 16_000).map(sample);
    let samples: Vec<u8> = samples.flat_map(i16::to_le_bytes).collect();
    let size = u32::try_from(samples.len()).expect("small");
    let bytes = bytes.unwrap_or(size);
    let mut file = b"RIFF".to_vec();
    file.extend(bytes.saturating_add(36).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend([16, 0, 0, 0, 1, 0, 1, 0]);
    file.extend(16_000u32.to_le_bytes());
    file.extend(32_000u32.to_le_bytes());
    file.extend([2, 0, 16, 0]);
    file.extend(b"data");
    file.extend(bytes.to_le_bytes());
    file.extend(samples);
    file
}
