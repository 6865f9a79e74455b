//! Sets of GGUF files: numbers of files and tensors, names of files, tensors that occur twice.

use super::choices::Choices;
use super::errors::accepted;
use super::folder::Folder;
use super::gguf;
use tabla::format;

/// GGUF types of keys.
const U16: u32 = 2;

pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let folder = Folder::new();
    let count = 1 + choices.below(3) as u64;
    let named = choices.number(count);
    let mut paths = Vec::new();
    let mut size = 0;
    for no in 0..count {
        let kind = if choices.rarely(12) {
            choices.below(14) as u32
        } else {
            U16
        };
        let keys = [
            ("split.no", kind, choices.number(no)),
            ("split.count", kind, choices.number(count)),
            ("split.tensors.count", 5, choices.number(0)),
        ];
        let keys = &keys[..if choices.rarely(8) {
            choices.below(4)
        } else {
            3
        }];
        // A part has few choices, so that others have some too.
        let most = usize::from(choices.byte());
        let file = gguf::file(&mut Choices::new(choices.bytes(most)), keys);
        size += file.len();
        let name = format!("m-{:05}-of-{named:05}.gguf", choices.number(no + 1));
        paths.push(folder.write(name, file));
    }
    if let Some(directory) = accepted(size, || format::open(choices.pick(&paths).as_path())) {
        gguf::check(&directory, size);
        assert!(directory.paths().count() as u64 <= count.max(1));
        assert!(
            directory
                .paths()
                .all(|path| path.starts_with(folder.path()))
        );
    }
}
