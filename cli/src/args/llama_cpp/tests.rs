//! Tests of the options of llama.cpp: each has a counterpart, is ignored with a note, or is refused by
//! its name.

use super::table::{self, ROWS, Rule};
use super::{Rewritten, rewrite};
use crate::args::prompt::STORY;
use crate::commands;
use crate::output::Failure;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::LazyLock;

/// Number of values and spellings of each option of llama.cpp.
const OPTIONS: &str = include_str!("options.txt");

/// Options with equal names and another meaning in one command: the one of Tabla.
const OTHER_MEANINGS: [(&str, &str); 3] = [
    // llama-bench: a text elsewhere.
    ("bench", "-p"),
    ("bench", "-r"),
    // A folder, and text elsewhere.
    ("transcribe", "-o"),
];

static ROOT: LazyLock<clap::Command> = LazyLock::new(|| {
    let mut root = commands::command();
    root.build();
    root
});

fn rewritten(args: &[&str]) -> Result<Rewritten, String> {
    let args = ["tabla"].iter().chain(args).map(OsString::from);
    rewrite(args, &ROOT).map_err(|failure| match failure {
        Failure::Usage(message) => message,
        other => format!("{other:?}"),
    })
}

/// Returns the arguments without the name of the program.
fn args(given: &[&str]) -> Vec<String> {
    let rewritten = rewritten(given).expect("accepted arguments");
    let args = rewritten.args.into_iter().skip(1);
    args.map(|arg| arg.into_string().expect("UTF-8")).collect()
}

fn refused(given: &[&str], expected: &str) {
    let error = rewritten(given).expect_err("refused arguments");
    assert!(error.contains(expected), "{given:?}: {error}");
}

/// Returns the number of values and the spellings of each option.
fn options() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    let lines = OPTIONS.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        let (values, names) = line.split_once(' ').expect("a number and names");
        (values, names.split(' ').collect())
    })
}

/// Whether an argument is an option of the command as clap reads it: exactly, or before an equals sign.
fn is_option_of(command: &clap::Command, arg: &str) -> bool {
    let name = arg.split_once('=').map_or(arg, |(name, _)| name);
    let mut args = command.get_arguments();
    args.any(|arg| {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        let longs = arg.get_long().into_iter().chain(aliases);
        let mut longs = longs.map(|long| format!("--{long}"));
        let short = arg.get_short().map(|letter| format!("-{letter}"));
        longs.any(|long| long == name) || short.as_deref() == Some(name)
    })
}

/// Checks what a command does with one spelling.
fn check(command: &clap::Command, name: &str, values: &str) {
    let count = values.parse().unwrap_or(0);
    let mut given = vec![command.get_name(), name];
    given.extend(["7", "7"].iter().take(count));
    let done = match rewritten(&given) {
        Err(message) => {
            assert!(message.contains(name), "{given:?}: {message}");
            return;
        }
        Ok(done) => done,
    };
    if done.notes.iter().any(|note| note.contains(name)) {
        return;
    }
    // Everything that remains begins with options of the command, or is unknown to it in full.
    let args: Vec<&str> = done.args[2..]
        .iter()
        .filter_map(|arg| arg.to_str())
        .collect();
    let unchanged = args.first() == Some(&name);
    for arg in args.iter().filter(|arg| arg.starts_with('-')) {
        let is_unknown = unchanged && (name.starts_with("--") || name.len() == 2);
        assert!(
            is_option_of(command, arg) || is_unknown,
            "{given:?}: {args:?}"
        );
    }
    if unchanged && is_option_of(command, name) && !OTHER_MEANINGS.contains(&(given[0], name)) {
        let mut own = command.get_arguments();
        let own =
            own.find(|arg| is_option_of(&clap::Command::new("one").arg((*arg).clone()), name));
        let takes = own.is_some_and(|arg| arg.get_action().takes_values());
        assert_eq!(takes, count > 0, "{given:?}: another number of values");
    }
}

#[test]
fn no_option_is_read_as_another_one() {
    let root = &*ROOT;
    for command in root.get_subcommands().filter(|c| c.get_name() != "help") {
        for (values, names) in options() {
            names.iter().for_each(|name| check(command, name, values));
        }
    }
}

#[test]
fn every_option_has_a_row_or_is_one_of_tabla() {
    let root = &*ROOT;
    let in_tabla = |name: &str| {
        root.get_subcommands()
            .any(|command| is_option_of(command, name))
    };
    for (_, names) in options() {
        for name in names {
            let known = in_tabla(name) || table::row(name).is_some();
            assert!(known || ["--version", "--help"].contains(&name), "{name}");
        }
    }
}

#[test]
fn rows_name_each_option_once_and_lead_to_options_of_a_command() {
    let root = &*ROOT;
    let known = |option: &str| {
        let mut commands = root.get_subcommands();
        commands.any(|command| is_option_of(command, option)) || option == "--help"
    };
    let mut seen = BTreeSet::new();
    for row in ROWS {
        for name in row.names.split(' ') {
            assert!(seen.insert(name), "{name} has two rows");
        }
        for rule in row.rules {
            match rule {
                Rule::To(option) | Rule::Args([option, ..]) => assert!(known(option), "{option}"),
                _ => {}
            }
        }
    }
}

#[test]
fn options_become_those_of_tabla() {
    assert_eq!(
        args(&["-ngl", "0", "-n", "4"]),
        ["--device", "cpu", "-n", "4"]
    );
    assert_eq!(
        args(&["run", "--temperature", "0.5"]),
        ["run", "--temp=0.5"]
    );
    assert_eq!(
        args(&["chat", "-sys", "- be brief"]),
        ["chat", "--system-prompt=- be brief"]
    );
    assert_eq!(
        args(&["-hf=a/b", "--ctx_size=9"]),
        ["--hf-repo=a/b", "--ctx-size=9"]
    );
    assert_eq!(args(&["-md", "small.gguf"]), ["--model-draft=small.gguf"]);
    assert_eq!(args(&["-r", "User:"]), ["--stop=User:"]);
    assert_eq!(args(&["bench", "-r", "2"]), ["bench", "-r", "2"]);
    assert_eq!(
        args(&["-ctk", "q8_0", "-ctv", "q8_0"]),
        ["--cache-type=q8_0"]
    );
    assert_eq!(
        args(&["--sampler-seq", "kt"]),
        ["--samplers", "top_k;temperature"]
    );
    assert_eq!(args(&["--device", "none"]), ["--device", "cpu"]);
    assert_eq!(args(&["--no-mmap"]), ["--load-mode", "read"]);
    assert_eq!(args(&["-lm", "none"]), ["--load-mode", "read"]);
    assert_eq!(
        args(&["perplexity", "-f", "wiki.txt"]),
        ["perplexity", "wiki.txt"]
    );
    assert_eq!(
        args(&["serve", "-np", "2", "-a", "x"]),
        ["serve", "--parallel=2", "--alias=x"]
    );
    let lora = args(&["--lora-scaled", "a.gguf:0.5"]);
    assert_eq!(lora, ["--lora=a.gguf=0.5"]);
}

#[test]
fn ignored_options_take_their_values_and_print_a_note() {
    let check = |given: &[&str], left: &[&str], count: usize| {
        assert_eq!(args(given), left, "{given:?}");
        let notes = rewritten(given).expect("accepted").notes;
        assert_eq!(notes.len(), count, "{notes:?}");
        let option = given.iter().find(|arg| arg.starts_with('-'));
        let shown = option.and_then(|option| option.split('=').next());
        let shown = shown.expect("a name");
        assert!(
            notes.iter().all(|note| note.starts_with("note: ")),
            "{notes:?}"
        );
        assert!(notes[0].contains(shown), "{notes:?}");
    };
    check(&["-ngl", "99", "-fa", "on", "-n", "4"], &["-n", "4"], 2);
    check(&["-fa", "-n", "4"], &["-n", "4"], 1);
    check(&["-fa", "0,1", "-n", "4"], &["-n", "4"], 1);
    check(&["-b", "512", "-ub=64", "--mlock"], &[], 3);
    check(&["-C", "-1"], &[], 1);
    check(&["-fa="], &[], 1);
    let notes = rewritten(&["-fa="]).expect("accepted").notes;
    assert!(!notes[0].contains("  "), "{notes:?}");
    check(&["chat", "-mli"], &["chat"], 1);
    check(&["chat", "--multiline-input"], &["chat"], 1);
    check(&["-ctk", "f32"], &["--cache-type=f32"], 1);
}

#[test]
fn other_options_are_refused_by_their_names() {
    refused(&["-lm", "mlock"], "does not lock memory");
    refused(&["-lm", "foo"], "expected auto, mmap or read");
    refused(&["-ts", "3,1"], "-ts is not supported");
    refused(&["chat", "-f", "x.txt"], "-p \"$(cat FILE)\"");
    refused(&["quantize", "-o", "x.gguf"], "after the input");
    refused(&["chat", "-o", "x.json"], "/save FILE");
    refused(&["-o", "x.txt"], "> FILE");
    refused(&["-cl"], "`tabla list`");
    refused(&["-hff", "x.gguf"], "-hf ORG/REPO:FILE");
    refused(&["-sys", "x"], "tabla chat");
    refused(&["-ctk", "q8_0", "-ctv", "f16"], "-ctv f16");
    refused(&["-ctk", "q4_0"], "-ctk q4_0");
    refused(&["-ngl"], "-ngl: expected a value");
    refused(&["-ngl", "-fa"], "-ngl: expected a value");
    refused(&["-ngl", "many"], "-ngl many");
    refused(&["--mlock=1"], "--mlock takes no value");
    refused(&["tokenize", "-ngl", "0"], "--device");
}

#[test]
fn letters_after_a_short_option_are_no_value() {
    for unchanged in [
        "-n5",
        "-n-1",
        "-s=7",
        "-t4",
        "-m./x.gguf",
        "-qv",
        "-qn5",
        "-",
        "-5",
        "-V",
    ] {
        assert_eq!(args(&[unchanged]), [unchanged]);
    }
    refused(&["-mmodel.gguf"], "write -m model.gguf");
    refused(&["-pHello"], "unknown option -pHello");
    refused(&["-xyz"], "unknown option -xyz");
    refused(&["-ngl99"], "write -ngl 99");
    refused(&["tokenize", "-ngl99"], "write -ngl 99");
    // A single unknown letter is reported by the parser, with the usage.
    assert_eq!(args(&["-x"]), ["-x"]);
}

#[test]
fn texts_can_begin_with_a_hyphen() {
    for unchanged in [
        &["-p", "- a list"][..],
        &["-p", "-hello"],
        &["-p", "--temperature"],
        &["-qp", "-ngl"],
        &["--stop", "---", "-n", "4"],
        &["chat", "--system-prompt", "- be brief"],
        &["rerank", "-q", "-hf", "document"],
        &["-l", "-1+1"],
        // As in llama.cpp, the next argument is the value.
        &["-p", "-n", "5"],
    ] {
        assert_eq!(args(unchanged), unchanged);
    }
    assert_eq!(args(&["-r", "-ngl"]), ["--stop=-ngl"]);
    assert_eq!(
        args(&["tokenize", "-p", "-hf", "--json"]),
        ["tokenize", "--json", "--", "-hf"]
    );
    refused(&["tokenize", "- hi"], "`tabla tokenize -- TEXT`");
    refused(&["embed", "- a"], "`tabla embed -- TEXT`");
}

#[test]
fn the_last_type_of_the_cache_applies() {
    let given = args(&["-ctk", "q8_0", "-ctk", "f16"]);
    assert_eq!(given, ["--cache-type=q8_0", "--cache-type=f16"]);
    let both = args(&["-ctk", "q8_0", "-ctk", "f16", "-ctv", "f16"]);
    assert_eq!(both, given);
}

#[test]
fn arguments_after_two_hyphens_are_text() {
    assert_eq!(args(&["tokenize", "--", "-hf"]), ["tokenize", "--", "-hf"]);
    assert_eq!(args(&["run", "-p", STORY]), ["run", "-p", STORY]);
    assert_eq!(args(&[]), [""; 0]);
}
