#!/usr/bin/env bash
# Builds the fuzz targets and runs each of them, or only those named, for some time. Exits with code 1 and prints the path of the input
# if an input breaks a target. See README.md.
#   fuzz/run.sh [TARGET…] [--seconds N] [--seed N] [--unoptimized]
# With --seed two runs draw the same inputs, as far as they get in the time.
# With --unoptimized the dependencies are those of an ordinary debug build, and the targets are slow: for CI.
set -uo pipefail
cd "$(dirname "$0")/.."

SECONDS_EACH=60
# libFuzzer draws a seed if it is 0.
SEED=0
# One input needs a few kilobytes; a target that reaches this limit has a leak or no bound.
MEMORY_MB=1024
# No input takes this long, even in a build with all checks.
INPUT_SECONDS=10
INPUT_LEN_MAX=4096

targets=() optimized=yes
while [ "$#" -gt 0 ]; do
    case $1 in
        --seconds)
            [[ "${2:-}" =~ ^[1-9][0-9]*$ ]] || { echo "$0: --seconds needs a number" >&2; exit 2; }
            SECONDS_EACH=$2
            shift
            ;;
        --seed)
            [[ "${2:-}" =~ ^[1-9][0-9]*$ ]] || { echo "$0: --seed needs a number" >&2; exit 2; }
            SEED=$2
            shift
            ;;
        --unoptimized) optimized= ;;
        -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
        -*) echo "$0: no option $1" >&2; exit 2 ;;
        *) targets+=("$1") ;;
    esac
    shift
done
if [ "${#targets[@]}" = 0 ]; then
    for folder in fuzz/seeds/*/; do
        targets+=("$(basename "$folder")")
    done
fi
for target in "${targets[@]}"; do
    [ -f "fuzz/fuzz_targets/$target.rs" ] && [ -d "fuzz/seeds/$target" ] || { echo "$0: no target $target" >&2; exit 2; }
done

# Address checks need a nightly compiler, and the code under test is safe Rust.
export RUSTC_WRAPPER="$PWD/fuzz/rustc.sh"
output=$PWD/target/fuzz
if [ -n "$optimized" ]; then
    export CARGO_TARGET_DIR=$output
    profile=fuzz built=$CARGO_TARGET_DIR/fuzz
else
    export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
    profile=dev built=$CARGO_TARGET_DIR/debug
fi
bins=()
for target in "${targets[@]}"; do
    bins+=(--bin "$target")
done
cargo build --manifest-path fuzz/Cargo.toml --profile "$profile" "${bins[@]}" || exit 2

code=0
for target in "${targets[@]}"; do
    home=$output/$target
    mkdir -p "$home/corpus" "$home/findings"
    # libFuzzer writes new inputs to the first folder and only reads the seeds.
    if "$built/$target" "$home/corpus" "fuzz/seeds/$target" \
        -artifact_prefix="$home/findings/" -dict=fuzz/words.dict -seed="$SEED" -max_total_time="$SECONDS_EACH" -max_len="$INPUT_LEN_MAX" \
        -rss_limit_mb="$MEMORY_MB" -malloc_limit_mb="$MEMORY_MB" -timeout="$INPUT_SECONDS" \
        -print_final_stats=1 >"$home/log" 2>&1; then
        executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$home/log")
        covered=$(sed -n 's/.* cov: \([0-9]*\) ft: \([0-9]*\).*/\1 edges, \2 features/p' "$home/log" | tail -n 1)
        echo "$target: nothing found in $SECONDS_EACH s, $executions executions, $covered"
    else
        code=1
        found=$(sed -n 's/.*Test unit written to //p' "$home/log" | tail -n 1)
        echo "$target: FOUND ${found:-no input was written}; log in $home/log"
        grep -E -m 3 "panicked at|ERROR: libFuzzer|^[^=#[:space:]].*assert" "$home/log"
        sed -n 's/^Base64: /the input in base64: /p' "$home/log"
    fi
done
exit "$code"
