//! Installation of the program: the binary, man pages and completions, with a script as the program.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const SCRIPT: &str = "#!/bin/sh
case $1 in
man) mkdir -p \"$2\" && echo page > \"$2/tabla.1\" ;;
completions) echo \"completions of $2\" ;;
*) exit 1 ;;
esac
";

#[test]
fn program_is_installed_with_man_pages_and_completions() {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("program");
    let _ = fs::remove_dir_all(&scratch);
    fs::create_dir_all(&scratch).expect("writable folder");
    let program = scratch.join("tabla");
    fs::write(&program, SCRIPT).expect("writable file");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("own file");
    let prefix = scratch.join("prefix");
    xtask::install_program(&scratch, &prefix, &xtask::Target::default())
        .expect("installation succeeds");
    let check = |path: &str, expected: &str| {
        let text = fs::read_to_string(prefix.join(path));
        assert_eq!(text.expect("an installed file"), expected, "{path}");
    };
    check("bin/tabla", SCRIPT);
    check("share/man/man1/tabla.1", "page\n");
    check(
        "share/bash-completion/completions/tabla",
        "completions of bash\n",
    );
    check("share/zsh/site-functions/_tabla", "completions of zsh\n");
    check(
        "share/fish/vendor_completions.d/tabla.fish",
        "completions of fish\n",
    );
}
