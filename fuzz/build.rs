//! Compiles the C calls of the target `capi`.

fn main() {
    println!("cargo::rerun-if-changed=../tests/capi/random.c");
    cc::Build::new()
        .file("../tests/capi/random.c")
        .include("../include")
        // The program's own.
        .define("main", "random_main")
        .compile("random");
}
