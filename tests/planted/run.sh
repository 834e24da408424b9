#!/usr/bin/env bash
# Plants known defects, one after another, in a copy of the last commit, and checks whether the tests find them.
#
#   run.sh [--all-tests] [NAME...]   all defects, or those whose names begin with NAME: 01, 12-list. Each patch names the test that
#                                    should find it. With --all-tests, every test of that test binary runs instead.
#   run.sh --together [NAME...]      plants in one build all defects that can be planted together and that a test of the library finds.
#                                    This proves less, because a test may fail due to another defect, but needs only one build. It
#                                    does not first run the tests without a defect: in CI the step test has done so.
#   run.sh --check [NAME...]         checks only whether the patches apply to the working tree; builds nothing
#
# The copy and its builds are in target/planted and are kept, so that later runs build less; the first run builds every dependency. Before
# a defect is planted, the tests must pass without it, or their failures would prove nothing. A test that hangs counts as having found its
# defect; a patch that does not apply or compile is a failure. Prints one line per defect. Exit code: 0 all found, 1 some not found,
# 2 usage, 3 the setup failed.
#
# Environment:
#   PLANTED_LIMIT   seconds for one run of the tests, after which it counts as hanging [120; 600 with --all-tests; 60 with --together]
#   PLANTED_TARGET  build directory of the copy [target/planted/build]; in the directory of other builds, dependencies are already built
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
work=$top/target/planted
tree=$work/tree

unfit() { printf 'run.sh: %s\n' "$*" >&2; exit 3; }
usage() { sed -n '2,/^set -/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '$d'; exit 2; }

# shellcheck source=tests/planted/own-version.sh
. "$here/own-version.sh"

mode=finder patches=()
for argument in "$@"; do
  case $argument in
    --all-tests) mode=all ;;
    --check) mode=check ;;
    --together) mode=together ;;
    -*) usage ;;
    *)
      before=${#patches[@]}
      for patch in "$here/$argument"*.patch; do [ -f "$patch" ] && patches+=("$patch"); done
      [ "${#patches[@]}" -gt "$before" ] || { printf 'run.sh: no patch %s\n' "$argument" >&2; exit 2; }
      ;;
  esac
done
[ "${#patches[@]}" -gt 0 ] || patches=("$here"/[0-9]*.patch)

command -v git >/dev/null || unfit "git is missing"
# Without this, a tree without history that is unpacked inside another repository would count as a part of that repository.
export GIT_CEILING_DIRECTORIES
GIT_CEILING_DIRECTORIES=$(dirname "$top")

failures=0
name_of() { basename "$1" .patch; }
# A failed property test saves its failing case, which would make the next defect easier to find.
restore() { git -C "$tree" checkout -q --force . && git -C "$tree" clean -dfq && own_version "$tree"; }
fails() { printf '%-42s %s\n' "$(name_of "$1")" "$2"; failures=$((failures + 1)); }
applies() { git -C "$1" apply "${@:3}" "$2" 2>"$work/apply.log"; }
mkdir -p "$work"

if [ "$mode" = check ]; then
  for patch in "${patches[@]}"; do
    applies "$top" "$patch" --check || fails "$patch" "no longer applies: $(head -n 1 "$work/apply.log")"
  done
  [ "$failures" = 0 ] || exit 1
  echo "${#patches[@]} patches apply"
  exit 0
fi

for tool in cargo timeout flock; do command -v "$tool" >/dev/null || unfit "$tool is missing"; done
case $mode in all) limit=${PLANTED_LIMIT:-600} ;; together) limit=${PLANTED_LIMIT:-60} ;; *) limit=${PLANTED_LIMIT:-120} ;; esac
exec 9>"$work/lock"
flock -n 9 || unfit "another run is using $work"

# Writes only the files that differ from the last run's commit, so that only those are rebuilt.
checkout() { git -C "$tree" fetch -q --no-tags "$top" HEAD && git -C "$tree" checkout -q --force --detach FETCH_HEAD && restore; }
if ! { [ -d "$tree/.git" ] && checkout; } 2>"$work/clone.log"; then
  rm -rf "$tree"
  { git clone -q --shared --no-checkout "$top" "$tree" && checkout; } 2>"$work/clone.log" || unfit "cannot copy the tree: $(tail -n 1 "$work/clone.log")"
fi
git -C "$top" diff --quiet HEAD -- . ':!tests/planted' 2>/dev/null || echo "run.sh: uncommitted changes are not in the copy" >&2
export CARGO_TARGET_DIR=${PLANTED_TARGET:-$work/build} CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-1}

# A finder is written as in docs/INFORMER.md: a::b::test of a library, tests/NAME::test of another test binary. Modules called models
# are for loom, in a build of their own.
binary_of() {
  case $1 in
    tests/*) local path=${1#tests/}; echo "${path%%/*}" ;;
    *::models::*) echo "loom:$(package_of "$1")" ;;
    *) echo "lib:$(package_of "$1")" ;;
  esac
}
# Whether the gateway's crate has a whole crate as this module.
is_crate() { [ -d "$top/src/$1/src" ] && [ ! -e "$top/src/$1/src/$1.rs" ]; }
# The crate of the module that the finder's path begins with.
package_of() {
  local folder
  is_crate "${1%%::*}" && { echo "kube-fanout-${1%%::*}"; return; }
  for folder in "$top"/src/*/src; do
    [ ! -e "$folder/${1%%::*}.rs" ] || { folder=${folder%/src}; echo "kube-fanout-${folder##*/}"; return; }
  done
  echo kube-fanout
}
finder_of() { sed -n 's/^Found by: //p' "$1"; }
# The test's path in its binary.
test_of() {
  case $1 in
    tests/*) echo "${1#tests/*/}" ;;
    *) if is_crate "${1%%::*}"; then echo "${1#*::}"; else echo "$1"; fi ;;
  esac
}

# Builds these test binaries of the copy, all of them of one kind, and prints the path of each.
build() {
  local binary name
  # The form of the crate that .ci/check.sh builds, so that its dependencies are there.
  local how=(cargo test --locked --no-run --message-format json-render-diagnostics --features kube-fanout/otlp,kube-fanout/profile --package kube-fanout)
  case $1 in
    lib:*) how+=(--lib) ;;
    loom:*) how+=(--lib --features kube-fanout/loom) ;;
    *) how+=(--test "$1") ;;
  esac
  for binary in "$@"; do
    case $binary in *:*) how+=(--package "${binary#*:}") ;; esac
  done
  (cd "$tree" && "${how[@]}") >"$work/build.json" 2>"$work/build.log" </dev/null || return
  for binary in "$@"; do
    name=${binary#*:}
    # The test binary, not the program that it starts.
    sed -n 's/.*"name":"'"${name//-/_}"'".*"test":true},"features".*"executable":"\([^"]*\)".*/\1/p' "$work/build.json"
  done
}

# Runs these tests of a binary, or the whole binary if none are named.
tests() { (cd "$tree" && timeout --kill-after 5 "$limit" "$@") >"$work/test.log" 2>&1 </dev/null; }

arguments_of() {
  case $mode:$1 in
    all:loom:*) echo models:: ;;
    all:*) ;;
    *) echo --exact; for finder in "${@:2}"; do test_of "$finder"; done ;;
  esac
}

# Describes a run that failed with exit code $1: the test that failed or was still running.
verdict() {
  local failed
  failed=$(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$work/test.log")
  local first=${failed%%$'\n'*} count
  count=$(grep -c . <<<"$failed" || true)
  case $1 in
    124 | 137)
      first=$(sed -n 's/^test \(.*\) has been running for over .*/\1/p' "$work/test.log" | head -n 1)
      echo "hangs: ${first:-$2}"
      ;;
    101) echo "${first:-$2}$([ "$count" -lt 2 ] || echo " and $((count - 1)) more")" ;;
    *) echo "code $1: ${first:-$2}" ;;
  esac
}

plant() {
  local patch=$1 binary=$2 finder program code=0 started=$SECONDS built
  finder=$(finder_of "$patch")
  restore
  applies "$tree" "$patch" || { fails "$patch" "no longer applies: $(head -n 1 "$work/apply.log")"; return; }
  program=$(build "$binary") || { fails "$patch" "does not compile: $(grep -m 1 '^error' "$work/build.log")"; return; }
  built=$((SECONDS - started)) started=$SECONDS
  mapfile -t arguments < <(arguments_of "$binary" "$finder")
  tests "$program" "${arguments[@]}" || code=$?
  cp "$work/test.log" "$work/$(name_of "$patch").log"
  local spent="build $built s, test $((SECONDS - started)) s"
  if [ "$code" = 0 ]; then
    fails "$patch" "NOT FOUND ($spent)"
  else
    printf '%-42s found: %s (%s)\n' "$(name_of "$patch")" "$(verdict "$code" "$finder")" "$spent"
  fi
}

# Plants all patches whose finders are in one binary, after the finders have passed without a defect.
plant_all() {
  local binary=$1 program code=0 finders=()
  shift
  for patch in "$@"; do finders+=("$(finder_of "$patch")"); done
  mapfile -t finders < <(printf '%s\n' "${finders[@]}" | sort -u)
  restore
  program=$(build "$binary") || { tail -n 20 "$work/build.log" >&2; unfit "$binary does not build without a defect"; }
  mapfile -t arguments < <(arguments_of "$binary" "${finders[@]}")
  tests "$program" "${arguments[@]}" || code=$?
  [ "$code" = 0 ] || unfit "fails without a defect: $(verdict "$code" "$binary"); see $work/test.log"
  if [ "$mode" = finder ] && ! grep -q "^test result: ok\. ${#finders[@]} passed" "$work/test.log"; then
    for finder in "${finders[@]}"; do
      grep -qF "test $(test_of "$finder") ... ok" "$work/test.log" || unfit "there is no test $finder"
    done
  fi
  for patch in "$@"; do plant "$patch" "$binary"; done
}

# Of the defects that the library's tests find, plants as many as apply on top of each other; then runs each defect's own test.
plant_together() {
  local planted=() finders=" " binaries=() programs=() finder code at
  restore
  for patch in "${patches[@]}"; do
    finder=$(finder_of "$patch")
    [[ "$(binary_of "$finder")" == lib:* ]] && [[ "$finders" != *" $finder "* ]] && applies "$tree" "$patch" || continue
    planted+=("$patch") finders+="$finder "
  done
  [ "${#planted[@]}" -gt 0 ] || unfit "none of them can be planted together"
  mapfile -t binaries < <(for patch in "${planted[@]}"; do binary_of "$(finder_of "$patch")"; done | sort -u)
  build "${binaries[@]}" >"$work/programs" || { tail -n 20 "$work/build.log" >&2; unfit "${#planted[@]} defects do not compile together"; }
  echo "${#planted[@]} of ${#patches[@]} planted together, built in $SECONDS s"
  mapfile -t programs <"$work/programs"
  for patch in "${planted[@]}"; do
    code=0
    for at in "${!binaries[@]}"; do [ "${binaries[at]}" != "$(binary_of "$(finder_of "$patch")")" ] || break; done
    tests "${programs[at]}" --exact "$(test_of "$(finder_of "$patch")")" || code=$?
    if [ "$code" = 0 ]; then
      fails "$patch" "NOT FOUND by $(finder_of "$patch")"
    fi
  done
  restore
  echo "$((${#planted[@]} - failures)) of ${#planted[@]} found, $SECONDS s"
  [ "$failures" = 0 ]
}

for patch in "${patches[@]}"; do
  [ -n "$(finder_of "$patch")" ] || unfit "$patch names no test that finds it"
done
if [ "$mode" = together ]; then
  plant_together
  exit
fi
binaries=$(for patch in "${patches[@]}"; do binary_of "$(finder_of "$patch")"; done | sort -u)
# The models last: they need another build of the same library.
for binary in $(grep -v '^loom:' <<<"$binaries" || true) $(grep '^loom:' <<<"$binaries" || true); do
  mine=()
  for patch in "${patches[@]}"; do
    [ "$(binary_of "$(finder_of "$patch")")" != "$binary" ] || mine+=("$patch")
  done
  plant_all "$binary" "${mine[@]}"
done
restore

echo "${#patches[@]} planted, $((${#patches[@]} - failures)) found, $SECONDS s"
[ "$failures" = 0 ]
