//! ggml files of Whisper with edits of the header and of the tensors' headers.

use super::choices::Choices;
use super::errors::accepted;
use super::gguf;
use super::models::options;
use tabla::{Model, Source, format};

/// Tensors of a model with a layer on each side.
const TENSORS: u32 = 11 + 15 + 24;

pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let file = file(&mut choices);
    let size = file.len();
    let copy = file.clone();
    if let Some(directory) = accepted(size, || format::open_bytes("test", copy)) {
        gguf::check(&directory, size);
    }
    let model = Model::builder(Source::bytes(file)).options(options());
    accepted(size, || model.load());
}

fn put(file: &mut Vec<u8>, numbers: &[u32], choices: &mut Choices<'_>) {
    for number in numbers {
        file.extend(&choices.number(u64::from(*number)).to_le_bytes()[..4]);
    }
}

/// Writes the numbers, filters, tokens and tensors of a small file.
fn file(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut file = b"lmgg".to_vec();
    let vocab = *choices.pick(&[51864, 51865, 51866, 50300]);
    let mels = *choices.pick(&[80, 2, 128]);
    let ftype = *choices.pick(&[0, 1, 2008, 1008]);
    put(
        &mut file,
        &[vocab, 1500, 64, 1, 1, 448, 64, 1, 1, mels, ftype],
        choices,
    );
    put(&mut file, &[mels, 201], choices);
    let filters = (0..mels * 201).flat_map(|i| (i as f32).to_le_bytes());
    file.extend(filters);
    let tokens = choices.below(4) as u32;
    put(&mut file, &[tokens], choices);
    for _ in 0..tokens {
        let most = choices.below(6);
        let token = choices.bytes(most);
        put(&mut file, &[token.len() as u32], choices);
        file.extend(token);
    }
    let tensors = if choices.rarely(8) {
        choices.below(60) as u32
    } else {
        TENSORS
    };
    for index in 0..tensors {
        tensor(&mut file, index, choices);
    }
    file
}

fn tensor(file: &mut Vec<u8>, index: u32, choices: &mut Choices<'_>) {
    let names = [
        "encoder.conv1.bias",
        "encoder.conv1.weight",
        "decoder.token_embedding.weight",
    ];
    let name = match index {
        0..3 => names[index as usize].to_string(),
        _ => format!("bias.{index}"),
    };
    let (kind, bytes) = *choices.pick(&[(0, 4), (1, 2), (8, 0), (99, 1)]);
    let dims: Vec<u32> = (0..1 + choices.below(4))
        .map(|_| *choices.pick(&[1, 3, 64, 0]))
        .collect();
    put(file, &[dims.len() as u32, name.len() as u32, kind], choices);
    put(file, &dims, choices);
    file.extend(name.as_bytes());
    let data = dims.iter().product::<u32>() as usize;
    let data = if kind == 8 {
        data / 32 * 34
    } else {
        data * bytes
    };
    file.resize(file.len() + data.min(1 << 16), 1);
}
