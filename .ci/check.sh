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

# The programs, unoptimised. The tests are named too because a build without them has other features of the dependencies, and compiles
# again what the step test has compiled.
programs() { cargo build --locked --workspace --bins --tests "$@"; }

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
    programs --quiet || return
    timeout 120 "${CARGO_TARGET_DIR:-target}/debug/kube-fanout-loadtest" run --scale 0.02 --only embedded,gateway-tls \
        loadtest/scenarios/steady.yaml loadtest/scenarios/relist-herd.yaml || return
    timeout 120 "${CARGO_TARGET_DIR:-target}/debug/kube-fanout-loadtest" run loadtest/scenarios/quiet-end-small.yaml || return
    timeout 120 "${CARGO_TARGET_DIR:-target}/debug/kube-fanout-loadtest" run --scale 0.2 --only exact,forwarded,pings \
        loadtest/scenarios/hostile.yaml
}

# The models are the tests in modules called models. Their cfg is given to the library alone: in RUSTFLAGS it would rebuild every
# dependency. A filter that matches nothing would pass, so none run is a failure.
step_loom() {
    grep -rqE 'cfg\(all\(test, fanout_loom\)\)' src || { skip "there are no models"; return; }
    local built models output code
    built=$(cargo rustc --locked --lib --profile test --message-format json-render-diagnostics -- --cfg fanout_loom) || return
    models=$(sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' <<<"$built")
    output=$("$models" models:: 2>&1)
    code=$?
    echo "$output"
    [ "$code" = 0 ] || return "$code"
    if ! grep -qE '^test result: ok\. [1-9]' <<<"$output"; then
        echo "loom: no model was run"
        return 1
    fi
}

step_doc() { RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet; }

# Unoptimised: whether they build is the same, and the tests have built most of it.
step_bench() { cargo bench --locked --workspace --no-run --profile dev; }

# A workspace of its own: nothing else notices when its targets no longer fit. Running them is for fuzz/run.sh. With the same versions and
# in the same target directory, most dependencies are checked already.
step_fuzz() {
    cp Cargo.lock fuzz/Cargo.lock || return
    CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}" cargo check --quiet --manifest-path fuzz/Cargo.toml
}

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
    programs || return
    cargo build --locked --release --bin kube-fanout || return
    tests/real/run.sh
}

# What the step real needs: an API server, from the net and built for minutes, and an optimised gateway. Both are made while other steps run,
# of the processor time that waiting tests and compilers with one thread leave. The step waits for them, and makes and reports what failed here.
begin_real() {
    local maker=tests/real/apiserver/real-apiserver.sh part
    for part in install informer javascript; do
        nice -n 19 "$maker" "$part"
    done
    nice -n 19 cargo build --locked --release --bin kube-fanout
}

if [ "$#" -gt 0 ]; then
    STEPS=("$@")
fi

if [ "${#STEPS[@]}" -gt 1 ] && [[ " ${STEPS[*]} " == *" real "* ]]; then
    begin_real >/dev/null 2>&1 &
    begin_real_pid=$!
    # What it is at comes to its end, and is found done the next time.
    trap 'kill "$begin_real_pid" 2>/dev/null' EXIT
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
