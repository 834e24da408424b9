#!/usr/bin/env bash
# What CI runs, and what to run before a commit: all steps, or those named as arguments. Continues after a failure, and at the end prints
# which steps failed and how long each took. A step whose tool is missing fails; setup.sh installs the tools.
set -uo pipefail
cd "$(dirname "$0")/.."

STEPS=(fmt clippy test informer scenarios loom sim doc fuzz planted manifests relay sbom arm64 release deny real)
# One form of the crate for all steps that can share it: with every optional part. Each other selection of features, or of packages, would
# compile hundreds of dependencies again.
FORM=kube-fanout/otlp,kube-fanout/profile
export CLIPPY_CONF_DIR="$PWD/.ci"
# setup.sh installs programs here that it does not install system-wide.
PATH=$(realpath -m "${CARGO_TARGET_DIR:-target}")/tools/bin:$PATH
KUBE_FANOUT_COMMIT=${KUBE_FANOUT_COMMIT:-$(git describe --always --dirty --abbrev=12 --exclude '*' 2>/dev/null)}
export PATH KUBE_FANOUT_COMMIT
export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-auto}"
# Nothing here is interactive; a tool that asks a question must see the end of its input instead of waiting.
exec </dev/null

# Fails with one line if a command does not work: needs "what to install" COMMAND...
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

# Benchmarks and examples are checked here, and built nowhere else.
step_clippy() {
    needs clippy cargo clippy --version || return
    cargo clippy --locked --workspace --all-targets --features "$FORM" -- -D warnings
}

# The programs, unoptimised. --tests is included because a build without it selects other features of the dependencies, and would
# recompile what the step test has compiled.
programs() { cargo build --locked --workspace --features "$FORM" --bins --tests "$@"; }

# A part of the step test, to be run by itself before a commit.
step_tidy() { cargo test --locked --workspace --features "$FORM" --quiet --test tidy; }

step_test() {
    needs cargo-nextest cargo nextest --version || return
    cargo nextest run --config-file .ci/nextest.toml --locked --workspace --features "$FORM" --no-fail-fast --test-threads "$(( $(nproc) * 2 ))" &&
        cargo test --locked --workspace --features "$FORM" --doc --quiet
}

# Runs scenarios with unoptimised programs.
play() { timeout 120 "${CARGO_TARGET_DIR:-target}/debug/kube-fanout-loadtest" run "$@"; }

# The informer library builds alone, and without a client from few dependencies. Its tests are run by the step test.
step_informer() {
    local count
    count=$(cargo tree --locked --package kube-fanout-informer --no-default-features --edges normal --prefix none | sed 's/ (.*//' | sort -u | wc -l)
    echo "informer without client: $count crates"
    [ "$count" -le 50 ] || return
    cargo clippy --locked --package kube-fanout-informer --no-default-features --lib -- -D warnings &&
        cargo clippy --locked --package kube-fanout-informer --lib -- -D warnings
}

# Small scenarios of the load test, and one with 10,000 connections. The figures mean nothing. What matters is that every client has every
# event: after bursts that end in silence, at the end of a gateway, and during attacks.
step_scenarios() {
    local scenarios=loadtest/scenarios
    programs --quiet || return
    play --scale 0.02 --only embedded,gateway-tls "$scenarios"/{steady,relist-herd,mixed}.yaml || return
    play "$scenarios/quiet-end-small.yaml" || return
    play --scale 0.1 "$scenarios/drain.yaml" || return
    play --only gateway "$scenarios/connections.yaml" || return
    play --scale 0.05 --only embedded-tls,gateway-tls "$scenarios/kubelets.yaml" || return
    play --scale 0.01 --only self-check "$scenarios/identities.yaml" || return
    play --scale 0.2 --only certificate-chains,exact,forwarded,half-bodies,idle-connections,name-selectors,pings "$scenarios/hostile.yaml"
}

# The models are the tests in modules called models. A filter that matches nothing would pass, so a library without a model is a failure.
step_loom() {
    local output code
    output=$(cargo test --locked --package kube-fanout --package kube-fanout-serving --package kube-fanout-cache \
        --features "$FORM,kube-fanout/loom" --lib models:: 2>&1)
    code=$?
    echo "$output"
    [ "$code" = 0 ] || return "$code"
    if [ "$(grep -cE '^test result: ok\. [1-9]' <<<"$output")" != 2 ]; then
        echo "loom: no model was run"
        return 1
    fi
}

# Gateways, the API server and clients in virtual time, from seeds (decision 45). FANOUT_SIM_SEEDS=0..20000 runs others. The crates themselves are
# optimised a little, which a thousand seeds repay.
step_sim() {
    local optimised
    optimised=$(sed -n 's/^name = "\(kube-fanout.*\)"$/--config profile.dev.package.\1.opt-level=1/p' Cargo.toml src/*/Cargo.toml | sort -u)
    # shellcheck disable=SC2086 # words
    FANOUT_SIM_SEEDS="${FANOUT_SIM_SEEDS:-0..1000}" \
        cargo test --locked --workspace --features "$FORM,kube-fanout/sim" $optimised --test sim -- --nocapture
}

step_doc() { RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --features "$FORM" --no-deps --quiet; }

# Runs each target for some seconds from its seeds; run them longer by hand. It is a workspace of its own with the same versions; built in
# the same directory, it reuses the dependencies.
step_fuzz() {
    needs "a C++ compiler" c++ --version || return
    cp Cargo.lock fuzz/Cargo.lock || return
    # The same inputs each time: a finding belongs to the change that is tested. Long runs with other seeds are made by hand.
    fuzz/run.sh --seconds 5 --seed 1 --unoptimized
}

# Plants as many known defects as fit into one build: the tests must find them.
step_planted() { PLANTED_TARGET=$(realpath -m "${CARGO_TARGET_DIR:-target}") tests/planted/run.sh --together; }

step_manifests() {
    needs python3 python3 --version || return
    deploy/check.sh
}

# Relays of HAProxy between clients and gateways that come and go.
step_relay() {
    needs haproxy env PATH="$PATH:/usr/sbin" haproxy -v || return
    needs openssl openssl version || return
    programs --quiet || return
    GATEWAY="${CARGO_TARGET_DIR:-target}/debug/kube-fanout" timeout 900 python3 deploy/relay/test.py
}

# The bill of materials is valid, and has what Cargo would compile into the program.
step_sbom() {
    needs python3 python3 --version || return
    deploy/sbom/sbom.sh --check
}

# The programs compile for arm64, with the features that a release has and without those that only tests have. deploy/image.sh links them.
step_arm64() {
    local triple=aarch64-unknown-linux-gnu
    needs gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc --version || return
    needs "it: rustup target add $triple" test -d "$(rustc --print target-libdir --target "$triple")" || return
    CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc cargo check --locked --package kube-fanout --package kube-fanout-top --bins --target "$triple"
}

# What a release has that needs no optimised build.
step_release() {
    programs --quiet || return
    deploy/release.sh --check
}

step_deny() {
    needs cargo-deny cargo deny --version || return
    cargo deny --config .ci/deny.toml check bans licenses sources
}

step_real() {
    # Its informers are compared with client-go's.
    programs || return
    # A case that cannot run because a tool is missing is a failure.
    KUBE_FANOUT_REQUIRE=1 GATEWAY="${CARGO_TARGET_DIR:-target}/debug/kube-fanout" tests/real/run.sh
}

# Prepares the step real: an API server and its clients, which are downloaded and take minutes to build while other steps run, with the
# processor time that waiting tests and single-threaded compilers leave. The step itself repeats and reports anything that failed here.
begin_real() {
    local part
    tests/real/run.sh prepare
    for part in informer javascript; do
        tests/real/apiserver/real-apiserver.sh "$part"
    done
}

# These steps run at low priority beside the step real, which mostly waits.
BESIDE=(fuzz planted manifests sbom arm64 release deny)

times=$(mktemp -d)
background=()
# This ends only the subshells: a build under way completes, and the next run reuses it.
trap 'kill "${background[@]}" 2>/dev/null; rm -rf "$times"' EXIT
# Each step's output goes through a pipe; keep its colours if a person reads it.
[ -t 1 ] && CARGO_TERM_COLOR=always

# What a step took: by the clock, and on the processors, which says more on a machine that has other work.
run_step() {
    local TIMEFORMAT='%0R %0U %0S' code took user system
    echo "== $1"
    { time "step_$1" > >(tee "$times/$1.out") 2>&1; } 2>"$times/$1.time"
    code=$?
    # tee may not have written everything yet.
    wait "$!"
    read -r took user system <"$times/$1.time"
    echo "== $1: $took s, $((user + system)) s of processor time, code $code"
    echo "$took $((user + system)) $code" >"$times/$1"
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
        # Earlier, these steps would only take processor time from the builds that the step waits for.
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

echo "== seconds, of processor time, step"
failed=()
for step in "${STEPS[@]}"; do
    read -r took processor code <"$times/$step" || { took='?' processor='?' code=1; }
    printf '%6s %10s  %s%s\n' "$took" "$processor" "$step" "$([[ " ${beside[*]} " == *" $step "* ]] && echo ", beside real")"
    [ "$code" = 0 ] || failed+=("$step")
done
# Repeats the failures of a step at the end, so that the last lines show where to look.
failures() { grep -E '^ +(FAIL|TIMEOUT|ABORT|SIG[A-Z]+) \[|^(FAIL|FAILED|not ok|error)\b' "$1" | sort -u | cut -c1-160 | head -n 5; }

if [ "${#failed[@]}" -gt 0 ]; then
    for step in "${failed[@]}"; do failures "$times/$step.out"; done
    echo "FAILED: ${failed[*]}"
    exit 1
fi
echo "all passed, $SECONDS s"
