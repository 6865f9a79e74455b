//! Tables: golden listings for each family, and one table on two devices.

use crate::common::{golden, has_gpu};
use tabla::{DeviceChoice, LoadOptions, Source};

/// Compares the tables of a model with their listing; `BLESS=1` writes it anew.
fn check(name: &str) {
    let options = LoadOptions {
        device: DeviceChoice::Cpu,
        context: 64,
        sequences: 2,
        ..LoadOptions::default()
    };
    let source = Source::Path(golden(&format!("{name}.gguf")));
    let tables = tabla::compile(&source, &options).expect("it compiles");
    // Batch sizes suit the machine; the commands of one are those of another.
    let kept = tables.iter().filter(|t| t.name != "batch");
    let listing: String = kept.map(|t| format!("{t}\n")).collect();
    let path = golden(&format!("{name}.table"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &listing).expect("tests/golden can be written");
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        listing == wanted,
        "{}: the listing changed; BLESS=1 cargo test writes it anew:\n{listing}",
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
fn two_devices_agree_on_several_sequences() {
    if !has_gpu() {
        return;
    }
    for name in [
        "llama.gguf",
        "arch/gemma2/model.gguf",
        "arch/bitnet/model.gguf",
    ] {
        let options = LoadOptions {
            sequences: 6,
            ..LoadOptions::default()
        };
        let source = Source::Path(golden(name));
        let comparison = tabla::compare(&source, &options).expect("both devices run");
        assert!(comparison.first.is_none(), "{name}: {:?}", comparison.first);
    }
}

#[test]
fn two_devices_agree_command_by_command() {
    if !has_gpu() {
        return;
    }
    let mut sources: Vec<Source> = ["llama", "qwen2", "qwen3", "quant_q4_0", "quant_q8_0"]
        .map(|name| Source::Path(golden(&format!("{name}.gguf"))))
        .into();
    sources.push(Source::BuiltIn);
    // Every architecture that has a recipe, past its windows.
    let folders = golden("arch").read_dir().expect("a folder");
    let folders = folders.map(|folder| folder.expect("a folder").path());
    let forms = folders.flat_map(|folder| ["model.gguf", "hf"].map(|form| folder.join(form)));
    sources.extend(forms.filter(|path| path.exists()).map(Source::Path));
    for source in sources {
        let comparison =
            tabla::compare(&source, &LoadOptions::default()).expect("both devices run");
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
