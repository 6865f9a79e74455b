#!/usr/bin/env bash
# The C programs of tests/capi with AddressSanitizer and LeakSanitizer, in them and in the library: it
# looks at the stack and at static memory too, which valgrind does not.
#
# Without the GPU, whose drivers are not instrumented. Wants clang; cargo builds below
# target/sanitizers.
set -euo pipefail
cd "$(dirname "$0")/.."

host="$(rustc --print host-tuple)"
target="$PWD/target/sanitizers"
# The flag is one of nightly compilers; the runtime of it comes with every one. Naming the target keeps
# build scripts and macros as they are.
RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address cargo rustc --quiet --package tabla-capi --lib --crate-type staticlib \
    --no-default-features --config profile.dev.package.tabla-cpu.opt-level=1 \
    --target "$host" --target-dir "$target"
library="$target/$host/debug/libtabla.a"
if [ "$(nm "$library" 2>/dev/null | grep -c ' U __asan_init')" = 0 ]; then
    echo "$library is not instrumented" >&2
    exit 1
fi

# Memory that cannot be had is an error here as it is elsewhere, not the end.
export ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1
check() {
    name="$1"
    shift
    clang -std=c11 -O1 -g -fsanitize=address -fno-omit-frame-pointer -I include \
        "tests/capi/$name.c" "$library" -lpthread -ldl -lm -o "$target/$name"
    "$target/$name" "$@"
}
echo "This is no model." >"$target/no-model.gguf"
version="$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)"
check smoke "$version" "$target/no-model.gguf" "$target/session"
check random 4000 1
