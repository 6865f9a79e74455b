# Functions of the scripts in this folder. They run in the root of the repository, at the lowest priority.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export CARGO_INCREMENTAL=0
renice -n 19 $$ >/dev/null
echo 19 2>/dev/null >/proc/self/autogroup || true

missing=()
# need PROGRAM PACKAGE
need() { command -v "$1" >/dev/null || missing+=("$2"); }
# Ends the script if a package of `need` is missing.
check_packages() {
    [ "${#missing[@]}" -eq 0 ] || {
        echo "requires ${missing[*]}" >&2
        exit 1
    }
}

passed=0
failed=0
# check NAME COMMAND...: the command must succeed. Its output is printed if it does not.
check() {
    local log status=0
    log="$(mktemp)"
    "${@:2}" >"$log" 2>&1 </dev/null || status=$?
    if [ "$status" -eq 0 ]; then
        passed=$((passed + 1))
        echo "ok: $1"
    else
        failed=$((failed + 1))
        echo "FAILED: $1 (status $status)"
        tail -n 40 "$log"
    fi
    rm -f "$log"
}
# same PROGRAM REFERENCE ARGUMENTS...: both programs print the same bytes, and some.
same() {
    local ours theirs
    ours="$("$1" "${@:3}")" || return
    theirs="$("$2" "${@:3}")" || return
    [ -n "$ours" ] && [ "$ours" = "$theirs" ] || {
        diff <(printf '%s\n' "$ours") <(printf '%s\n' "$theirs")
        echo "the texts differ, or are empty"
        return 1
    }
}
# Ends the script.
finish() {
    echo "$passed checks passed, $failed failed"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}

# The program of this system, which the others must agree with.
reference() {
    program="${TABLA_PROGRAM:-}"
    [ -n "$program" ] || {
        cargo build --quiet --release -p tabla-cli
        program="$PWD/target/release/tabla"
    }
}
