//! Control vectors: GGUF and `.npy` files.

use super::choices::Choices;
use super::edits::edit;
use super::errors::accepted;
use super::folder::Folder;
use tabla::dtype::DType;
use tabla::format::npy;
use tabla::format::write::Writer;
use tabla::tools::ControlVector;

pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let folder = Folder::new();
    let is_npy = choices.rarely(2);
    let mut file = if is_npy {
        array(&mut choices)
    } else {
        gguf(&mut choices)
    };
    let all = 0..file.len();
    edit(&mut file, all, &mut choices);
    let path = folder.write("vector", &file);
    accepted(file.len(), || ControlVector::read_at(&path, 3));
    let Some(vector) = accepted(file.len(), || ControlVector::read(&path)) else {
        return;
    };
    assert!(!vector.layers.is_empty());
    let dim = vector.dim();
    for (layer, values) in &vector.layers {
        assert_eq!(values.len(), dim, "layer {layer}");
        assert!(
            values.iter().all(|value| value.is_finite()),
            "layer {layer}"
        );
    }
    // Rows of zeros are no vectors in a file of arrays.
    if !vector.layers.values().flatten().any(|value| *value != 0.0) {
        return;
    }
    for name in ["copy.npy", "copy.gguf"] {
        let copy = folder.path().join(name);
        // GGUF files have no layer 0, and files of arrays end at layer 4096.
        if accepted(file.len(), || vector.write(&copy)).is_some() {
            let copied = ControlVector::read(&copy).expect("a copy");
            let has_values = |values: &&Vec<f32>| values.iter().any(|value| *value != 0.0);
            let expected: Vec<_> = vector
                .layers
                .iter()
                .filter(|(_, values)| has_values(values))
                .collect();
            let copied: Vec<_> = copied
                .layers
                .iter()
                .filter(|(_, values)| has_values(values))
                .collect();
            assert_eq!(copied, expected, "{name}");
        }
    }
}

fn gguf(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.set(
        "general.architecture",
        *choices.pick(&["controlvector", "llama"]),
    );
    if !choices.rarely(4) {
        writer.set("controlvector.model_hint", "llama");
        writer.set("controlvector.layer_count", choices.number(2) as u32);
    }
    for _ in 0..1 + choices.below(3) {
        let layer = 1 + choices.below(4) as u64;
        let layer = choices.number(layer);
        let columns = *choices.pick(&[4, 4, 4, 1, 0]);
        let (dtype, bytes) = *choices.pick(&[
            (DType::F32, 4),
            (DType::F32, 4),
            (DType::F16, 2),
            (DType::I8, 1),
        ]);
        let name = format!(
            "{}.{layer}",
            choices.pick(&["direction", "direction", "direction", "x"])
        );
        writer.tensor(&name, dtype, &[columns], vec![1; columns as usize * bytes]);
    }
    writer.finish().expect("valid tensors")
}

fn array(choices: &mut Choices<'_>) -> Vec<u8> {
    let shape: Vec<usize> = (0..1 + choices.below(3))
        .map(|_| *choices.pick(&[2, 3, 1, 0]))
        .collect();
    let mut file = npy::header(&shape);
    let values = shape.iter().product::<usize>();
    file.resize(file.len() + values * 4, 0);
    file
}
