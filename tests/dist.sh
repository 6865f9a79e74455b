#!/usr/bin/env bash
# Tests the files of a release for this machine: installs each on a bare Debian 12 without network, compiler, Rust and
# Vulkan, and runs the first examples of README.md.
#   sudo tests/dist.sh FOLDER [ROOTS]
# FOLDER has the files that `cargo xtask dist` wrote. ROOTS, by default target/dist-roots, is where the chroots of Debian
# are made, or were made before (90 MB are downloaded once). Needs root, debootstrap, gcc, pkg-config and CMake, and the
# network for the chroots and for cffi and numpy. Other tools are used if they are installed: buildah for the
# container, auditwheel, lintian, shellcheck.
set -euo pipefail
release="$(realpath -e "$1")"
cd "$(dirname "$0")/.."
roots="$(realpath -m "${2:-target/dist-roots}")"
mirror="${MIRROR:-https://deb.debian.org/debian}"
suite=bookworm

triple="$(uname -m)-unknown-linux-gnu"
archive="$(echo "$release"/tabla-*-"$triple.tar.gz")"
[ -f "$archive" ] || { echo "no archive for $triple in $release" >&2; exit 1; }
name="$(basename "$archive" .tar.gz)"

scratch="$(mktemp -d)"
mounted=()
clean() {
    for folder in "${mounted[@]}"; do umount "$folder"; done
    rm -rf "$scratch"
}
trap clean EXIT

fail() { echo "FAILED: $*" >&2; exit 1; }
passed() { echo "ok: $*"; }
skipped() { echo "SKIPPED: $*"; }
has() { command -v "$1" >/dev/null; }

# Makes a chroot of Debian with some packages.
make_root() {
    [ -f "$roots/$1/made" ] && return
    rm -rf "${roots:?}/$1"
    mkdir -p "$roots/cache"
    debootstrap --variant=minbase --cache-dir="$roots/cache" ${2:+--include="$2"} "$suite" "$roots/$1" "$mirror" >/dev/null
    touch "$roots/$1/made"
}

# Sets `root` to a copy of a chroot, which shares unchanged files.
enter_root() {
    root="$scratch/root-${#mounted[@]}"
    mkdir -p "$root" "$root.upper" "$root.work"
    mount -t overlay overlay -o "lowerdir=$roots/$1,upperdir=$root.upper,workdir=$root.work" "$root"
    mounted+=("$root")
    for compiler in cc gcc clang rustc; do
        ! chroot "$root" sh -c "command -v $compiler" || fail "the chroot has $compiler"
    done
}

# Runs a command in the chroot, without network.
in_root() {
    unshare --net --mount --pid --fork --mount-proc="$root/proc" chroot "$root" \
        env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "$@"
}

# The first block of README.md: the command of the program, and what it prints.
# shellcheck disable=SC2016 # a pattern
example="$(sed -n '/^```console$/,/^```$/p' README.md | grep -m 1 -A 1 '^\$ tabla ')"
command="$(head -n 1 <<<"$example" | cut -c 3-)"
expected="$(tail -n 1 <<<"$example")"
[ "${#expected}" -gt 40 ] || fail "README.md has no output of $command"

# Compares the output of README's first example with that in README.md. If it is not a terminal, standard output has
# only what the model writes.
start="Once upon a time"
check_program() {
    local output
    output="$(in_root sh -c "PATH=\"$2:\$PATH\"; $command" 2>"$scratch/log")" || fail "$1: $(cat "$scratch/log")"
    [ "$start$output" = "$expected" ] || fail "$1: expected: $expected, got: $start$output"
    passed "$1: $command"
}

# Prints a code block of README.md.
block() { sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/p" README.md | sed '1d;$d'; }

check_archive() {
    enter_root bare
    tar -xzf "$archive" -C "$root/opt"
    check_program "archive" "/opt/$name/bin"
    local pages
    pages="$(find "$root/opt/$name/share/man/man1" -name 'tabla*.1' | wc -l)"
    [ "$pages" -gt 5 ] || fail "archive: $pages man pages"
    for file in bash-completion/completions/tabla zsh/site-functions/_tabla fish/vendor_completions.d/tabla.fish; do
        [ -s "$root/opt/$name/share/$file" ] || fail "archive: no $file"
    done
    # A program in C, compiled here and run there.
    local prefix="$scratch/$name"
    tar -xzf "$archive" -C "$scratch"
    block c >"$scratch/story.c"
    (
        cd "$scratch"
        export PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
        # shellcheck disable=SC2046 # words of the flags
        cc story.c $(pkg-config --cflags --libs tabla) -Wl,-rpath,"/opt/$name/lib" -o by-pkg-config
        cat >CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.16)
project(story C)
find_package(tabla 0.1 REQUIRED)
add_executable(by-cmake story.c)
target_link_libraries(by-cmake tabla::tabla)
add_executable(by-cmake-static story.c)
target_link_libraries(by-cmake-static tabla::static)
END
        cmake -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_RPATH="/opt/$name/lib" -S . -B build
        cmake --build build
    ) >"$scratch/log" 2>&1 || fail "archive: $(cat "$scratch/log")"
    for program in by-pkg-config build/by-cmake build/by-cmake-static; do
        cp "$scratch/$program" "$root/opt/"
        check_story "C: $program" "/opt/$(basename "$program")"
    done
}

# Runs an example that samples with a random seed: checks that it prints a text.
check_story() {
    local output
    output="$(in_root "${@:2}" 2>"$scratch/log")" || fail "$1: $(cat "$scratch/log")"
    [ "$(wc -w <<<"$output")" -gt 5 ] || fail "$1: $output $(cat "$scratch/log")"
    passed "$1: $(head -n 1 <<<"$output" | cut -c 1-60)..."
}

check_package() {
    local package
    package="$(echo "$release"/tabla_*_"$(dpkg --print-architecture)".deb)"
    enter_root bare
    cp "$package" "$root/tmp/tabla.deb"
    in_root dpkg -i /tmp/tabla.deb >"$scratch/log" 2>&1 || fail "dpkg: $(cat "$scratch/log")"
    check_program "package of Debian" /usr/bin
    in_root ldconfig -p | grep -q 'libtabla\.so\.1' || fail "package: ldconfig does not list libtabla.so.1"
    in_root dpkg --verify tabla | grep . && fail "package: files differ"
    in_root dpkg -r tabla >/dev/null
    [ -z "$(find "$root/usr" -name '*tabla*' -not -path '*/dpkg/*')" ] || fail "package: files are left after removal"
    passed "package of Debian: removed"
    if has lintian; then
        lintian --fail-on error --tag-display-limit 0 "$package" 2>"$scratch/log" || fail "lintian: $(cat "$scratch/log")"
        passed "lintian"
    else
        skipped "no lintian"
    fi
}

check_wheel() {
    local wheel audit tag
    wheel="$(echo "$release"/tabla_runtime-*linux*"$(uname -m)".whl)"
    if has auditwheel; then
        # It prints the newest tag that the wheel is consistent with.
        audit="$(auditwheel show "$wheel" | tr '\n' ' ' | grep -o 'platform tag: "[^"]*"' | head -n 1)"
        tag="$(cut -d '"' -f 2 <<<"$audit")"
        [[ "$tag" == manylinux_* && "$wheel" == *"$tag.whl" ]] || fail "auditwheel: $wheel has the tag $tag"
        passed "auditwheel: $tag"
    else
        skipped "no auditwheel"
    fi
    enter_root python
    mkdir "$root/wheels"
    python3 -m pip download --quiet --only-binary=:all: --python-version 3.11 --implementation cp \
        --platform "manylinux_2_28_$(uname -m)" --platform "manylinux_2_17_$(uname -m)" --dest "$root/wheels" cffi numpy
    cp "$wheel" "$root/wheels/"
    in_root sh -c 'python3 -m venv /venv && /venv/bin/pip install --quiet --no-index --find-links /wheels tabla-runtime' \
        >"$scratch/log" 2>&1 || fail "pip: $(cat "$scratch/log")"
    block python >"$root/tmp/story.py"
    check_story "wheel" /venv/bin/python /tmp/story.py
    cat >"$root/tmp/greedy.py" <<'END'
import sys
import tabla

count, expected = int(sys.argv[1]), sys.argv[2]
with tabla.Model.load(device="cpu") as model:
    text = "Once upon a time" + str(model.generate("Once upon a time", max_tokens=count, temperature=0))
assert text == expected, text
END
    in_root /venv/bin/python /tmp/greedy.py "$(grep -o -- '-n [0-9]*' <<<"$command" | cut -c 4-)" "$expected" ||
        fail "wheel: another text than README.md"
    passed "wheel: the text of README.md"
}

# What is below a folder, with types, sizes and links.
listing() { [ ! -e "$1" ] || (cd "$1" && find . -printf '%p %y %s %l\n' | sort); }

check_script() {
    enter_root bare
    mkdir "$root/release"
    cp "$release/install.sh" "$archive" "$release/$name.sha256" "$root/release/"
    install() { in_root env "$@" sh /release/install.sh /release /opt/installed >"$scratch/log" 2>&1; }
    install A=B || fail "install.sh: $(cat "$scratch/log")"
    check_program "install script" /opt/installed/bin
    echo old >"$root/opt/installed/bin/tabla"
    install A=B || fail "install.sh over an installation: $(cat "$scratch/log")"
    check_program "install script, again" /opt/installed/bin

    # A file that cannot be installed: the files from before are back.
    rm "$root/opt/installed/include/tabla.h"
    mkdir "$root/opt/installed/include/tabla.h"
    echo old >"$root/opt/installed/bin/tabla"
    listing "$root/opt/installed" >"$scratch/before"
    ! install A=B || fail "install.sh replaced a folder"
    grep -q 'is a folder' "$scratch/log" || fail "install.sh: $(cat "$scratch/log")"
    listing "$root/opt/installed" | diff "$scratch/before" - || fail "install.sh changed files and failed"
    passed "install script: failed, files restored"

    rm -r "$root/opt/installed"
    expect_nothing() {
        ! install "${@:3}" || fail "install.sh accepted $1"
        grep -q "$2" "$scratch/log" || fail "install.sh: $(cat "$scratch/log")"
        [ -z "$(listing "$root/opt/installed")" ] || fail "install.sh left files after $1"
        passed "install script: $1, nothing left"
    }
    expect_nothing "another target" 'cannot get tabla' TABLA_TARGET=riscv64-unknown-linux-gnu
    # One bit in the middle of the archive.
    python3 - "$root/release/$name.tar.gz" <<'END'
import sys

with open(sys.argv[1], "r+b") as file:
    middle = file.seek(0, 2) // 2
    file.seek(middle)
    byte = file.read(1)[0]
    file.seek(middle)
    file.write(bytes([byte ^ 1]))
END
    expect_nothing "damaged archive" 'checksum mismatch' A=B
    : >"$root/release/$name.sha256"
    expect_nothing "no checksum" 'has no checksum' A=B
}

check_container() {
    # The files of a base image with glibc.
    local base="$scratch/base" context="$scratch/context"
    mkdir -p "$base/tmp" "$context"
    (cd "$roots/bare" && find . -xdev \( -path './lib*' -o -path './usr/lib*' \) \
        \( -name 'ld-linux*' -o -name 'libc.so.6' -o -name 'libm.so.6' -o -name 'libdl.so.2' -o -name 'libpthread.so.0' -o -name 'libgcc_s.so.1' \) \
        -print0 | tar --null -T - -cf -; tar -cf - --no-recursion lib lib64) | tar -xif - -C "$base"
    cp "$release/Containerfile" "$archive" "$context/"
    local container output
    if ! has buildah; then
        skipped "no buildah: the files of the image are tested in a chroot"
        cp "$scratch/$name/bin/tabla" "$base/tabla"
        # shellcheck disable=SC2086 # words of the command
        output="$(env -i unshare --net chroot "$base" /tabla ${command#tabla } 2>/dev/null)" || fail "container files do not run"
        [ "$start$output" = "$expected" ] || fail "container files: expected: $expected, got: $output"
        passed "files of the image"
        return
    fi
    local store=(--storage-driver vfs --root "$scratch/images" --runroot "$scratch/images-run")
    build() { buildah "${store[@]}" bud --isolation chroot --quiet "$@" >"$scratch/log" 2>&1 || fail "buildah: $(cat "$scratch/log")"; }
    printf 'FROM scratch\nCOPY . /\n' >"$base.Containerfile"
    build --tag base -f "$base.Containerfile" "$base"
    build --tag tabla --build-arg BASE=localhost/base -f "$context/Containerfile" "$context"
    container="$(buildah "${store[@]}" from localhost/tabla)"
    # shellcheck disable=SC2086 # words of the command
    output="$(unshare --net buildah "${store[@]}" run --isolation chroot "$container" -- /usr/bin/tabla ${command#tabla } 2>"$scratch/log")" ||
        fail "container: $(cat "$scratch/log")"
    [ "$start$output" = "$expected" ] || fail "container: expected: $expected, got: $output"
    passed "container: $(buildah "${store[@]}" inspect --format '{{.OCIv1.Config.Entrypoint}} as {{.OCIv1.Config.User}}' "$container")"
    buildah "${store[@]}" rm --all >/dev/null
}

(cd "$release" && sha256sum --quiet --check "$name.sha256") || fail "checksums"
passed "checksums of $(wc -l <"$release/$name.sha256") files"
if has shellcheck; then
    shellcheck "$release/install.sh" && passed "shellcheck"
else
    skipped "no shellcheck"
fi
make_root bare
make_root python python3-venv
check_archive
check_package
check_wheel
check_script
check_container
