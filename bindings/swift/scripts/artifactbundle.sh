#!/bin/sh
# Makes the bundle of static libraries that SwiftPM 6.2 and later takes as a binary target (SE-0482).
#
#     artifactbundle.sh [TRIPLES=LIBRARY ...]
#
# Each LIBRARY is a libtabla.a, TRIPLES what it is for, as LLVM calls it, with commas between several:
# x86_64-unknown-linux-gnu, or arm64-apple-macosx,x86_64-apple-macosx. Without one, the library is built for
# this machine, which runs Linux. The bundle is CTabla.artifactbundle beside Package.swift, which takes it
# from there; OUT names another place.
set -eu

package=$(cd "$(dirname "$0")/.." && pwd)
root=$(cd "$package/../.." && pwd)
out=${OUT:-$package/CTabla.artifactbundle}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -n 1)

fail() {
    echo "artifactbundle.sh: $1" >&2
    exit 1
}

[ -n "$version" ] || fail "Cargo.toml says no version"
case $out in
*.artifactbundle) ;;
*) fail "OUT is $out, and SwiftPM wants a name that ends with .artifactbundle" ;;
esac
if [ -e "$out" ] && [ ! -e "$out/info.json" ]; then
    fail "$out is there and is no bundle"
fi
if [ $# -eq 0 ]; then
    [ "$(uname -s)" = Linux ] || fail "name triples and libraries: without them this builds on Linux alone"
    (cd "$root" && cargo build --profile dist --package tabla-capi)
    set -- "$(uname -m)-unknown-linux-gnu=${CARGO_TARGET_DIR:-$root/target}/dist/libtabla.a"
fi

# The bundle is there when it is whole.
part=$out.part
rm -rf "$part"
trap 'rm -rf "$part"' EXIT
mkdir -p "$part/include"
cp "$root/include/tabla.h" "$package/scripts/module.modulemap" "$part/include/"

variants=
for pair in "$@"; do
    triples=${pair%%=*}
    library=${pair#*=}
    [ "$triples" != "$pair" ] || fail "$pair is not TRIPLES=LIBRARY"
    case $triples in
    '' | ,* | *, | *,,* | *[!a-zA-Z0-9_.,-]*) fail "$triples names no triples" ;;
    esac
    [ -f "$library" ] || fail "there is no library $library"
    folder=${triples%%,*}
    [ ! -e "$part/$folder" ] || fail "$folder has two libraries"
    mkdir "$part/$folder"
    cp "$library" "$part/$folder/libtabla.a"
    quoted=$(echo "\"$triples\"" | sed 's/,/", "/g')
    variants="$variants${variants:+,}
        {
          \"path\": \"$folder/libtabla.a\",
          \"supportedTriples\": [$quoted],
          \"staticLibraryMetadata\": {
            \"headerPaths\": [\"include\"],
            \"moduleMapPath\": \"include/module.modulemap\"
          }
        }"
done

cat >"$part/info.json" <<END
{
  "schemaVersion": "1.0",
  "artifacts": {
    "CTabla": {
      "type": "staticLibrary",
      "version": "$version",
      "variants": [$variants
      ]
    }
  }
}
END
rm -rf "$out"
mv "$part" "$out"
echo "$out"
