#!/usr/bin/env bash
# Builds the program and the C library for x86_64-pc-windows-gnu and runs them with wine: texts, files, C programs and
# the server. Results must equal those of the Linux program.
source "$(dirname "$0")/common.sh"
need x86_64-w64-mingw32-gcc gcc-mingw-w64-x86-64-posix
need wine wine64
need curl curl
check_packages
target=x86_64-pc-windows-gnu
rustup -q target add "$target"
reference
cargo build --quiet --release --target "$target" -p tabla-cli -p tabla-capi

built="$PWD/target/$target/release"
folder="$PWD/target/platforms/windows"
golden=tests/golden/arch/llama
rm -rf "$folder"
mkdir -p "$folder/modèle 1"
# A prefix of its own, without .NET and HTML, whose installers would ask for them.
export WINEPREFIX="$PWD/target/platforms/wine" WINEDEBUG=-all WINEDLLOVERRIDES="mscoree,mshtml="
wineboot -i >/dev/null 2>&1
trap 'wineserver -k' EXIT
system="$WINEPREFIX/drive_c/windows/system32"
[ -e "$system/bcryptprimitives.dll" ] ||
    x86_64-w64-mingw32-gcc -O1 -Wall -shared tests/platforms/bcryptprimitives.c -ladvapi32 -o "$system/bcryptprimitives.dll"
tabla() { wine "$built/tabla.exe" "$@" 2>"$folder/stderr" || { cat "$folder/stderr" >&2; return 1; }; }
here() { "$program" "$@" 2>/dev/null; }
story=(-p "Once upon a time" -n 48 --device cpu)

check "version" same tabla here --version
check "built-in model, greedy" same tabla here run "${story[@]}" --temp 0
check "built-in model, sampled" same tabla here run "${story[@]}" -s 7 --temp 0.8
check "text that is not ASCII" same tabla here tokenize "Ünïcödé 世界 🙂"
check "safetensors" same tabla here run "${story[@]}" --temp 0 -m "$golden/hf"
for mode in mmap auto; do
    check "GGUF, --load-mode $mode" same tabla here run "${story[@]}" --temp 0 --load-mode "$mode" -m "$golden/model.gguf"
done
cp "$golden/model.gguf" "$folder/modèle 1/model.gguf"
check "path that is not ASCII" same tabla here run "${story[@]}" --temp 0 -m "$folder/modèle 1/model.gguf"
backslashes() { [ "$(tabla tokenize -m "Z:${folder//\//\\}\\modèle 1\\model.gguf" abc)" = "$(here tokenize -m "$golden/model.gguf" abc)" ]; }
check "path of Windows" backslashes
check "compile" tabla compile "$golden/model.gguf" -o "$folder/model.tabla"
check "compiled model" same tabla here run "${story[@]}" --temp 0 -m "$folder/model.tabla"
# Its file is mapped by the first process while the second replaces it.
check "compile again" tabla compile "$golden/model.gguf" -o "$folder/model.tabla" --force
check "quantize" tabla quantize "$golden/model.gguf" "$folder/q8_0.gguf" q8_0
check "quantized model" same tabla here run "${story[@]}" --temp 0 -m "$folder/q8_0.gguf"
fails() { ! wine "$built/tabla.exe" "$@" >/dev/null 2>"$folder/stderr" && grep -q "no such file" "$folder/stderr"; }
check "missing file" fails run -p x -m "$folder/missing.gguf"
if [ -n "${TABLA_TESTDATA:-}" ]; then
    check "stories260K" same tabla here run "${story[@]}" --temp 0 -m "$TABLA_TESTDATA/gguf/stories260K.gguf"
    check "transcription" same tabla here transcribe -m "$TABLA_TESTDATA/whisper/jfk-memo3.en-q5_1.bin" "$TABLA_TESTDATA/audio/jfk.wav"
fi

# The C library: exported functions, and the programs of the tests and examples.
exports() {
    diff include/exports.txt <(x86_64-w64-mingw32-objdump -p "$built/tabla.dll" | awk '$1 ~ /^\[/ && $NF ~ /^tabla_/ { print $NF }' | sort)
}
check "exports of tabla.dll" exports
cp "$built/tabla.dll" "$folder"
# The system libraries that `cargo rustc -- --print native-static-libs` lists.
native=(-lws2_32 -luserenv -lntdll -lbcrypt -ladvapi32 -lole32 -loleaut32 -lopengl32 -lgdi32 -ldbghelp)
compile() {
    x86_64-w64-mingw32-gcc -std=c99 -O1 -Wall -Wextra -Werror -I include "$1" -o "$folder/$2.exe" "${@:3}" -pthread -lm -static-libgcc
}
program_of() { compile "$1" "$2" "${@:3}" && cp -u /usr/x86_64-w64-mingw32/lib/libwinpthread-1.dll "$folder"; }
clean() { wine "$@" >"$folder/stdout" 2>&1; grep -q ' checks passed, 0 failed' "$folder/stdout" || { cat "$folder/stdout"; return 1; }; }
echo "Not a model." >"$folder/no-model.gguf"
version="$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)"
for kind in dynamic static; do
    libraries=("$built/libtabla.dll.a")
    [ "$kind" = dynamic ] || libraries=("$built/libtabla.a" "${native[@]}")
    for name in smoke sessions hooks; do
        check "compile $name.c, $kind" program_of "tests/capi/$name.c" "$name-$kind" "${libraries[@]}"
    done
    check "smoke.c, $kind" clean "$folder/smoke-$kind.exe" "$version" "$folder/no-model.gguf" models/story.gguf
    check "sessions.c, $kind" clean "$folder/sessions-$kind.exe" "$folder/session" tests/golden/cross_encoder/xlm_roberta_labels/model.gguf
    check "hooks.c, $kind" clean "$folder/hooks-$kind.exe" "$folder" "$golden/model.gguf" tests/golden/lora/llama/adapter.gguf
done
prints() { wine "$folder/$1.exe" <<<"Tell me of a cat." 2>&1 | tr -d '\r' | grep -F "$2"; }
for example in "chat|> " "embed| 1.000  A girl plays with a ball." "progress|18/18 [======"; do
    name="${example%%|*}"
    check "compile $name.c" program_of "bindings/c/examples/$name.c" "$name" "$built/libtabla.dll.a"
    check "$name.c" prints "$name" "${example#*|}"
done

# The server: the same answers as on Linux, and Ctrl-C ends it with status 0.
x86_64-w64-mingw32-gcc -O1 -Wall tests/platforms/interrupt.c -o "$folder/interrupt.exe"
mkfifo "$folder/press"
serve() { "$@" serve -m "$golden/model.gguf" --device cpu --port "$port" >"$folder/log-$port" 2>&1; }
ask() {
    curl -sf --retry 60 --retry-delay 1 --retry-all-errors "http://127.0.0.1:$1/health" >/dev/null &&
        curl -sf "http://127.0.0.1:$1/v1/$2" -d "$3" | sed 's/"created":[0-9]*//; s/"id":"[^"]*"//; s/"timings":.*//'
}
answers() {
    local text
    text="$(ask 18431 "$@")" || { cat "$folder/log-18431"; return 1; }
    [ -n "$text" ] && [ "$text" = "$(ask 18432 "$@")" ]
}
(port=18431; serve wine "$folder/interrupt.exe" "$built/tabla.exe" <"$folder/press") &
theirs=$!
exec 5>"$folder/press"
(port=18432; serve exec "$program") &
ours=$!
chat='{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 24, "temperature": 0, "seed": 1}'
check "chat completion" answers chat/completions "$chat"
check "streamed chat completion" answers chat/completions "${chat%\}}, \"stream\": true}"
check "completion" answers completions '{"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0.8, "seed": 3}'
kill -INT "$ours"
ended() { echo >&5 && wait "$theirs" && grep -q listening "$folder/log-18431"; }
check "Ctrl-C ends the server" ended
exec 5>&-
finish
