#!/usr/bin/env bash
# Runs the tests as 64-bit Arm programs with qemu: every CPU kernel at every NEON level, and the whole suite without GPUs.
#   tests/platforms/arm64.sh [PACKAGE...]
# Without arguments, all packages: many hours. Prints a row for each test program.
source "$(dirname "$0")/common.sh"
need aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
need qemu-aarch64 qemu-user
need unshare util-linux
[ -e /usr/aarch64-linux-gnu/lib/libc.so ] || missing+=(libc6-dev-arm64-cross)
check_packages
# Tests start programs, so Linux itself must start those of Arm with qemu: with qemu-user-binfmt, or since Linux 6.7 in a
# user namespace, which has such a list of its own.
if [ ! -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ] && [ -z "${TABLA_NAMESPACE:-}" ]; then
    TABLA_NAMESPACE=1 exec unshare --user --map-root-user --mount tests/platforms/arm64.sh "$@"
fi
if [ -n "${TABLA_NAMESPACE:-}" ]; then
    list=/proc/sys/fs/binfmt_misc
    mount -t binfmt_misc none "$list"
    start='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
    mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
    echo ":qemu-aarch64:M::$start:$mask:$(command -v qemu-aarch64):OCF" >"$list/register"
fi
target=aarch64-unknown-linux-gnu
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
# `max` has all levels: NEON, dot products, and matrix products of bytes.
export QEMU_LD_PREFIX=/usr/aarch64-linux-gnu QEMU_CPU="${QEMU_CPU:-max}" CARGO_TERM_COLOR=never
# C programs of tests, also those that a test compiles.
export HOST_CC=cc CC=aarch64-linux-gnu-gcc CXX=no NM=aarch64-linux-gnu-nm VALGRIND=no
rustup -q target add "$target"

# With these, which start pools of threads again and again, qemu 7.2 takes more memory than 8 GB.
skipped=(gemm_matches_gemv_bitwise result_is_independent_of_thread_count)
everything=(tabla-{core,quant,format,plan,text,audio,speech,cpu,load,tools,shaders,server,capi,cli} tabla)
[ "$#" -gt 0 ] || set -- "${everything[@]}"
logs="$PWD/target/platforms/arm64"
mkdir -p "$logs"
rows=()
for package in "$@"; do
    log="$logs/$package.log"
    begun=$SECONDS
    status=0
    cargo test --release --no-fail-fast --target "$target" --no-default-features --lib --bins --tests -p "$package" -- "${skipped[@]/#/--skip=}" >"$log" 2>&1 || status=$?
    [ "$status" -eq 0 ] && passed=$((passed + 1)) || { failed=$((failed + 1)); tail -n 40 "$log"; }
    rows+=("$(awk -v package="$package" -v seconds=$((SECONDS - begun)) '
        / Running / { programs++ }
        /^test result:/ { passed += $4; failed += $6; ignored += $8 }
        END { printf "%-14s %3d programs, %5d passed, %3d failed, %3d ignored, %6d s", package, programs, passed, failed, ignored, seconds }' "$log")")
    echo "${rows[-1]}"
done
echo "== processor: $QEMU_CPU; without ${skipped[*]}"
printf '%s\n' "${rows[@]}"
finish
