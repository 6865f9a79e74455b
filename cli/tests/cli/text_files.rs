//! Text files with byte order marks, which editors on Windows write.

use super::{Scratch, check_failure, tabla, tabla_with_bytes};

/// A command with a file, and the content of the file.
const FILES: [(&[&str], &str); 6] = [
    (
        &["run", "-n", "8", "-q", "-s", "1", "-f"],
        "The little dog\n",
    ),
    (
        &["embed", "--pooling", "mean", "-f"],
        "a red ball\na blue car\n",
    ),
    (
        &["embed", "--pooling", "mean", "--jsonl", "-f"],
        "\"a red ball\"\n{\"text\": \"a blue car\"}\n",
    ),
    (
        &["run", "-n", "8", "-q", "-s", "1", "--grammar-file"],
        "root ::= \"yes\" | \"no\"\n",
    ),
    (
        &["run", "-n", "24", "-q", "-s", "1", "--json-schema-file"],
        "{\"enum\": [\"dog\", \"cat\"]}",
    ),
    (
        &[
            "chat",
            "-n",
            "4",
            "-q",
            "-s",
            "1",
            "-p",
            "Hi",
            "--chat-template",
        ],
        "{% for m in messages %}{{ m.content }} {% endfor %}",
    ),
];

/// Returns the arguments of a command with a file.
fn with_file<'a>(command: &[&'a str], file: &'a Scratch) -> Vec<&'a str> {
    let mut args = command.to_vec();
    args.extend([file.path(), "--device", "cpu"]);
    args
}

#[test]
fn byte_order_marks_are_not_part_of_the_text() {
    for (at, (command, text)) in FILES.into_iter().enumerate() {
        let plain = Scratch::with_bytes(&format!("plain-{at}"), text.as_bytes());
        let marked = Scratch::with_bytes(
            &format!("marked-{at}"),
            format!("\u{feff}{text}").as_bytes(),
        );
        let [marked, plain] = [&marked, &plain].map(|file| tabla(&with_file(command, file)));
        assert_eq!(marked.text(), plain.text(), "{command:?}");
    }
    let embed = ["embed", "--device", "cpu", "--pooling", "mean"];
    let joined = tabla_with_bytes(
        &embed,
        "\u{feff}a red ball\n\u{feff}a blue car\n".as_bytes(),
    );
    let plain = tabla_with_bytes(&embed, b"a red ball\na blue car\n");
    assert_eq!(joined.text(), plain.text());
}

#[test]
fn utf16_is_named() {
    for (at, (command, text)) in FILES.into_iter().enumerate() {
        let units = text.encode_utf16().flat_map(u16::to_le_bytes);
        let bytes: Vec<u8> = [0xff, 0xfe].into_iter().chain(units).collect();
        let file = Scratch::with_bytes(&format!("utf16-{at}"), &bytes);
        let ran = tabla(&with_file(command, &file));
        check_failure(&ran, "the text is UTF-16: save it as UTF-8");
    }
}
