#!/bin/sh
# Installs Tabla @VERSION@ below a folder, after it has compared the SHA-256 of the archive. Needs no root.
#
#   install.sh [BASE [PREFIX]]
#
# BASE is the URL or the local folder with the files of the release; the default is TABLA_BASE_URL.
# PREFIX is by default TABLA_PREFIX, or ~/.local. TABLA_TARGET is the target triple, by default that of this machine.
# If a step fails, the files below PREFIX are those from before.
set -eu
unset CDPATH

version=@VERSION@

fail() {
    echo "install.sh: $1" >&2
    exit 1
}

[ $# -le 2 ] || fail "usage: install.sh [BASE [PREFIX]]"
base=${1:-${TABLA_BASE_URL:-}}
[ -n "$base" ] || fail "no BASE: give the URL or the folder with the files of the release"
prefix=${2:-${TABLA_PREFIX:-${HOME:?}/.local}}

case ${TABLA_TARGET:-$(uname -s)-$(uname -m)} in
Linux-x86_64) target=x86_64-unknown-linux-gnu ;;
Linux-aarch64) target=aarch64-unknown-linux-gnu ;;
Darwin-x86_64) target=x86_64-apple-darwin ;;
Darwin-arm64) target=aarch64-apple-darwin ;;
*-*-*) target=${TABLA_TARGET:-} ;;
esac
[ -n "${target:-}" ] || fail "no release for $(uname -s) on $(uname -m)"
name=tabla-$version-$target

# Writes a file of the release to the current folder.
get() {
    case $base in
    https://* | http://localhost[:/]* | http://127.0.0.1[:/]*)
        if command -v curl >/dev/null; then
            curl --fail --silent --show-error --location --proto '=https,http' --proto-redir '=https' \
                --output "$1" "$base/$1"
        elif command -v wget >/dev/null; then
            wget --quiet --output-document "$1" "$base/$1"
        else
            fail "curl or wget is required"
        fi
        ;;
    *://*) fail "$base: only https is supported" ;;
    *) cp "$base/$1" "$1" ;;
    esac || fail "cannot get $1 from $base"
}

# Folders that this script created, the deepest first.
created=
make_folder() {
    [ ! -d "$1" ] || return 0
    make_folder "$(dirname "$1")"
    mkdir "$1" || fail "cannot create $1"
    created="$1
$created"
}

work=
is_complete=false
finish() {
    status=$?
    # A second signal does not end the restoration.
    trap '' HUP INT TERM
    trap - EXIT
    if [ "$is_complete" = false ] && [ -n "$work" ]; then
        while IFS= read -r file; do
            # A file that is still in the archive was not installed.
            if [ ! -e "$work/$name/$file" ] && [ ! -L "$work/$name/$file" ]; then
                rm -f "$prefix/$file"
            fi
            if [ -e "$work/old/$file" ] || [ -L "$work/old/$file" ]; then
                mv "$work/old/$file" "$prefix/$file"
            fi
        done <"$work/installed"
    fi
    [ -z "$work" ] || rm -rf "$work"
    if [ "$is_complete" = false ]; then
        printf '%s' "$created" | while IFS= read -r folder; do
            rmdir "$folder" 2>/dev/null || true
        done
        echo "install.sh: nothing was installed" >&2
    fi
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' HUP TERM

case $base in
*://*) ;;
*) base=$(cd "$base" && pwd) || fail "folder $base does not exist" ;;
esac
make_folder "$prefix"
prefix=$(cd "$prefix" && pwd)
# On the file system of the prefix, so that files are moved, not copied.
work=$(mktemp -d "$prefix/.tabla-install.XXXXXX") || fail "cannot write to $prefix"
: >"$work/installed"
cd "$work"

get "$name.sha256"
get "$name.tar.gz"
awk -v file="$name.tar.gz" '$2 == file' "$name.sha256" >expected
[ -s expected ] || fail "$name.sha256 has no checksum of $name.tar.gz"
if command -v sha256sum >/dev/null; then
    sum=$(sha256sum "$name.tar.gz")
else
    sum=$(shasum -a 256 "$name.tar.gz")
fi
[ "$sum" = "$(cat expected)" ] || fail "checksum mismatch: $name.tar.gz has ${sum%% *}, expected $(cut -d ' ' -f 1 expected)"

tar -xzf "$name.tar.gz"
"$name/bin/tabla" --version >/dev/null || fail "the program does not run on this machine"
(cd "$name" && find . ! -type d) | sed 's,^\./,,' >files
while IFS= read -r file; do
    make_folder "$(dirname "$prefix/$file")"
    [ ! -d "$prefix/$file" ] || fail "$prefix/$file is a folder"
    mkdir -p "old/$(dirname "$file")"
    echo "$file" >>installed
    if [ -e "$prefix/$file" ] || [ -L "$prefix/$file" ]; then
        mv "$prefix/$file" "old/$file"
    fi
    mv "$name/$file" "$prefix/$file"
done <files
is_complete=true

echo "installed $("$prefix/bin/tabla" --version) below $prefix"
case :$PATH: in
*:"$prefix/bin":*) ;;
*) echo "add $prefix/bin to PATH to run it as \"tabla\"" ;;
esac
