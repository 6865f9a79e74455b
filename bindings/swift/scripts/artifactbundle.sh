#!/bin/sh
# Creates a bundle of static libraries, a binary target of SwiftPM 6.2 and later (SE-0482).
#
#     artifactbundle.sh [TRIPLES=LIBRARY ...]
#
# LIBRARY is a libtabla.a; TRIPLES are its LLVM target triples, separated by commas:
# x86_64-unknown-linux-gnu, or arm64-apple-macosx,x86_64-apple-macosx. Without arguments, builds the library
# for this machine, which must run Linux. The bundle is CTabla.artifactbundle next to Package.swift, which
# uses it; OUT sets another path.
set -eu

package=$(cd "$(dirname "$0")/.." && pwd)
root=$(cd "$package/../.." && pwd)
out=${OUT:-$package/CTabla.artifactbundle}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -n 1)

fail() {
    echo "artifactbundle.sh: $1" >&2
    exit 1
}

[ -n "$version" ] || fail "no version in Cargo.toml"
case $out in
*.artifactbundle) ;;
*) fail "invalid OUT $out: SwiftPM requires a name that ends with .artifactbundle" ;;
esac
if [ -e "$out" ] && [ ! -e "$out/info.json" ]; then
    fail "$out exists and is not a bundle"
fi
if [ $# -eq 0 ]; then
    [ "$(uname -s)" = Linux ] || fail "TRIPLES=LIBRARY arguments are required on systems other than Linux"
    (cd "$root" && cargo build --profile dist --package tabla-capi)
    set -- "$(uname -m)-unknown-linux-gnu=${CARGO_TARGET_DIR:-$root/target}/dist/libtabla.a"
fi

# The bundle is moved into place when it is complete.
part=$out.part
rm -rf "$part"
trap 'rm -rf "$part"' EXIT
mkdir -p "$part/include"
cp "$root/include/tabla.h" "$package/scripts/module.modulemap" "$part/include/"

variants=
for pair in "$@"; do
    triples=${pair%%=*}
    library=${pair#*=}
    [ "$triples" != "$pair" ] || fail "invalid argument $pair: expected TRIPLES=LIBRARY"
    case $triples in
    '' | ,* | *, | *,,* | *[!a-zA-Z0-9_.,-]*) fail "invalid triples $triples" ;;
    esac
    [ -f "$library" ] || fail "library $library does not exist"
    folder=${triples%%,*}
    [ ! -e "$part/$folder" ] || fail "$folder has more than one library"
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
