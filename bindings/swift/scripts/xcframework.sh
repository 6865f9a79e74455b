#!/bin/sh
# Creates CTabla.xcframework next to Package.swift, which uses it: the static library for macOS, iOS and the
# iOS simulator. Requires a Mac with Xcode, and Rust with these targets:
#
#     rustup target add aarch64-apple-darwin x86_64-apple-darwin \
#         aarch64-apple-ios aarch64-apple-ios-sim x86_64-apple-ios
set -eu

fail() {
    echo "xcframework.sh: $1" >&2
    exit 1
}

[ "$(uname -s)" = Darwin ] || fail "an XCFramework requires macOS; use artifactbundle.sh on other systems"
for tool in cargo lipo xcodebuild; do
    command -v "$tool" >/dev/null || fail "$tool is not installed"
done

package=$(cd "$(dirname "$0")/.." && pwd)
root=$(cd "$package/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
out=$package/CTabla.xcframework
# The deployment targets of Package.swift.
export MACOSX_DEPLOYMENT_TARGET=14.0 IPHONEOS_DEPLOYMENT_TARGET=17.0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# In a folder with the name of the module, because Xcode merges the headers of all frameworks.
mkdir -p "$work/include/CTabla"
cp "$root/include/tabla.h" "$package/scripts/module.modulemap" "$work/include/CTabla/"

# Builds the library for several Rust targets and merges the results into one library for a platform.
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
    # shellcheck disable=SC2086 # target names contain no spaces
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
