#!/usr/bin/env bash
# Runs the tests of the Swift package, and builds its examples, with the Swift compiler of Debian 13, in a chroot.
#   sudo bindings/swift/scripts/check.sh [FOLDER]
# FOLDER is where the chroot is made, or was made before (600 MB are downloaded once). Needs root and debootstrap.
set -euo pipefail
# Folders are mounted for this script only, so that none stays mounted in the chroot.
[ -n "${TABLA_MOUNTS:-}" ] || TABLA_MOUNTS=1 exec unshare --mount "$0" "$@"
cd "$(dirname "$0")/../../.."
root="${1:-target/swift-chroot}"
mirror="${MIRROR:-https://deb.debian.org/debian}"
packages=swiftlang,libc6-dev,libstdc++-14-dev,gcc,pkg-config

# A folder without the compiler is incomplete.
if ! chroot "$root" swift --version >/dev/null 2>&1; then
    debootstrap --variant=minbase --include="$packages" trixie "$root" "$mirror"
fi
# The repository is mounted, and what Swift builds stays in the chroot.
mkdir -p "$root/repository"
mount --bind /proc "$root/proc"
mount --bind /dev "$root/dev"
mount --bind "$PWD" "$root/repository"

cargo build --release -p tabla-capi
cargo xtask install "$root/usr/local" >/dev/null
chroot "$root" ldconfig
chroot "$root" sh -c 'set -e
    export PKG_CONFIG_PATH=/usr/local/lib/pkgconfig
    cd /repository/bindings/swift
    swift test --scratch-path /build/tests
    cd Examples
    swift build --scratch-path /build/examples'
