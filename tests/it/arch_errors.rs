//! Damaged checkpoints of every architecture: what is wrong is named, and nothing else happens.

use crate::common::golden;
use crate::scratch::{Folder, Tensor, safetensors};
use std::path::{Path, PathBuf};
use tabla::dtype::DType;
use tabla::exec::cpu::Level;
use tabla::format::write::Writer;
use tabla::format::{self, Directory, Kind, TensorInfo, TensorType};
use tabla::{DeviceChoice, Error, Options, Source};

/// Every checkpoint of `tests/golden/arch`.
fn checkpoints() -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in golden("arch").read_dir().expect("a folder") {
        let folder = entry.expect("a folder").path();
        all.extend(["model.gguf", "hf"].map(|form| folder.join(form)));
    }
    all.retain(|path| path.exists() && load(path).is_ok());
    all.sort();
    all
}

fn load(path: &Path) -> Result<(), Error> {
    let options = Options {
        device: DeviceChoice::Cpu,
        level: Some(Level::Scalar),
        threads: 1,
        context: 32,
        ..Options::default()
    };
    let source = Source::Path(path.to_path_buf());
    tabla::load(&source, &options, &mut |_| {}).map(|_| ())
}

fn directory(path: &Path) -> Directory {
    format::open(path).expect("a sound file")
}

fn tensors(file: &Directory) -> Vec<(TensorInfo, Vec<u8>)> {
    let all = file.tensors.iter();
    all.map(|t| (t.clone(), file.bytes(t).to_vec())).collect()
}

/// Writes a checkpoint with other tensors beside what it had.
fn with_tensors(
    path: &Path,
    file: &Directory,
    tensors: Vec<(TensorInfo, Vec<u8>)>,
    to: &Folder,
) -> PathBuf {
    if file.kind == Kind::Gguf {
        let mut w = Writer::new();
        for (key, value) in file.metadata.iter() {
            w.copy(key, value);
        }
        for (t, bytes) in tensors {
            w.tensor(&t.name, t.dtype, &t.dims, bytes);
        }
        return to.write("model.gguf", &w.finish().expect("it can be written"));
    }
    to.copy(path);
    let rows: Vec<Tensor> = tensors
        .into_iter()
        .map(|(t, bytes)| {
            let dims = t.dims.iter().rev().copied().collect();
            (t.name, spelling(t.dtype), dims, bytes)
        })
        .collect();
    to.write("model.safetensors", &safetensors(&rows));
    to.0.clone()
}

fn spelling(dtype: TensorType) -> &'static str {
    match (dtype.known(), dtype.name()) {
        (Some(DType::F32), _) => "F32",
        (Some(DType::F16), _) => "F16",
        (Some(DType::Bf16), _) => "BF16",
        (Some(DType::I64), _) => "I64",
        (_, "u8") => "U8",
        (_, other) => panic!("{other} is in no golden file"),
    }
}
#[test]
fn explore() {
    for path in checkpoints() {
        let scratch = Folder::new("errors");
        let file = directory(&path);
        let name = path
            .strip_prefix(golden("arch"))
            .expect("inside")
            .display()
            .to_string();
        for t in &file.tensors {
            let layer =
                t.name.contains("blk.") || t.name.contains("layer") || t.name.contains(".h.");
            if layer && !t.name.contains(".1.") {
                continue;
            }
            let mut all = tensors(&file);
            all.retain(|(o, _)| o.name != t.name);
            let at = with_tensors(&path, &file, all, &scratch);
            match load(&at) {
                Ok(()) => println!("LOADS {name} without {}", t.name),
                Err(e) if e.to_string().contains(&t.name) => {}
                Err(e) => println!("OTHER {name} without {}: {e}", t.name),
            }
            // One row, or one element, less.
            let mut all = tensors(&file);
            for (o, bytes) in all.iter_mut().filter(|(o, _)| o.name == t.name) {
                let last = o.dims.len() - 1;
                let len = loop {
                    if o.dims[last] == 1 {
                        o.dims[last] = 2;
                    } else {
                        o.dims[last] -= 1;
                    }
                    let n: u64 = o.dims.iter().product();
                    let len = match o.dtype.known() {
                        Some(d) => d.bytes(n),
                        None => Some(n),
                    };
                    if let Some(len) =
                        len.filter(|_| o.dtype.known() != Some(DType::I2S) || n % 128 == 0)
                    {
                        break len;
                    }
                };
                bytes.resize(len as usize, 1);
            }
            let at = with_tensors(&path, &file, all, &scratch);
            match load(&at) {
                Ok(()) => println!("LOADS {name} cut {}", t.name),
                Err(e) if e.to_string().contains(&t.name) => {}
                Err(e) => println!("OTHER {name} cut {}: {e}", t.name),
            }
        }
    }
}
