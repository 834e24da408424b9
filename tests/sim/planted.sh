#!/usr/bin/env bash
# Plants known defects in a copy of the last commit and looks for each with the simulation (decision 45).
#
#   planted.sh [NAME...]    all defects, or those whose names begin with NAME
#   planted.sh --check      checks only whether the patches apply to the working tree; builds nothing
#
# The patches of tests/sim/planted are all applied to one copy, which is built once. Each asks for its name before it does harm, so that a
# run has one defect at a time (FANOUT_SIM_PLANT). For each defect, seeds run until one fails; the same seed must pass without the defect.
#
# Environment: FANOUT_SIM_SEEDS, the seeds that run at most [0..1000]. Exit code: 0 all found, 1 some not, 3 the setup failed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
target=$(realpath -m "${CARGO_TARGET_DIR:-$top/target}")
work=$target/sim
tree=$work/planted
seeds=${FANOUT_SIM_SEEDS:-0..1000}
# shellcheck source=tests/planted/own-version.sh
. "$top/tests/planted/own-version.sh"
unfit() { printf 'planted.sh: %s\n' "$*" >&2; exit 3; }

if [ "${1:-}" = --check ]; then
  # In an index of its own, because a patch may change what one before it has changed.
  GIT_INDEX_FILE=$(mktemp -u)
  export GIT_INDEX_FILE
  trap 'rm -f "$GIT_INDEX_FILE"' EXIT
  cd "$top"
  git read-tree HEAD 2>/dev/null && git add src || unfit "no repository"
  for patch in "$here"/planted/*.patch; do git apply --cached "$patch" || exit 1; done
  echo "all patches apply"
  exit 0
fi

patches=()
for name in "${@:-}"; do
  for patch in "$here/planted/$name"*.patch; do [ -f "$patch" ] && patches+=("$patch"); done
done
[ "${#patches[@]}" -gt 0 ] || unfit "no such patch"

mkdir -p "$work"
if [ -d "$tree/.git" ]; then
  git -C "$tree" fetch -q --no-tags "$top" HEAD && git -C "$tree" checkout -q --force --detach FETCH_HEAD
else
  git clone -q --shared "$top" "$tree"
fi || unfit "cannot copy the tree"
# In the order of the names, as they were made: some change the same function.
for patch in "$here"/planted/*.patch; do
  git -C "$tree" apply "$patch" || unfit "$patch no longer applies"
done
cat >>"$tree/src/wire/src/lib.rs" <<'RUST'

/// Whether this run has the planted defect.
#[expect(clippy::disallowed_methods, reason = "the argument of a test is in the environment")]
#[must_use]
pub fn planted(name: &str) -> bool {
    static PLANT: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    PLANT.get_or_init(|| std::env::var("FANOUT_SIM_PLANT").ok()).as_deref() == Some(name)
}
RUST
own_version "$tree"
# As the step sim of .ci/check.sh.
optimised=$(cd "$tree" && sed -n 's/^name = "\(kube-fanout.*\)"$/--config profile.dev.package.\1.opt-level=1/p' Cargo.toml src/*/Cargo.toml | sort -u)
# shellcheck disable=SC2086 # words
program=$(cd "$tree" && CARGO_TARGET_DIR=$target cargo test --locked --test sim --features otlp,profile,sim \
  $optimised --no-run --message-format json 2>"$work/planted.log" |
  sed -n 's/.*"executable":"\([^"]*\/sim-[^"]*\)".*/\1/p' | tail -n 1)
[ -n "$program" ] || unfit "it does not build: $work/planted.log"

missed=0
for patch in "${patches[@]}"; do
  plant=$(sed -n 's/^+.*planted("\([^"]*\)").*/\1/p' "$patch" | head -n 1)
  like=$(sed -n 's/^Like: //p' "$patch")
  output=$(FANOUT_SIM_PLANT=$plant FANOUT_SIM_SEEDS=$seeds FANOUT_SIM_FIRST=1 "$program" --exact seeds --nocapture 2>&1) || true
  seed=$(sed -n 's/^SEED \([0-9]*\) .*/\1/p' <<<"$output" | head -n 1)
  if [ -z "$seed" ]; then
    verdict="not found in $seeds"
    missed=$((missed + 1))
  elif FANOUT_SIM_SEED=$seed setarch -R "$program" --exact one_seed >/dev/null 2>&1; then
    verdict="found by seed $seed:$(sed -n "/^SEED $seed /{n;p;q}" <<<"$output" | cut -c4-110)"
  else
    verdict="seed $seed fails without it, too"
    missed=$((missed + 1))
  fi
  printf '%-36s %-12s %s\n' "$(basename "$patch" .patch)" "$like" "$verdict"
done
exit $((missed > 0))
