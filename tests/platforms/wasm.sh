#!/usr/bin/env bash
# Runs the tests as WebAssembly without threads in Node: the kernels with SIMD128, and the library. Then builds the module
# of the C ABI and tests it.
#   tests/platforms/wasm.sh [PACKAGE...]
# Without arguments, all packages and the module. Prints a row for each package.
source "$(dirname "$0")/common.sh"
need node nodejs
check_packages
rustup -q target add wasm32-wasip1
export CARGO_TARGET_WASM32_WASIP1_RUNNER="node $PWD/tests/wasm/run.mjs"
# The stack is in the memory of a module, which has 1 MB of it by default.
simd="-C target-feature=+simd128 -C link-arg=-zstack-size=4194304"
everything=(tabla-{core,quant,format,plan,text,audio,speech,cpu,load,tools} tabla)
packages=("$@")
[ "$#" -gt 0 ] || packages=("${everything[@]}")
logs="$PWD/target/platforms/wasm"
mkdir -p "$logs"
rows=()
for package in "${packages[@]}"; do
    log="$logs/$package.log"
    status=0
    programs=(--lib --tests)
    # The test programs of allocations and of the source need a system.
    [ "$package" != tabla ] || programs=(--lib --test it)
    [ "$package" != tabla-core ] || programs=(--lib)
    CARGO_TARGET_WASM32_WASIP1_RUSTFLAGS="$simd" cargo test --release --no-fail-fast --target wasm32-wasip1 --no-default-features \
        "${programs[@]}" -p "$package" >"$log" 2>&1 || status=$?
    [ "$status" -eq 0 ] && passed=$((passed + 1)) || { failed=$((failed + 1)); tail -n 40 "$log"; }
    rows+=("$(awk -v package="$package" '
        /^test result:/ { passed += $4; failed += $6; ignored += $8; unsupported += $10 }
        END { printf "%-14s %5d passed, %3d failed, %3d ignored, %3d unsupported", package, passed, failed, ignored, unsupported }' "$log")")
    echo "${rows[-1]}"
done

# The module has no scalar kernels where those of SIMD128 serve, and no built-in model.
module() {
    local link="-C link-arg=--export=malloc -C link-arg=--export=free -C link-arg=--export=__wasm_call_ctors"
    CARGO_TARGET_WASM32_WASIP1_RUSTFLAGS="$simd --cfg tabla_level=\"simd128\" --cfg tabla_model=\"none\" $link" \
        cargo build --profile wasm --target wasm32-wasip1 --target-dir target/wasm -p tabla-capi --no-default-features --features reserve || return
    models=("$PWD/models/story.gguf")
    [ -z "${TABLA_TESTDATA:-}" ] || models+=("$TABLA_TESTDATA"/gguf/*.gguf)
    node tests/wasm/module.mjs target/wasm/wasm32-wasip1/wasm/tabla.wasm "$program" "${models[@]}"
}
if [ "$#" -eq 0 ]; then
    reference
    check "the module of the C ABI" module
fi
printf '%s\n' "${rows[@]}"
finish
