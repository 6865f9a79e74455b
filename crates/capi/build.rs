//! Hides the symbols of dependencies in the shared library of Linux, and names that of macOS for any folder.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let argument = match std::env::var("CARGO_CFG_TARGET_OS").as_deref() {
        Ok("linux") => "-Wl,--exclude-libs,ALL",
        Ok("macos") => "-Wl,-install_name,@rpath/libtabla.dylib",
        _ => return,
    };
    println!("cargo::rustc-cdylib-link-arg={argument}");
}
