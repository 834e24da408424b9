#!/usr/bin/env bash
# Suites against a real Kubernetes API server, with the gateway in front of it: pytest, with what it needs.
#
#   run.sh [SUITE...] [OPTION...]   all, or some of: conformance converge one-watch restart random gates trust check nodes inject gzip; options of pytest
#   run.sh conformance -k paging    some tests of a suite
#   run.sh prepare                  only installs what is missing
#   run.sh revocation               measures how long streams outlive their permission; it waits for intervals, so it runs only if it is named
#   run.sh toggles                  2,000 informers change sides 100 times; a quarter of an hour, and only if it is named
#   run.sh reviews                  counts the reviews of idle callers for twelve minutes; runs only if it is named
#   run.sh faults                   kills, stops and cuts everything, one after the other; needs root, half an hour, and to be named
#
# Installs missing packages (from Debian and PyPI; some minutes the first time). Each suite then starts its own etcd, API server and
# gateways on free ports of 127.0.0.1, and always stops them by their pids. Two suites run at a time. Exit code: pytest's, or 3 if the
# setup failed.
#
# Environment:
#   GATEWAY       the gateway's binary [target/release/kube-fanout, which must be newer than its sources]; 'direct': no gateway, the server
#                 is compared with itself
#   GATEWAY_ARGS  more flags for the gateway, split on blanks
#   GATEWAY_AUTH  the gateway's --auth in all suites but trust, which tests every mode [none]; requests carry the administrator's token
#   CONFORMANCE_TABLE  a file to which the conformance suite writes its table, as docs/CONFORMANCE.md
#   IT_PROGRAM    the built program of tests/it [what cargo builds]
#   KUBE_FANOUT_REQUIRE  1: a test that cannot run because a tool is missing fails
#   KUBECTL       a kubectl of 1.32 or newer [the one in PATH, else Debian's]
#   TRANSPORT_SEED     selects the tenth of the requests that goes over TLS, and the tenth that goes over HTTP/2 [1]
#   RANDOM_SEED, RANDOM_COUNT, RANDOM_ONLY, TRUST_ONLY, TRUST_SEED, FAULTS_CLIENTS, FAULTS_TABLE   see README.md
#   REAL_KEEP     not empty: keep the folders (target/real/SUITE-PID) with logs and credentials
#   REAL_APISERVER_*   see apiserver/real-apiserver.sh
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$root/target/real

unfit() { printf 'run.sh: %s\n' "$*" >&2; exit 3; }

paths=() options=()
for word in "$@"; do
  case $word in
    conformance | converge | restart | random | trust | inject | gzip | faults) paths+=("suites/$word") ;;
    one-watch | gates | check | nodes | revocation | reviews | toggles) paths+=("suites/${word//-/_}_test.py") ;;
    -h | --help) sed -n '2,/^set -/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '$d'; exit 0 ;;
    *) options+=("$word") ;;
  esac
done
if [ ${#paths[@]} = 0 ]; then paths=(suites --ignore=suites/faults --ignore=suites/revocation_test.py --ignore=suites/reviews_test.py --ignore=suites/toggles_test.py); fi

# conftest.py keeps a suite in one process. One at a time: two of them, beside other steps, take so much of a small machine that gateway and
# API server answer some reads too late.
if [ ${#paths[@]} != 1 ]; then options=(--numprocesses=1 "${options[@]}"); fi

for tool in python3 openssl curl setsid flock; do command -v "$tool" >/dev/null || unfit "$tool is missing"; done
python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || unfit "Python 3.10 or newer is needed"

mkdir -p "$work"
exec 8>"$work/lock" # another run may install, too
flock 8
if ! cmp -s "$here/requirements.txt" "$work/venv/installed"; then
  { python3 -m venv --clear "$work/venv" && "$work/venv/bin/pip" install --quiet --no-compile --disable-pip-version-check --no-input --retries 2 --timeout 20 -r "$here/requirements.txt"; } >&2 ||
    unfit "the packages of $here/requirements.txt cannot be installed"
  cp "$here/requirements.txt" "$work/venv/installed"
fi
exec 8>&-
"$here/apiserver/real-apiserver.sh" install || unfit "the API server cannot be built: see above"
if [ "${1:-}" = prepare ]; then exit 0; fi

gateway=${GATEWAY:-$root/target/release/kube-fanout}
case $gateway in
  direct) ;;
  *)
    [ -x "$gateway" ] || unfit "no gateway at $gateway: cargo build --release, or GATEWAY=FILE, or GATEWAY=direct"
    gateway=$(realpath "$gateway")
    newer=$(cd "$root" && find src Cargo.toml Cargo.lock -type f -newer "$gateway" -print -quit)
    if [ -n "$newer" ] && [ -n "${GATEWAY:-}" ]; then
      printf 'run.sh: warning: %s is older than %s\n' "$gateway" "$newer" >&2
    elif [ -n "$newer" ]; then
      unfit "$gateway is older than $newer: cargo build --release (touch the binary if Cargo finds nothing to do)"
    fi
    ;;
esac
export GATEWAY=$gateway
if [ -n "${CONFORMANCE_TABLE:-}" ]; then CONFORMANCE_TABLE=$(realpath "$CONFORMANCE_TABLE"); fi
if [ -n "${FAULTS_TABLE:-}" ]; then FAULTS_TABLE=$(realpath "$FAULTS_TABLE"); fi

cd "$here"
export PYTHONPYCACHEPREFIX=$work/pycache
exec "$work/venv/bin/python" -m pytest -o cache_dir="$work/pytest" "${paths[@]}" "${options[@]}"
