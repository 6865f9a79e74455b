#!/usr/bin/env bash
# Type-checks the library for macOS and iOS. Nothing is linked or run, and the server and the program are not checked: that
# needs Apple's SDK.
source "$(dirname "$0")/common.sh"
check_packages
export CARGO_TERM_COLOR=never
for target in aarch64-apple-darwin aarch64-apple-ios; do
    rustup -q target add "$target"
    check "$target: C library" cargo check --quiet --release --target "$target" -p tabla-capi
    check "$target: C library, without GPUs" cargo check --quiet --release --target "$target" --no-default-features -p tabla-capi
done
finish
