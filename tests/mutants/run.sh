#!/usr/bin/env bash
# Mutation tests with cargo-mutants: makes small changes to the code, one at a time, and checks whether a test notices.
#
#   run.sh cache|view|selector|reflector [ARGUMENT...]   in a crate that builds in seconds: first with the tests of that module; mutants
#                                                        that these miss, with all tests of that crate
#   run.sh serving [ARGUMENT...]                         delivery and admission, in the gateway's crate: about a minute per mutant
#
# ARGUMENTs are passed to cargo-mutants, such as --file src/cache/src/cache/ring.rs, --shard 0/4 or --list. Results are in
# target/mutants/NAME/mutants.out; a table of them is printed at the end. Mutants that no test can detect are listed, with the reason, in
# equivalent.txt beside this script. Exit code: 0 if each viable mutant was caught or is listed there, 1 if not, 2 usage, 3 setup failed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)

unfit() { printf 'run.sh: %s\n' "$*" >&2; exit 3; }
usage() { sed -n '2,/^set -/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '$d'; exit 2; }

part=${1:-}
[ "$#" = 0 ] || shift
case $part in cache | view | selector | reflector | serving) ;; *) usage ;; esac
PATH=$top/target/tools/bin:$PATH
cargo nextest --version >/dev/null 2>&1 || unfit "cargo-nextest is missing: .ci/setup.sh test"
cargo mutants --version >/dev/null 2>&1 || unfit "cargo-mutants is missing: cargo install --locked cargo-mutants"
command -v python3 >/dev/null || unfit "python3 is missing"
cd "$top"
work=$top/target/mutants/$part
first=$work/first.json
mkdir -p "$work"

# Each mutant is built and linked; line numbers are not needed.
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0
# The output of Debug and Display is only for people, so mutants of it are left out.
options=(--output "$work" --colors never --exclude-re 'impl (std::)?(fmt::)?(Debug|Display)' --exclude-re '<impl Debug' --no-shuffle --test-tool nextest
    # Only loom builds these.
    --exclude '**/models.rs' --exclude '**/loom_cells.rs')

# crate PACKAGE MODULE [ARGUMENT...]: mutants of a module of a small crate, first with the module's tests, then with all of the crate.
crate() {
    local package=$1 module=$2 files code=0
    files=$(echo src/"${package#kube-fanout-}"/src/"$module.rs")
    shift 2
    local mutants=(cargo mutants --dir . --package "$package" "${options[@]}" --jobs 2 --file "$files" --file "${files%.rs}/**" "$@")
    rm -f "$first"
    "${mutants[@]}" --minimum-test-timeout 10 -- -E "test(/^$module::/)" || code=$?
    [ -s "$work/mutants.out/missed.txt" ] || return "$code"
    cp "$work/mutants.out/outcomes.json" "$first"
    # A mutant that timed out would time out again, after a longer limit.
    cat "$work/mutants.out/timeout.txt" >>"$work/mutants.out/caught.txt"
    "${mutants[@]}" --minimum-test-timeout 40 --iterate
}

cache() { crate kube-fanout-cache cache "$@"; }
view() { crate kube-fanout-cache view "$@"; }
selector() { crate kube-fanout-wire selector "$@"; }
reflector() { crate kube-fanout-upstream reflector "$@"; }

serving() {
    cargo mutants --dir . --package kube-fanout-serving "${options[@]}" --file src/serving/src/watch/delivery.rs --file 'src/serving/src/watch/delivery/**' \
        --file src/serving/src/admission.rs --file 'src/serving/src/admission/**' "$@" -- --lib -- delivery admission
}

code=0
"$part" "$@" || code=$?
case " $* " in *" --list "*) exit "$code" ;; esac
# 2: some mutants were missed; 3: some timed out, which counts as caught.
case $code in 0 | 2 | 3) ;; *) exit 3 ;; esac
runs=("$work/mutants.out/outcomes.json")
[ ! -f "$first" ] || runs=("$first" "${runs[@]}")
"$here/table.py" "$here/equivalent.txt" "${runs[@]}"
