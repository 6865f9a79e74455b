#!/usr/bin/env bash
# Tests the GPU kernels with a newer driver, and prints what compilers for other GPUs say about them: `cargo xtask gpu-lab`.
#
#     gpu_lab.sh [FOLDER [PART ...]]
#
# FOLDER gets a chroot of Debian 13 with Mesa of trixie-backports (less than 1 GB; default target/gpu-lab); an existing
# one is used as it is. The parts, by default all:
#
#     tests    the tests `gpu::` on lavapipe, which has cooperative matrices of 8x8x8
#     dawn     the cases of all operations in Dawn, the WebGPU implementation of Chrome (requires npm)
#     stats    statistics of the compilers of RADV and NAK
#
# Requires root and debootstrap, and a network for the first run. Mounts exist only while a command runs.
set -euo pipefail
cd "$(dirname "$0")/.."
root="$(realpath -m "${1:-target/gpu-lab}")"
parts=("${@:2}")
[ "${#parts[@]}" -gt 0 ] || parts=(tests dawn stats)

# Runs a command in the chroot, in the folder of the repository.
lab() {
    # shellcheck disable=SC2016 # expanded by the inner shell
    unshare --mount sh -ec '
        root="$1" repository="$2"
        shift 2
        mkdir -p "$root$repository"
        for folder in /proc /dev "$repository"; do mount --bind "$folder" "$root$folder"; done
        exec chroot "$root" env --chdir="$repository" NODEVICE_SELECT=1 XDG_RUNTIME_DIR=/tmp "$@"
    ' - "$root" "$PWD" "$@"
}

if [ ! -x "$root/usr/bin/node" ]; then
    mirror=http://deb.debian.org/debian
    debootstrap --variant=minbase trixie "$root" "$mirror"
    echo "deb $mirror trixie-backports main" >"$root/etc/apt/sources.list.d/backports.list"
    lab apt-get update --quiet
    install=(env DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes --no-install-recommends)
    lab "${install[@]}" --target-release trixie-backports mesa-vulkan-drivers mesa-drm-shim
    # Last, because its presence means that the chroot is complete.
    lab "${install[@]}" libvulkan1 nodejs
fi
lab dpkg-query --show mesa-vulkan-drivers

# Runs the tests of the GPU with a name.
run_tests() {
    local log test
    log="$(mktemp)"
    # Without --package, which would compile every crate for other features.
    cargo test --release --test it --no-run 2>&1 | tee "$log"
    for test in $(sed -n 's/.*Executable .*(\(.*\))$/\1/p' "$log"); do
        # The server has tests of the same name.
        ! "$test" --list | grep -q '^gpu::' || break
    done
    rm "$log"
    lab env VK_ICD_FILENAMES=/usr/share/vulkan/icd.d/lvp_icd.json TABLA_REQUIRE_GPU=1 LP_NUM_THREADS=0 "TABLA_DAWN=${dawn:-}" \
        "$test" --nocapture "$@"
}

# Prints statistics for GPU $1 by driver $2 on shim $3, a kernel driver that does nothing; the settings of the shim follow.
stats() {
    echo "== $1"
    # The program would select RADV's null device, which newer Mesa does not have.
    lab env "VK_ICD_FILENAMES=/usr/share/vulkan/icd.d/$2_icd.json" MESA_SHADER_CACHE_DISABLE=true \
        "LD_PRELOAD=/usr/lib/x86_64-linux-gnu/lib$3_noop_drm_shim.so" "${@:4}" \
        target/release/gpu-stats --driver-is-selected --family "$1" --representative
}

for part in "${parts[@]}"; do
    case "$part" in
        tests)
            run_tests --skip gpu::dawn --skip gpu::matrix gpu::
            # Every storage type with every product.
            TABLA_EXHAUSTIVE=1 run_tests gpu::matrix
            ;;
        dawn)
            dawn=target/tint
            npm install --prefix "$dawn" --silent --no-audit --no-fund webgpu@0.6.2
            run_tests gpu::dawn
            ;;
        stats)
            cargo build --release --package tabla-gpu-stats
            for gpu in navi31 gfx1201; do
                stats "$gpu" radeon amdgpu "AMDGPU_GPU_ID=$gpu"
            done
            for gpu in turing=162 ampere=172; do
                stats "${gpu%=*}" nouveau nouveau "NOUVEAU_CHIPSET=${gpu#*=}" NVK_I_WANT_A_BROKEN_VULKAN_DRIVER=1
            done
            ;;
        *)
            echo "unknown part $part: expected tests, dawn or stats" >&2
            exit 2
            ;;
    esac
done
