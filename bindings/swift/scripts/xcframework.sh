#!/bin/sh
# Makes CTabla.xcframework beside Package.swift, which takes it from there: the static library for macOS,
# for iOS and for its simulator. It needs a Mac with Xcode, and Rust with these targets:
#
#     rustup target add aarch64-apple-darwin x86_64-apple-darwin \
#         aarch64-apple-ios aarch64-apple-ios-sim x86_64-apple-ios
set -eu

fail() {
    echo "xcframework.sh: $1" >&2
    exit 1
}

[ "$(uname -s)" = Darwin ] || fail "an XCFramework is made on a Mac; elsewhere there is artifactbundle.sh"
for tool in cargo lipo xcodebuild; do
    command -v "$tool" >/dev/null || fail "$tool is not there"
done

package=$(cd "$(dirname "$0")/.." && pwd)
root=$(cd "$package/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
out=$package/CTabla.xcframework
# The oldest systems that Package.swift names.
export MACOSX_DEPLOYMENT_TARGET=14.0 IPHONEOS_DEPLOYMENT_TARGET=17.0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# In a folder of the module's name: Xcode puts the headers of all frameworks into one.
mkdir -p "$work/include/CTabla"
cp "$root/include/tabla.h" "$package/scripts/module.modulemap" "$work/include/CTabla/"

# Builds for targets of Rust and joins what comes out: one library for a platform.
library() {
    platform=$1
    shift
    mkdir "$work/$platform"
    slices=
    for triple in "$@"; do
        (cd "$root" && cargo build --profile dist --package tabla-capi --target "$triple")
        cp "$target/$triple/dist/libtabla.a" "$work/$platform/$triple.a"
        slices="$slices $triple.a"
    done
    # shellcheck disable=SC2086 # names of targets have no blanks
    (cd "$work/$platform" && lipo -create $slices -output libtabla.a)
}
library macos aarch64-apple-darwin x86_64-apple-darwin
library ios aarch64-apple-ios
library simulator aarch64-apple-ios-sim x86_64-apple-ios

xcodebuild -create-xcframework \
    -library "$work/macos/libtabla.a" -headers "$work/include" \
    -library "$work/ios/libtabla.a" -headers "$work/include" \
    -library "$work/simulator/libtabla.a" -headers "$work/include" \
    -output "$work/CTabla.xcframework"
rm -rf "$out"
mv "$work/CTabla.xcframework" "$out"
echo "$out"
