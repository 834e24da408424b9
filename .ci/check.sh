#!/usr/bin/env bash
# What CI runs, and what to run at home: every step, or those named as arguments. Goes on after a failure, says at the end what failed
# and what was skipped for want of a tool. KUBE_FANOUT_REQUIRE=1 makes a skipped step a failure.
set -uo pipefail
cd "$(dirname "$0")/.."

STEPS=(fmt clippy tidy test scenarios loom doc bench fuzz manifests deny real)
export CLIPPY_CONF_DIR="$PWD/.ci"
export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-auto}"
# Nothing here asks a question; a tool that would must see the end of its input instead of waiting.
exec </dev/null

# A step ends with this code when a tool is missing.
SKIP=99

skip() {
    echo "skipped: $*"
    return "$SKIP"
}

have() { command -v "$1" >/dev/null 2>&1; }

step_fmt() {
    cargo fmt --version >/dev/null 2>&1 || { skip "cargo fmt (rustfmt) is not installed"; return; }
    cargo fmt --all --check
}

step_clippy() {
    cargo clippy --version >/dev/null 2>&1 || { skip "cargo clippy is not installed"; return; }
    cargo clippy --locked --workspace --all-targets -- -D warnings
}

step_tidy() { cargo test --locked --quiet --test tidy; }

step_test() {
    if cargo nextest --version >/dev/null 2>&1; then
        cargo nextest run --locked --workspace --no-fail-fast && cargo test --locked --workspace --doc --quiet
    else
        cargo test --locked --workspace --no-fail-fast
    fi
}

# Tiny scenarios by the runner, unoptimised. The figures mean nothing; that everybody has everything does, after bursts that end in quiet
# and beside attacks above all.
step_scenarios() {
    cargo build --locked --quiet --package kube-fanout --package kube-fanout-loadtest --bins || return
    timeout 120 "${CARGO_TARGET_DIR:-target}/debug/kube-fanout-loadtest" run --scale 0.02 --only embedded,gateway-tls \
        loadtest/scenarios/steady.yaml loadtest/scenarios/relist-herd.yaml || return
    timeout 120 "${CARGO_TARGET_DIR:-target}/debug/kube-fanout-loadtest" run loadtest/scenarios/quiet-end-small.yaml || return
    timeout 120 "${CARGO_TARGET_DIR:-target}/debug/kube-fanout-loadtest" run --scale 0.2 --only exact,forwarded,pings \
        loadtest/scenarios/hostile.yaml
}

# The models need their own cfg, which rebuilds everything: a target directory of its own keeps the other one warm. They are the tests in
# modules called models. A filter that matches nothing would pass, so none run is a failure.
step_loom() {
    grep -rqE 'cfg\(all\(test, fanout_loom\)\)' src || { skip "there are no models"; return; }
    local output code
    output=$(RUSTFLAGS="--cfg fanout_loom" CARGO_TARGET_DIR=target/loom cargo test --locked --lib models:: 2>&1)
    code=$?
    echo "$output"
    [ "$code" = 0 ] || return "$code"
    if ! grep -qE '^test result: ok\. [1-9]' <<<"$output"; then
        echo "loom: no model was run"
        return 1
    fi
}

step_doc() { RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet; }

step_bench() { cargo bench --locked --workspace --no-run; }

# A workspace of its own: nothing else notices when its targets no longer fit. Running them is for fuzz/run.sh.
step_fuzz() { CARGO_TARGET_DIR=target/fuzz-check cargo check --quiet --manifest-path fuzz/Cargo.toml; }

step_manifests() {
    have python3 || { skip "python3 is not installed"; return; }
    deploy/check.sh
}

step_deny() {
    cargo deny --version >/dev/null 2>&1 || { skip "cargo-deny is not installed"; return; }
    cargo deny --config .ci/deny.toml check bans licenses sources
}

step_real() {
    [ -x tests/real/run.sh ] || { skip "tests/real/run.sh is not there"; return; }
    # Its informers are compared with client-go's.
    cargo build --locked --package kube-fanout-loadtest || return
    tests/real/run.sh
}

if [ "$#" -gt 0 ]; then
    STEPS=("$@")
fi

failed=() skipped=()
for step in "${STEPS[@]}"; do
    if ! declare -F "step_$step" >/dev/null; then
        echo "$0: no step $step" >&2
        exit 2
    fi
    echo "== $step"
    started=$SECONDS
    "step_$step"
    code=$?
    echo "== $step: $((SECONDS - started)) s, code $code"
    case $code in
        0) ;;
        "$SKIP") skipped+=("$step") ;;
        *) failed+=("$step") ;;
    esac
done

if [ "${#skipped[@]}" -gt 0 ]; then
    echo "skipped: ${skipped[*]}"
    [ "${KUBE_FANOUT_REQUIRE:-}" = 1 ] && failed+=("${skipped[@]}")
fi
if [ "${#failed[@]}" -gt 0 ]; then
    echo "FAILED: ${failed[*]}"
    exit 1
fi
echo "all passed, $SECONDS s"
