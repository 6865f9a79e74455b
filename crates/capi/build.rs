//! Hides the symbols of dependencies in the shared library of Linux, and names that of macOS for any folder.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The linker of zig has no such option. The library of the wheel, which it links, is loaded without global symbols.
    let linker = std::env::var("RUSTC_LINKER").unwrap_or_default();
    let argument = match std::env::var("CARGO_CFG_TARGET_OS").as_deref() {
        Ok("linux") if !linker.contains("zig") => "-Wl,--exclude-libs,ALL",
        Ok("macos") => "-Wl,-install_name,@rpath/libtabla.dylib",
        _ => return,
    };
    println!("cargo::rustc-cdylib-link-arg={argument}");
}
