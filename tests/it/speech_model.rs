//! Small speech models with the random weights of `tests/reference/whisper.py`.

/// Output rows of the encoder.
pub(crate) const CONTEXT: usize = 40;

/// A small model with random weights.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) mels: usize,
    pub(crate) vocab: usize,
    pub(crate) dim: usize,
    pub(crate) heads: usize,
}

pub(crate) const SHAPES: [Shape; 2] = [
    Shape {
        mels: 80,
        vocab: 51_864,
        dim: 96,
        heads: 3,
    },
    Shape {
        mels: 128,
        vocab: 51_866,
        dim: 80,
        heads: 5,
    },
];

/// Numbers from -1 to 1 of a linear congruential generator, seeded by a hash of the name.
pub(crate) fn numbers(name: &str, count: usize) -> Vec<f32> {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mut state = hash | 1;
    let next = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / 8_388_608.0 - 1.0
    };
    (0..count).map(next).collect()
}

/// Values of a tensor, as `tests/reference/whisper.py` computes them.
pub(crate) fn values(name: &str, count: usize) -> Vec<f32> {
    let mut x = numbers(name, count);
    let norm = name.contains("ln");
    let (offset, scale) = match (norm, name.ends_with("weight")) {
        (true, true) => (1.0, 0.25),
        (true, false) => (0.0, 0.25),
        _ if name.contains("positional") => (0.0, 0.5),
        _ => (0.0, 0.125),
    };
    x.iter_mut().for_each(|x| *x = offset + scale * *x);
    x
}

impl Shape {
    /// Names and shapes of all tensors.
    pub(crate) fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let d = self.dim;
        let mut all = vec![
            ("encoder.conv1.weight".into(), vec![d, self.mels, 3]),
            ("encoder.conv1.bias".into(), vec![d, 1]),
            ("encoder.conv2.weight".into(), vec![d, d, 3]),
            ("encoder.conv2.bias".into(), vec![d, 1]),
            ("encoder.positional_embedding".into(), vec![CONTEXT, d]),
            ("decoder.positional_embedding".into(), vec![64, d]),
            ("decoder.token_embedding.weight".into(), vec![self.vocab, d]),
        ];
        let mut norm = |name: String| {
            all.push((format!("{name}.weight"), vec![d]));
            all.push((format!("{name}.bias"), vec![d]));
        };
        norm("encoder.ln_post".into());
        norm("decoder.ln".into());
        for (side, layers) in [("encoder", 2), ("decoder", 3)] {
            for layer in 0..layers {
                norm(format!("{side}.blocks.{layer}.attn_ln"));
                norm(format!("{side}.blocks.{layer}.mlp_ln"));
                if side == "decoder" {
                    norm(format!("{side}.blocks.{layer}.cross_attn_ln"));
                }
            }
        }
        for (side, layers, attentions) in [
            ("encoder", 2, &["attn"][..]),
            ("decoder", 3, &["attn", "cross_attn"]),
        ] {
            for layer in 0..layers {
                let of = |name: &str| format!("{side}.blocks.{layer}.{name}");
                for attention in attentions {
                    for part in ["query", "key", "value", "out"] {
                        all.push((of(&format!("{attention}.{part}.weight")), vec![d, d]));
                        if part != "key" {
                            all.push((of(&format!("{attention}.{part}.bias")), vec![d]));
                        }
                    }
                }
                all.push((of("mlp.0.weight"), vec![4 * d, d]));
                all.push((of("mlp.0.bias"), vec![4 * d]));
                all.push((of("mlp.2.weight"), vec![d, 4 * d]));
                all.push((of("mlp.2.bias"), vec![d]));
            }
        }
        all
    }

    /// Returns the model as a ggml file.
    pub(crate) fn ggml(&self) -> Vec<u8> {
        let number = |n: usize| u32::try_from(n).expect("small").to_le_bytes();
        let text = 50_257;
        let mut file = b"lmgg".to_vec();
        for n in [
            self.vocab, CONTEXT, self.dim, self.heads, 2, 64, self.dim, self.heads, 3, self.mels, 0,
        ] {
            file.extend(number(n));
        }
        file.extend([number(self.mels), number(201)].concat());
        let filters = tabla::audio::MelFilters::slaney(self.mels).to_rows();
        file.extend(filters.iter().flat_map(|x| x.to_le_bytes()));
        file.extend(number(text));
        for id in 0..text {
            let token = match u8::try_from(id) {
                Ok(byte) => vec![byte],
                // The token after those of text in English vocabularies.
                Err(_) if id == 50_256 && self.vocab == 51_864 => b"<|endoftext|>".to_vec(),
                Err(_) => format!(" w{id}").into_bytes(),
            };
            file.extend(number(token.len()));
            file.extend(token);
        }
        for (name, shape) in self.tensors() {
            file.extend([number(shape.len()), number(name.len()), number(0)].concat());
            file.extend(shape.iter().rev().flat_map(|n| number(*n)));
            file.extend(name.as_bytes());
            let values = values(&name, shape.iter().product());
            file.extend(values.iter().flat_map(|x| x.to_le_bytes()));
        }
        file
    }
}
