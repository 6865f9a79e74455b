//! Compiled models give the same tokens and bits as the models that they were compiled from, on every level of this CPU
//! and on a GPU; damaged and foreign ones are rejected.

use crate::common::{devices, golden, has_gpu, is_gpu_slow, session};
use crate::conversions::{TEXTS, results};
use crate::temp_folder::Folder;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use tabla::device::Precision;
use tabla::exec::cpu::Level;
use tabla::format::write::Writer;
use tabla::load::{DeviceChoice, LoadOptions};
use tabla::text::{EncodeOptions, SpecialTokens};
use tabla::tools::{CompileReport, check_digests, compile_model, load_tokenizer, open_directory};
use tabla::{ErrorKind, Model, Source};

/// Compiles a model for these devices.
pub(crate) fn compile(
    from: &Path,
    to: &Path,
    on: &[DeviceChoice],
    options: &LoadOptions,
) -> CompileReport {
    let source = Source::from(from);
    let compiled = compile_model(&source, to, on, options, &mut |_, _| {
        ControlFlow::Continue(())
    });
    compiled.unwrap_or_else(|e| panic!("{}: {e}", from.display()))
}

fn options() -> LoadOptions {
    LoadOptions::default()
        .device(DeviceChoice::Cpu)
        .max_context(128)
        .chunk_tokens(32)
        .samplers(Vec::new())
}

/// Compares the tokens of texts.
fn check_tokens(name: &str, from: &Path, compiled: &Path) {
    let [a, b] = [from, compiled].map(|path| load_tokenizer(&Source::from(path)).expect(name));
    for text in TEXTS {
        for specials in [SpecialTokens::Text, SpecialTokens::Tokens] {
            let options = EncodeOptions::default()
                .add_special(true)
                .specials(specials);
            let [a, b] = [&a, &b].map(|tokenizer| tokenizer.encode(text, options).ok());
            assert_eq!(a, b, "{name}: {text:?}");
        }
    }
    assert_eq!(a.stops(), b.stops(), "{name}");
    assert_eq!(a.vocab_size(), b.vocab_size(), "{name}");
}

/// Compiles a model and compares what it computes with the original, bit by bit.
fn check(path: &Path, scratch: &Folder) {
    let name = path.display().to_string();
    let compiled = scratch.0.join("model.tabla");
    compile(path, &compiled, &[DeviceChoice::Cpu], &options());
    check_tokens(&name, path, &compiled);
    for level in Level::available()
        .into_iter()
        .filter(|l| *l != Level::Scalar)
    {
        let options = options().level(Some(level));
        let [expected, actual] = [path, &compiled].map(|path| results(path, &options));
        let bits = |all: &[f32]| all.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert!(bits(&expected) == bits(&actual), "{name} on {level:?}");
    }
}

/// Returns all files of golden models, or all folders.
fn models(is_wanted: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    let (mut folders, mut found) = (vec![golden("")], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().expect("golden files") {
            let path = entry.expect("a golden file").path();
            if is_wanted(&path) {
                found.push(path.clone());
            }
            if path.is_dir() {
                folders.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Checks the golden models that are wanted, of which there are at least this many; some are rejected for a reason.
fn check_all(name: &str, least: usize, is_wanted: &dyn Fn(&Path) -> bool) {
    let mut paths = models(is_wanted);
    paths.retain(|path| Model::builder(path).options(options()).load().is_ok());
    assert!(paths.len() >= least, "{} models", paths.len());
    let scratch = Folder::new(name);
    paths.iter().for_each(|path| check(path, &scratch));
}

#[test]
fn compiled_files_give_the_same_bits() {
    check_all("compiled-files", 60, &|path| {
        let of_model = !path.iter().any(|part| part == "lora" || part == "drafting");
        of_model && path.extension().is_some_and(|e| e == "gguf")
    });
}

#[test]
fn compiled_folders_give_the_same_bits() {
    check_all("compiled-folders", 40, &|path| {
        path.join("config.json").is_file() && path.join("tokenizer.json").is_file()
    });
}

/// Storage types of all layouts on a GPU, in files of one small model.
#[test]
fn compiled_for_cpu_and_gpu() {
    let Some((_, gpu)) = devices(Precision::Fast)
        .into_iter()
        .find(|(_, options)| options.device == DeviceChoice::Gpu)
    else {
        return;
    };
    let scratch = Folder::new("compiled-gpu");
    let files = [
        "quant_q4_0",
        "quant_q8_0",
        "quant_bf16",
        "arch/bitnet_tq/model",
        "arch/gpt_oss/model",
    ];
    for name in &files[..if is_gpu_slow() { 4 } else { files.len() }] {
        let path = golden(&format!("{name}.gguf"));
        let compiled = scratch.0.join("both.tabla");
        let gpu = gpu
            .clone()
            .max_context(128)
            .chunk_tokens(32)
            .samplers(Vec::new());
        let both = [DeviceChoice::Cpu, DeviceChoice::Gpu];
        compile(&path, &compiled, &both, &gpu);
        for options in [options(), gpu] {
            let [expected, actual] = [&path, &compiled].map(|path| results(path, &options));
            assert_eq!(expected, actual, "{name} on {:?}", options.device);
        }
    }
}

#[test]
fn foreign_and_damaged_files_are_rejected() {
    let scratch = Folder::new("compiled-foreign");
    let compiled = scratch.0.join("model.tabla");
    let path = golden("quant_q4_0.gguf");
    compile(&path, &compiled, &[DeviceChoice::Cpu], &options());
    let directory = open_directory(&Source::from(&compiled)).expect("opens");
    assert!(check_digests(&directory).is_ok());
    let load = |options: LoadOptions| Model::builder(&compiled).options(options).load();
    let rejects = |options: LoadOptions, part: &str| {
        let error = load(options).expect_err(part);
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.message().contains(part), "{error}");
    };
    rejects(
        options().precision(Precision::Exact),
        "compiled for fast precision, not exact",
    );
    rejects(
        options().i2s_layout(tabla::quant::i2_s::Layout::Blocks64),
        "layout of I2_S tensors is set when",
    );
    rejects(
        options().level(Some(Level::Scalar)),
        "instruction set is scalar",
    );
    rejects(
        options().lora(vec![("adapter".into(), 1.0)]),
        "merged adapters are set when",
    );
    // The original next to it takes over.
    scratch.write("quant_q4_0.gguf", &std::fs::read(&path).expect("a file"));
    let exact = options().precision(Precision::Exact);
    let [expected, actual] = [&path, &compiled].map(|path| results(path, &exact));
    assert_eq!(expected, actual);
    // A file of another size is not the original.
    scratch.write("quant_q4_0.gguf", b"another");
    rejects(options().precision(Precision::Exact), "fast precision");
    let target = scratch.0.join("again.tabla");
    let again = compile_model(
        &Source::from(&compiled),
        &target,
        &[DeviceChoice::Cpu],
        &options(),
        &mut |_, _| ControlFlow::Continue(()),
    );
    assert!(
        again
            .expect_err("compiled")
            .message()
            .contains("from which it was compiled")
    );
    assert!(!target.exists());
}

/// Every damage is an error when the file is opened, by the digest of its header or by the checks of digests, or does
/// not panic.
#[test]
fn damaged_files_never_panic() {
    let scratch = Folder::new("compiled-damaged");
    let compiled = scratch.0.join("model.tabla");
    compile(
        &golden("quant_q4_0.gguf"),
        &compiled,
        &[DeviceChoice::Cpu],
        &options(),
    );
    let bytes = std::fs::read(&compiled).expect("a file");
    let directory = open_directory(&Source::from(&compiled)).expect("opens");
    let data = directory.head().len();
    let load = |bytes: Vec<u8>| {
        let source = Source::bytes(bytes);
        Model::builder(source).options(options()).load()
    };
    assert!(load(bytes.clone()).is_ok());
    let step = if cfg!(debug_assertions) { 997 } else { 101 };
    for at in (0..data).step_by(step) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        assert!(load(damaged).is_err(), "byte {at} of the header");
    }
    for length in (0..bytes.len()).step_by(bytes.len() / 50) {
        assert!(load(bytes[..length].to_vec()).is_err(), "{length} bytes");
    }
    for at in (data..bytes.len()).step_by((bytes.len() - data) / 50) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x40;
        std::fs::write(&compiled, &damaged).expect("a file");
        let directory = open_directory(&Source::from(&compiled));
        let is_intact = directory.is_ok_and(|directory| check_digests(&directory).is_ok());
        // Padding between tensors has no digest.
        let is_padding = bytes[at] == 0;
        assert!(!is_intact || is_padding, "byte {at} of the data");
        if let Ok(model) = load(damaged) {
            let mut s = tabla::Session::new(model);
            let _ = s.prefill(&[1, 2, 3]);
        }
    }
}

/// Files of a forger, who computes the digest of the header: they load or are rejected, and what they compute is an
/// error at worst.
#[test]
#[cfg_attr(panic = "abort", ignore = "kernels panic, which ends the module")]
fn forged_headers_never_panic() {
    let scratch = Folder::new("compiled-forged");
    let compiled = scratch.0.join("model.tabla");
    let small = options().max_context(64).chunk_tokens(4);
    compile(
        &golden("quant_q4_0.gguf"),
        &compiled,
        &[DeviceChoice::Cpu],
        &small,
    );
    let bytes = std::fs::read(&compiled).expect("a file");
    let directory = open_directory(&Source::from(&compiled)).expect("opens");
    let head = directory.head().len();
    let digest = directory.tensor("tabla.digest").expect("a digest").offset;
    let digest = usize::try_from(digest).expect("a small file");
    let mut state = 1u32;
    let mut next = |below: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 4) as usize % below
    };
    let (mut loaded, mut computed) = (0, 0);
    for _ in 0..1500 {
        let mut forged = bytes.clone();
        // Values from anywhere in the header are copied, so that many of them are plausible.
        let (at, from, count) = (next(head - 8), next(head - 8), 1 << next(4));
        match next(3) {
            0 => forged[at] ^= 1 << next(8),
            1 => forged[at..at + count].fill(0xff),
            _ => forged.copy_within(from..from + count, at),
        }
        let hash = blake3::hash(&forged[..head]);
        forged[digest..digest + 32].copy_from_slice(hash.as_bytes());
        let model = Model::builder(Source::bytes(forged))
            .options(small.clone())
            .load();
        if let Ok(model) = model {
            loaded += 1;
            let mut s = tabla::Session::new(model);
            computed += usize::from(s.prefill(&[1, 2, 3]).is_ok());
        }
    }
    assert!(
        loaded > 100 && computed > 50,
        "{loaded} loaded, {computed} computed"
    );
}

#[test]
fn sessions_move_between_a_model_and_its_compiled_file() {
    let scratch = Folder::new("compiled-sessions");
    let (compiled, path) = (scratch.0.join("model.tabla"), golden("quant_q8_0.gguf"));
    compile(&path, &compiled, &[DeviceChoice::Cpu], &options());
    let state = scratch.0.join("session.bin");
    let mut s = session(&path, &options());
    s.prefill(&[1, 5, 9, 11]).expect("the tokens fit");
    s.save(&state).expect("saves");
    let next = |s: &mut tabla::Session| {
        s.truncate(3);
        s.prefill(&[11]).expect("the tokens fit");
        let mut row = vec![0.0; s.facts().vocab as usize];
        s.logits(&mut row).expect("logits");
        row
    };
    let model = Model::builder(&compiled).options(options()).load();
    let mut other = tabla::Session::load(model.expect("loads"), &state).expect("the same model");
    assert_eq!(other.tokens(), s.tokens());
    assert_eq!(next(&mut other), next(&mut s));
}

/// A compiled model of another version is replaced by the original, also where only its tokenizer is needed.
#[test]
fn another_version_falls_back() {
    let scratch = Folder::new("compiled-version");
    let (path, compiled) = (scratch.0.join("small.gguf"), scratch.0.join("model.tabla"));
    std::fs::copy(golden("quant_q4_0.gguf"), &path).expect("a copy");
    compile(&path, &compiled, &[DeviceChoice::Cpu], &options());
    let mut bytes = std::fs::read(&compiled).expect("a file");
    let key = b"tabla.compiled.build";
    let at = bytes.windows(key.len()).position(|window| window == key);
    // The key is followed by the type and the length of the value.
    let value = at.expect("the key") + key.len() + 4 + 8;
    bytes[value] = b'9';
    std::fs::write(&compiled, &bytes).expect("a file");
    check_tokens("another version", &path, &compiled);
    assert_eq!(results(&compiled, &options()), results(&path, &options()));
    std::fs::remove_file(&path).expect("a file");
    let error = load_tokenizer(&Source::from(&compiled)).expect_err("no original");
    assert!(
        error.message().contains("compiled model of version 9"),
        "{error}"
    );
}

/// The weights of the original are not those of a model with merged adapters.
#[test]
fn changed_weights_have_no_fallback() {
    let scratch = Folder::new("compiled-merged");
    let (path, compiled) = (scratch.0.join("story.gguf"), scratch.0.join("model.tabla"));
    std::fs::copy(golden("../../models/story.gguf"), &path).expect("a copy");
    let adapters = vec![(golden("lora/story"), 1.0)];
    let merged = options().lora(adapters);
    compile(&path, &compiled, &[DeviceChoice::Cpu], &merged);
    let expected = results(&path, &merged);
    assert_eq!(results(&compiled, &options()), expected);
    assert_ne!(results(&path, &options()), expected);
    let load = |options: LoadOptions| Model::builder(&compiled).options(options).load();
    let error = load(options().level(Some(Level::Scalar))).expect_err("no such weights");
    assert!(error.message().contains("scalar"), "{error}");
    // With the adapters, the original has them.
    assert_eq!(results(&compiled, &merged), expected);
}

#[test]
fn a_layout_is_stored_once() {
    let scratch = Folder::new("compiled-twice");
    let (one, two) = (scratch.0.join("one.tabla"), scratch.0.join("two.tabla"));
    let path = golden("quant_q4_0.gguf");
    compile(&path, &one, &[DeviceChoice::Cpu], &options());
    let report = compile(
        &path,
        &two,
        &[DeviceChoice::Cpu, DeviceChoice::Cpu],
        &options(),
    );
    assert_eq!(report.layouts.len(), 1);
    assert_eq!(results(&two, &options()), results(&one, &options()));
}

#[test]
fn models_in_memory_may_be_at_any_address() {
    let scratch = Folder::new("compiled-memory");
    let compiled = scratch.0.join("model.tabla");
    let path = golden("quant_q8_0.gguf");
    compile(&path, &compiled, &[DeviceChoice::Cpu], &options());
    let bytes = std::fs::read(&compiled).expect("a file");
    let row = |source: Source| {
        let model = Model::builder(source).options(options()).load();
        let mut s = tabla::Session::new(model.expect("loads"));
        s.prefill(&[1, 5, 9]).expect("the tokens fit");
        let mut row = vec![0.0; s.facts().vocab as usize];
        s.logits(&mut row).expect("logits");
        row
    };
    let expected = row(Source::from(&path));
    for shift in [0, 1, 4] {
        struct Shifted(Vec<u8>, usize);
        impl AsRef<[u8]> for Shifted {
            fn as_ref(&self) -> &[u8] {
                &self.0[self.1..]
            }
        }
        let shifted = Shifted([&vec![0; shift][..], &bytes].concat(), shift);
        assert_eq!(row(Source::bytes(shifted)), expected, "{shift}");
    }
}

/// A weight that is only in a layout, with more elements than its bytes: no memory is taken for it.
#[test]
fn forged_shapes_take_no_memory() {
    let scratch = Folder::new("compiled-shapes");
    let compiled = scratch.0.join("model.tabla");
    let path = golden("arch/embedding_gemma/model.gguf");
    compile(&path, &compiled, &[DeviceChoice::Cpu], &options());
    let directory = open_directory(&Source::from(&compiled)).expect("opens");
    let metadata = &directory.metadata;
    let names = metadata
        .strs("tabla.weights.names")
        .expect("a list")
        .expect("names");
    let weight = names
        .iter()
        .position(|name| *name == "dense_2.weight")
        .expect("a Dense module");
    let mut rows = metadata
        .u32s("tabla.weights.rows")
        .expect("a list")
        .expect("rows");
    rows[weight] = 0xffff_fff0;
    let mut writer = Writer::new();
    writer.alignment(64).list("tabla.weights.rows", &rows);
    let after = "dense_after_pooling";
    let arch = metadata
        .str("general.architecture")
        .expect("a text")
        .expect("a name");
    writer.set(&format!("{arch}.{after}"), true);
    for (key, value) in metadata.iter() {
        if !["general.alignment", "tabla.weights.rows"].contains(&key) && !key.ends_with(after) {
            writer.copy(key, value);
        }
    }
    for tensor in &directory.tensors {
        let name = match &*tensor.name {
            "dense_2.weight" => "dense_2.weight#panels",
            name => name,
        };
        writer.tensor(
            name,
            tensor.dtype,
            &tensor.dims,
            directory.bytes(tensor).to_vec(),
        );
    }
    let mut forged = writer.finish().expect("a file");
    let file = tabla::format::open_bytes("forged", forged.clone()).expect("opens");
    let digest = file.tensor("tabla.digest").expect("a digest").offset;
    let digest = usize::try_from(digest).expect("a small file");
    let hash = blake3::hash(file.head());
    forged[digest..digest + 32].copy_from_slice(hash.as_bytes());
    let error = Model::builder(Source::bytes(forged))
        .options(options())
        .load();
    let error = error.expect_err("more elements than bytes");
    assert!(error.message().contains("do not fit"), "{error}");
}

#[test]
fn cache_compiles_a_model_once() {
    let scratch = Folder::new("compiled-cache");
    let (path, cache) = (scratch.0.join("small.gguf"), scratch.0.join("cache"));
    std::fs::copy(golden("quant_q4_0.gguf"), &path).expect("a copy");
    let cached = options().compiled_cache_path(Some(cache.clone()));
    let expected = results(&path, &options());
    let models = || tabla::tools::cached_models(&cache).expect("a folder");
    // Several threads, as several processes would, find the same file.
    std::thread::scope(|scope| {
        let loads = [(); 4].map(|()| scope.spawn(|| results(&path, &cached)));
        for load in loads {
            assert_eq!(load.join().expect("no panic"), expected);
        }
    });
    let first = models();
    assert_eq!(first.len(), 1, "{first:?}");
    assert_eq!(
        first[0].header.as_ref().expect("readable").source,
        "small.gguf"
    );
    assert_eq!(results(&path, &cached), expected);
    let modified = |path: &Path| path.metadata().and_then(|m| m.modified()).expect("a time");
    let written = modified(&first[0].path);
    // Other options of the weights, and a changed file, are other models; a context is not.
    assert_eq!(
        results(&path, &cached.clone().max_context(64)).len(),
        expected.len()
    );
    assert_eq!(models().len(), 1);
    results(&path, &cached.clone().precision(Precision::Exact));
    assert_eq!(models().len(), 2);
    std::fs::copy(golden("quant_q8_0.gguf"), &path).expect("a copy");
    assert_eq!(results(&path, &cached), results(&path, &options()));
    assert_eq!(models().len(), 3);
    assert_eq!(
        modified(&first[0].path),
        written,
        "compiled files are not written again"
    );
    let left = cache.read_dir().expect("a folder").flatten();
    let left: Vec<_> = left
        .map(|entry| entry.path())
        .filter(|p| p.extension().is_some_and(|e| e != "tabla" && e != "used"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A changed file of the same size and time, a damaged compiled model, a device that reads no panels, and a folder that
/// cannot be written: the results are those of the model.
#[test]
fn cache_never_changes_results() {
    let scratch = Folder::new("compiled-cache-changed");
    let (path, cache) = (scratch.0.join("small.gguf"), scratch.0.join("cache"));
    let cached = options().compiled_cache_path(Some(cache.clone()));
    std::fs::copy(golden("quant_q4_0.gguf"), &path).expect("a copy");
    results(&path, &cached);
    let metadata = path.metadata().expect("a file");
    let mut bytes = std::fs::read(&path).expect("a file");
    let last = bytes.len() - 8;
    bytes[last] ^= 0x3f;
    std::fs::write(&path, &bytes).expect("a file");
    let file = std::fs::File::options()
        .write(true)
        .open(&path)
        .expect("a file");
    file.set_modified(metadata.modified().expect("a time"))
        .expect("a time");
    assert_eq!(path.metadata().expect("a file").len(), metadata.len());
    assert_eq!(results(&path, &cached), results(&path, &options()));
    let models = tabla::tools::cached_models(&cache).expect("a folder");
    let newest = &models[0].path;
    let compiled = std::fs::read(newest).expect("a file");
    for damaged in [&compiled[..compiled.len() / 2], &[]] {
        std::fs::write(newest, damaged).expect("a file");
        assert_eq!(results(&path, &cached), results(&path, &options()));
    }
    // What a process left that was killed while it wrote.
    let name = newest.file_name().expect("a name").to_string_lossy();
    let part = newest.with_file_name(format!(".{name}.1.0.part"));
    std::fs::write(&part, b"part").expect("a file");
    std::fs::remove_file(newest).expect("a file");
    assert_eq!(results(&path, &cached), results(&path, &options()));
    assert!(newest.exists() && !part.exists());
    let scalar = cached.clone().level(Some(Level::Scalar));
    assert_eq!(
        results(&path, &scalar),
        results(&path, &options().level(Some(Level::Scalar)))
    );
    // A folder that cannot be written is a warning.
    let file = scratch.0.join("file");
    std::fs::write(&file, b"").expect("a file");
    let broken = options().compiled_cache_path(Some(file.join("cache")));
    assert_eq!(results(&path, &broken), results(&path, &options()));
}

/// A model is also what the files next to its weights say.
#[test]
fn cache_knows_the_configuration_of_a_file_of_safetensors() {
    let scratch = Folder::new("compiled-cache-safetensors");
    let cache = Folder::new("compiled-cache-of-safetensors");
    scratch.copy(&golden("arch/llama/hf"));
    let weights = scratch.0.join("model.safetensors");
    // As in the cache of the Hub.
    #[cfg(unix)]
    {
        let blob = cache.0.join("blob");
        std::fs::rename(&weights, &blob).expect("renamed");
        std::os::unix::fs::symlink(&blob, &weights).expect("a link");
    }
    let cached = options().compiled_cache_path(Some(cache.0.clone()));
    let models = || {
        tabla::tools::cached_models(&cache.0)
            .expect("a folder")
            .len()
    };
    let first = results(&weights, &cached);
    assert_eq!((results(&weights, &cached), models()), (first.clone(), 1));
    scratch.edit(
        "config.json",
        "\"rms_norm_eps\": 1e-05",
        "\"rms_norm_eps\": 1e-01",
    );
    let expected = results(&weights, &options());
    assert_ne!(expected, first, "the configuration matters");
    assert_eq!((results(&weights, &cached), models()), (expected, 2));
}

/// Files of one version of the format have one layout. If this test fails because a layout was changed on purpose,
/// increase `compiled::VERSION` and replace the digest.
#[test]
fn layouts_of_this_version_do_not_change() {
    let scratch = Folder::new("compiled-layout");
    let gpu = has_gpu().then_some((DeviceChoice::Gpu, "#sections", SECTIONS));
    for (device, suffix, digest) in [(DeviceChoice::Cpu, "#panels", PANELS)]
        .into_iter()
        .chain(gpu)
    {
        let mut hasher = blake3::Hasher::new();
        for name in [
            "quant_q4_0",
            "quant_q8_0",
            "arch/bitnet_tq/model",
            "arch/gpt_oss/model",
        ] {
            let compiled = scratch.0.join("model.tabla");
            let path = golden(&format!("{name}.gguf"));
            compile(&path, &compiled, &[device], &options().device(device));
            let directory = open_directory(&Source::from(&compiled)).expect("opens");
            let tensors = directory.tensors.iter();
            for tensor in tensors.filter(|tensor| tensor.name.ends_with(suffix)) {
                hasher.update(directory.bytes(tensor));
            }
        }
        assert_eq!(&*hasher.finalize().to_hex(), digest, "{suffix}");
    }
}

/// Digests of the panels and sections of some models.
const PANELS: &str = "7e29ee130a7c81dd6c01620fa46e55de0d079f53abf6146ceb3ff776a67a96bd";
const SECTIONS: &str = "6e43c63a02182d1fcb56e09a030501b1963f9b3368f27b5a305ec8a0006a5a6e";

#[test]
fn a_model_always_compiles_to_the_same_bytes() {
    let scratch = Folder::new("compiled-twice");
    for name in [
        "arch/llama/model",
        "arch/gemma3_nested/model",
        "arch/bert_cls/model",
    ] {
        let path = golden(&format!("{name}.gguf"));
        let [a, b] = ["a", "b"].map(|file| {
            let compiled = scratch.0.join(file);
            compile(&path, &compiled, &[DeviceChoice::Cpu], &options());
            std::fs::read(compiled).expect("a file")
        });
        assert!(a == b, "{name}");
    }
}
