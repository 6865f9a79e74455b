#!/usr/bin/env bash
# Runs the C programs of tests/capi with AddressSanitizer and LeakSanitizer, in the programs and in the
# library. Unlike valgrind, it checks stack and static memory too.
#
# The GPU is disabled, because its drivers are not instrumented. Requires clang; builds in
# target/sanitizers.
set -euo pipefail
cd "$(dirname "$0")/.."

host="$(rustc --print host-tuple)"
target="$PWD/target/sanitizers"
# The flag is unstable, but stable toolchains include the sanitizer runtime. With an explicit target,
# build scripts and macros are not instrumented. Compilation takes most of the time: the kernels are the scalar ones alone,
# only they and block formats are optimized, and nothing is inlined between codegen units.
RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address --cfg tabla_level=\"scalar\"" cargo rustc --quiet --package tabla-capi --lib --crate-type staticlib \
    --no-default-features --config profile.dev.opt-level=0 --config profile.dev.package.tabla-cpu.opt-level=1 --config profile.dev.package.tabla-quant.opt-level=1 \
    --config profile.dev.debug=false --config 'profile.dev.lto="off"' --target "$host" --target-dir "$target"
library="$target/$host/debug/libtabla.a"
if [ "$(nm "$library" 2>/dev/null | grep -c ' U __asan_init')" = 0 ]; then
    echo "$library is not instrumented" >&2
    exit 1
fi

# A failed allocation returns NULL instead of ending the process.
export ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1
builds=()
for name in smoke sessions hooks random; do
    clang -std=c11 -O1 -g -fsanitize=address -fno-omit-frame-pointer -I include \
        "tests/capi/$name.c" "$library" -lpthread -ldl -lm -o "$target/$name" &
    builds+=("$!")
done
for build in "${builds[@]}"; do
    wait "$build"
done
echo "Not a model." >"$target/no-model.gguf"
version="$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)"
"$target/smoke" "$version" "$target/no-model.gguf" models/story.gguf
"$target/sessions" "$target/session" tests/golden/cross_encoder/xlm_roberta_labels/model.gguf
"$target/hooks" "$target" tests/golden/arch/llama/model.gguf tests/golden/lora/llama/adapter.gguf
"$target/random" 2000 1
