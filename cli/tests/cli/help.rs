//! Tests of the help, of completions and of man pages.

use super::tabla;

/// Returns the names of the commands.
fn commands() -> Vec<String> {
    let help = tabla(&["help"]);
    let text = help.text().to_string();
    let (_, list) = text.split_once("Commands:\n").expect("a list of commands");
    let (list, _) = list.split_once("\n\n").expect("the end of the list");
    let lines = list
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| *name != "help")
        .map(str::to_string)
        .collect()
}

#[test]
fn help_is_at_most_100_columns_wide() {
    let commands = commands();
    assert!(
        commands.iter().any(|name| name == "completions"),
        "{commands:?}"
    );
    for command in &commands {
        for option in ["-h", "--help"] {
            let help = tabla(&[command, option]);
            // A long value without spaces is on one line.
            let lines = help.text().lines().filter(|line| line.trim().contains(' '));
            let widest = lines.max_by_key(|line| line.chars().count());
            let widest = widest.expect("a line");
            assert!(
                widest.chars().count() <= 100,
                "{command} {option}: {widest}"
            );
        }
    }
}

#[test]
fn adapters_have_their_own_heading() {
    let help = tabla(&["run", "--help"]);
    let (_, adapters) = help
        .text()
        .split_once("\nAdapters:\n")
        .expect("the heading");
    assert!(adapters.contains("--lora ") && adapters.contains("--control-vector "));
    assert!(!adapters.contains("--model-draft"), "{adapters}");
}

#[test]
fn completions_and_man_pages_list_the_options() {
    for (shell, expected) in [
        ("bash", "complete -F _tabla"),
        ("zsh", "#compdef tabla"),
        ("fish", "complete -c tabla"),
        ("powershell", "Register-ArgumentCompleter"),
        ("elvish", "edit:completion"),
    ] {
        let script = tabla(&["completions", shell]);
        assert!(script.text().contains(expected), "{shell}");
        assert!(script.text().contains("repeat-last-n"), "{shell}");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().to_str().expect("UTF-8");
    assert_eq!(tabla(&["man", path]).text(), "");
    for command in commands() {
        let page = folder.path().join(format!("tabla-{command}.1"));
        let page = std::fs::read_to_string(page).expect("a page");
        assert!(page.contains(".TH"), "{command}");
    }
    assert!(folder.path().join("tabla.1").exists());
}
