#!/usr/bin/env bash
# Measures everything that docs/PERFORMANCE.md and README quote, and writes both: about an hour on two processors with nothing else to do.
#
#   loadtest/performance.sh            into docs/performance/report.json, docs/PERFORMANCE.md and README.md
#   loadtest/performance.sh --trial    everything tiny, with unoptimised programs, into target/performance-trial: does it work?
#   loadtest/performance.sh --anyway   despite uncommitted changes or a busy machine; the report says so
#
# Needs a real API server (tests/real/apiserver), which is built the first time, in five minutes.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# A busier machine would measure its other work too.
load_max=0.3
target=${CARGO_TARGET_DIR:-$PWD/target}

die() { printf 'performance.sh: %s\n' "$*" >&2; exit 1; }

trial= anyway=
for word in "$@"; do
  case $word in
    --trial) trial=1 anyway=1 ;;
    --anyway) anyway=1 ;;
    *) die "unknown flag $word" ;;
  esac
done

if [ -z "$anyway" ]; then
  [ -z "$(git status --porcelain)" ] || die "there are uncommitted changes: commit them, or --anyway"
  read -r load _ </proc/loadavg
  awk -v load="$load" -v most="$load_max" 'BEGIN { exit !(load <= most) }' ||
    die "the load average is $load, above $load_max: wait until nothing else runs, or --anyway"
fi

# Scenarios, the number of repeats, and the servers; long or similar ones run once.
scenarios=(
  "steady 3 gateway,gateway-tls"
  "http2-tls 2 gateway,gateway-tls,real,gateway-real"
  "compressed-watches 2 gateway,gateway-tls"
  "stalled 3 gateway"
  "node-selectors 3 gateway"
  "relist-herd 3 gateway"
  "watch-list-herd 3 gateway"
  "gzip-herd 2 gateway,real,gateway-real"
  "reconnect-storm 2 embedded"
  "overload 1 gateway"
  "hostile 1 gateway"
  "start 1 embedded,real"
  "forwarded 1 gateway,gateway-real"
)
benches=(fanout memory ring handshakes)
scale=1 profile=release effort=() out=docs/performance
if [ -n "$trial" ]; then
  scale=0.02 profile=debug effort=(--quick) out=$target/performance-trial
  mkdir -p "$out"
fi
programs=$target/$profile
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

begun=$SECONDS
say() { printf '%s (%d min)\n' "$*" $(((SECONDS - begun) / 60)) >&2; }

# The commit that `kube-fanout --version` prints, as .ci/check.sh sets it.
KUBE_FANOUT_COMMIT=$(git describe --always --dirty --abbrev=12 --exclude '*')
export KUBE_FANOUT_COMMIT
say "building"
if [ -n "$trial" ]; then
  cargo build --locked --workspace --bins
  cargo bench --locked --no-run --profile dev $(printf -- '--bench %s ' "${benches[@]}")
else
  cargo build --locked --release --workspace
  cargo bench --locked --no-run $(printf -- '--bench %s ' "${benches[@]}")
fi
built=$("$programs/kube-fanout" --version)
head=$(git rev-parse HEAD)
commit=$(sed -n 's/.*(\([0-9a-f]\{7,\}\))$/\1/p' <<<"$built")
if [ -z "$commit" ] || [ "${head#"$commit"}" = "$head" ]; then
  [ -n "$anyway" ] || die "the gateway is $built, the tree is of $head: --anyway if that is intended"
fi
# Pages that the compilers have written must not be flushed during the measurement.
sync
[ -n "$trial" ] || sleep 60

failed=() inputs=()
for entry in "${scenarios[@]}"; do
  read -r name repeat servers <<<"$entry"
  [ -z "$trial" ] || repeat=$((repeat > 1 ? 2 : 1))
  say "$name"
  "$programs/kube-fanout-loadtest" run --scale "$scale" --repeat "$repeat" --only "$servers" --report "$work/$name" \
    "loadtest/scenarios/$name.yaml" >/dev/null || failed+=("$name")
  [ -f "$work/$name/report.json" ] || die "$name left no report"
  inputs+=("$work/$name/report.json")
done

for bench in "${benches[@]}"; do
  say "bench $bench"
  # Built above; cargo only finds it.
  cargo bench --quiet --locked ${trial:+--profile dev} --bench "$bench" -- ${effort[@]+"${effort[@]}"} --json="$work/bench-$bench.json" \
    >/dev/null || failed+=("bench $bench")
  [ ! -f "$work/bench-$bench.json" ] || inputs+=("$work/bench-$bench.json")
done

say "page"
"$programs/kube-fanout-loadtest" merge --out "$out/report.json" --took $((SECONDS - begun)) \
  --command loadtest/performance.sh "${inputs[@]}"
if [ -n "$trial" ]; then
  cp README.md "$out/README.md"
  "$programs/kube-fanout-loadtest" page "$out/report.json" >"$out/PERFORMANCE.md"
  "$programs/kube-fanout-loadtest" quote "$out/report.json" "$out/README.md"
  say "$out/PERFORMANCE.md"
else
  "$programs/kube-fanout-loadtest" page "$out/report.json" >"$work/page.md"
  "$programs/kube-fanout-loadtest" quote "$out/report.json" README.md
  mv "$work/page.md" docs/PERFORMANCE.md
  say "docs/PERFORMANCE.md and README.md: look at what changed, and commit"
fi
[ "${#failed[@]}" = 0 ] || die "not passed: ${failed[*]}; the page says what was wrong"
