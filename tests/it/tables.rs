//! Tables: golden listings, and comparison of CPU and GPU.

use crate::common::{golden, has_gpu};
use tabla::Source;
use tabla::load::{DeviceChoice, LoadOptions};

/// Compares the tables of a model with the golden listing; `BLESS=1` updates it.
fn check(name: &str) {
    let options = LoadOptions::default()
        .device(DeviceChoice::Cpu)
        .max_context(64)
        .sequences(2);
    let source = Source::Path(golden(&format!("{name}.gguf")));
    let tables = tabla::tools::compile(&source, &options).expect("the model compiles");
    // The batch size depends on the machine.
    let listed = tables.iter().filter(|t| t.name != "batch");
    let listing: String = listed.map(|t| format!("{t}\n")).collect();
    let path = golden(&format!("{name}.table"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &listing).expect("writes the listing");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        listing == expected,
        "{}: the listing changed; BLESS=1 cargo test updates it:\n{listing}",
        path.display()
    );
}

#[test]
fn llama() {
    check("llama");
}

#[test]
fn qwen2() {
    check("qwen2");
}

#[test]
fn qwen3() {
    check("qwen3");
}

#[test]
fn cpu_and_gpu_agree_on_several_sequences() {
    if !has_gpu() {
        return;
    }
    for name in [
        "llama.gguf",
        "arch/gemma2/model.gguf",
        "arch/bitnet/model.gguf",
    ] {
        let options = LoadOptions::default().sequences(6);
        let source = Source::Path(golden(name));
        let comparison = tabla::tools::compare(&source, &options).expect("the comparison runs");
        assert!(comparison.first.is_none(), "{name}: {:?}", comparison.first);
    }
}

#[test]
fn cpu_and_gpu_agree_on_every_command() {
    if !has_gpu() {
        return;
    }
    let mut sources: Vec<Source> = ["llama", "qwen2", "qwen3", "quant_q4_0", "quant_q8_0"]
        .map(|name| Source::Path(golden(&format!("{name}.gguf"))))
        .into();
    sources.push(Source::BuiltIn);
    // All architectures, with contexts longer than their sliding windows. The tests of architectures read the GGUF
    // file on a GPU, so this reads the folder.
    let folders = golden("arch").read_dir().expect("a folder");
    let folders = folders.map(|folder| folder.expect("a folder").path());
    let forms = folders.filter_map(|folder| {
        let forms = ["hf", "model.gguf"].map(|form| folder.join(form));
        forms.into_iter().find(|path| path.exists())
    });
    sources.extend(forms.map(Source::Path));
    for source in sources {
        let comparison =
            tabla::tools::compare(&source, &LoadOptions::default()).expect("the comparison runs");
        assert!(
            comparison.first.is_none(),
            "{source:?}: {:?}",
            comparison.first
        );
        assert!(
            comparison.commands > 30,
            "{source:?}: {} commands",
            comparison.commands
        );
    }
}
