#!/usr/bin/env bash
# Builds the static program for x86_64-unknown-linux-musl and runs it in a folder that has nothing else.
# Results must equal those of the program with glibc.
source "$(dirname "$0")/common.sh"
need musl-gcc musl-tools
need readelf binutils
need unshare util-linux
need curl curl
check_packages
target=x86_64-unknown-linux-musl
rustup -q target add "$target"
reference
cargo build --quiet --release --target "$target" -p tabla-cli

built="target/$target/release/tabla"
root="$PWD/target/platforms/musl"
golden=tests/golden/arch/llama
rm -rf "$root"
mkdir -p "$root"
cp "$built" "$golden/model.gguf" "$root"
tabla() { "$built" "$@" 2>/dev/null; }
here() { "$program" "$@" 2>/dev/null; }
# Without /proc, /sys, /dev, /tmp and any library. A user namespace has a root of its own.
alone() { unshare --user --map-root-user chroot "$root" /tabla "$@"; }
story=(-p "Once upon a time" -n 48 --device cpu)

is_static() { ! readelf -lW "$built" | grep -q INTERP && ! readelf -dW "$built" | grep -q NEEDED && ldd "$built" 2>&1 | grep -E 'statically linked|not a dynamic'; }
check "ldd: static" is_static
check "version" same tabla here --version
check "built-in model, greedy" same tabla here run "${story[@]}" --temp 0
check "built-in model, sampled" same tabla here run "${story[@]}" -s 7 --temp 0.8
check "GGUF" same tabla here run "${story[@]}" --temp 0 -m "$golden/model.gguf"
check "safetensors" same tabla here run "${story[@]}" --temp 0 -m "$golden/hf"
if [ -n "${TABLA_TESTDATA:-}" ]; then
    check "stories260K" same tabla here run "${story[@]}" --temp 0 -m "$TABLA_TESTDATA/gguf/stories260K.gguf"
    check "transcription" same tabla here transcribe -m "$TABLA_TESTDATA/whisper/jfk-memo3.en-q5_1.bin" "$TABLA_TESTDATA/audio/jfk.wav"
fi
check "devices, without GPUs" tabla devices
check "alone: built-in model" same alone here run "${story[@]}" --temp 0
in_root() { [ "$(alone run "${story[@]}" --temp 0 -m /model.gguf)" = "$(here run "${story[@]}" --temp 0 -m "$golden/model.gguf")" ]; }
check "alone: GGUF" in_root
check "alone: compile" alone compile /model.gguf -o /model.tabla
compiled() { [ "$(alone run "${story[@]}" --temp 0 -m /model.tabla)" = "$(here run "${story[@]}" --temp 0 -m "$golden/model.gguf")" ]; }
check "alone: compiled model" compiled

unshare --user --map-root-user chroot "$root" /tabla serve -m /model.gguf --port 18433 >"$root/log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
answers() {
    kill -0 "$server" &&
        curl -sf --retry 60 --retry-delay 1 --retry-all-errors http://127.0.0.1:18433/health >/dev/null &&
        curl -sf http://127.0.0.1:18433/v1/chat/completions -d '{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}' | grep '"completion_tokens":8'
}
check "alone: chat completion" answers
ended() { kill -INT "$server" && wait "$server"; }
check "alone: SIGINT ends the server" ended
finish
