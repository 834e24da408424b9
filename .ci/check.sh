#!/usr/bin/env bash
# What CI runs, and what to run at home: every step, or those named as arguments. Goes on after a failure, and says at the end what failed
# and how long each step took. A step whose tool is missing fails; setup.sh installs them.
set -uo pipefail
cd "$(dirname "$0")/.."

STEPS=(fmt clippy tidy test scenarios loom doc bench fuzz planted manifests deny real)
export CLIPPY_CONF_DIR="$PWD/.ci"
# Where setup.sh puts what it does not install for the whole machine.
PATH=$(realpath -m "${CARGO_TARGET_DIR:-target}")/tools/bin:$PATH
KUBE_FANOUT_COMMIT=${KUBE_FANOUT_COMMIT:-$(git describe --always --dirty --abbrev=12 --exclude '*' 2>/dev/null)}
export PATH KUBE_FANOUT_COMMIT
export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-auto}"
# Nothing here asks a question; a tool that would must see the end of its input instead of waiting.
exec </dev/null

# Fails, in one line, where a command does not answer: needs "what to install" COMMAND...
needs() {
    local package=$1
    shift
    "$@" >/dev/null 2>&1 && return
    echo "$0: \`$*\` fails: install $package, or run ./kube-fanout test, which does"
    return 1
}

step_fmt() {
    needs rustfmt cargo fmt --version || return
    cargo fmt --all --check
}

step_clippy() {
    needs clippy cargo clippy --version || return
    cargo clippy --locked --workspace --all-targets -- -D warnings
}

# The programs, unoptimised. The tests are named too because a build without them has other features of the dependencies, and compiles
# again what the step test has compiled.
programs() { cargo build --locked --workspace --bins --tests "$@"; }

step_tidy() { cargo test --locked --quiet --test tidy; }

step_test() {
    needs cargo-nextest cargo nextest --version || return
    cargo nextest run --locked --workspace --no-fail-fast && cargo test --locked --workspace --doc --quiet
}

# Plays scenarios unoptimised.
play() { timeout 120 "${CARGO_TARGET_DIR:-target}/debug/kube-fanout-loadtest" run "$@"; }

# Tiny scenarios by the runner, and one with 10,000 connections. The figures mean nothing; that everybody has everything does, after bursts
# that end in quiet, at the end of a gateway and beside attacks above all.
step_scenarios() {
    local scenarios=loadtest/scenarios
    programs --quiet || return
    play --scale 0.02 --only embedded,gateway-tls "$scenarios"/{steady,relist-herd,mixed}.yaml || return
    play "$scenarios/quiet-end-small.yaml" || return
    play --scale 0.1 "$scenarios/drain.yaml" || return
    play --only gateway "$scenarios/connections.yaml" || return
    play --scale 0.2 --only exact,forwarded,pings "$scenarios/hostile.yaml"
}

# The models are the tests in modules called models. Their cfg is given to the library alone: in RUSTFLAGS it would rebuild every
# dependency. A filter that matches nothing would pass, so none run is a failure.
step_loom() {
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

# Each target for some seconds, from its seeds; longer by hand. A workspace of its own, with the same versions: in the same directory, its
# dependencies are built already.
step_fuzz() {
    needs "a C++ compiler" c++ --version || return
    cp Cargo.lock fuzz/Cargo.lock || return
    fuzz/run.sh --seconds 5 --unoptimized
}

# Defects that are planted on purpose, as many as fit into one build: the tests must find them.
step_planted() { PLANTED_TARGET=$(realpath -m "${CARGO_TARGET_DIR:-target}") tests/planted/run.sh --together; }

step_manifests() {
    needs python3 python3 --version || return
    deploy/check.sh
}

step_deny() {
    needs cargo-deny cargo deny --version || return
    cargo deny --config .ci/deny.toml check bans licenses sources
}

step_real() {
    # Its informers are compared with client-go's.
    programs || return
    cargo build --locked --release --bin kube-fanout || return
    # What cannot run for want of a tool is a failure.
    KUBE_FANOUT_REQUIRE=1 tests/real/run.sh
}

# What the step real needs: an API server, from the net and built for minutes, and an optimised gateway. Both are made while other steps run,
# of the processor time that waiting tests and compilers with one thread leave. The step waits for them, and makes and reports what failed here.
begin_real() {
    local maker=tests/real/apiserver/real-apiserver.sh part
    for part in install informer javascript; do
        "$maker" "$part"
    done
    cargo build --locked --release --bin kube-fanout
}

# These run beside the step real, which waits most of its time, and give way to it.
BESIDE=(fuzz planted manifests deny)

times=$(mktemp -d)
background=()
# What is built comes to its end, and is found done the next time.
trap 'kill "${background[@]}" 2>/dev/null; rm -rf "$times"' EXIT

run_step() {
    local started=$SECONDS code
    echo "== $1"
    "step_$1"
    code=$?
    echo "== $1: $((SECONDS - started)) s, code $code"
    echo "$((SECONDS - started)) $code" >"$times/$1"
}

give_way() { renice -n 19 -p "$BASHPID" >/dev/null; }

run_beside() {
    give_way
    local step
    for step in "$@"; do
        run_step "$step" >"$times/$step.log" 2>&1
    done
}

if [ "$#" -gt 0 ]; then
    STEPS=("$@")
fi
for step in "${STEPS[@]}"; do
    declare -F "step_$step" >/dev/null || { echo "$0: no step $step" >&2; exit 2; }
done

front=() beside=()
for step in "${STEPS[@]}"; do
    if [ "${#STEPS[@]}" -gt 1 ] && [[ " ${STEPS[*]} " == *" real "* && " ${BESIDE[*]} " == *" $step "* ]]; then
        beside+=("$step")
    else
        front+=("$step")
    fi
done

if [ "${#front[@]}" -gt 1 ] && [[ " ${front[*]} " == *" real "* ]]; then
    (give_way && begin_real) >/dev/null 2>&1 &
    background+=("$!")
fi

for step in "${front[@]}"; do
    if [ "$step" = real ] && [ "${#beside[@]}" -gt 0 ]; then
        # They would only take processor time from the builds that the step waits for.
        wait "${background[@]}"
        run_beside "${beside[@]}" &
        background+=("$!")
    fi
    run_step "$step"
done
if [ "${#beside[@]}" -gt 0 ]; then
    wait "${background[-1]}"
    for step in "${beside[@]}"; do cat "$times/$step.log"; done
fi

echo "== seconds"
failed=()
for step in "${STEPS[@]}"; do
    read -r took code <"$times/$step" || { took='?' code=1; }
    printf '%6s  %s%s\n' "$took" "$step" "$([[ " ${beside[*]} " == *" $step "* ]] && echo ", beside real")"
    [ "$code" = 0 ] || failed+=("$step")
done
if [ "${#failed[@]}" -gt 0 ]; then
    echo "FAILED: ${failed[*]}"
    exit 1
fi
echo "all passed, $SECONDS s"
