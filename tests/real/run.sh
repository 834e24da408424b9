#!/usr/bin/env bash
# Suites against a real Kubernetes API server, with the gateway in front of it.
#
#   run.sh [SUITE...]     all, or some of: differential kubectl informers one-watch restart clients conformance random converge gates trust check
#   run.sh revocation     measures how long streams outlive their permission; it waits for intervals, so it runs only if it is named
#   run.sh faults         kills, stops and cuts everything, one after the other; needs root, half an hour, and to be named
#
# Installs missing packages (from Debian and PyPI; some minutes the first time). Each suite then starts its own etcd, API server and
# gateways on free ports of 127.0.0.1, and always stops them by their pids. Prints one line per case, a table, and finally 'N passed, N
# failed'. Exit code: 0 all passed, 1 something failed, 2 usage, 3 setup failed.
#
# Environment:
#   GATEWAY       the gateway's binary [target/release/kube-fanout, which must be newer than its sources]; 'direct': no gateway, the server
#                 is compared with itself; 'relay': a stand-in gateway, which tests the restart, converge and trust suites themselves
#   GATEWAY_ARGS  more flags for the gateway, split on blanks
#   GATEWAY_AUTH  the gateway's --auth in all suites but trust, which tests every mode [none]; requests carry the administrator's token
#   CONFORMANCE_TABLE  a file to which the conformance suite writes its table, as docs/CONFORMANCE.md
#   CONFORMANCE_ONLY   numbers of entries, or parts of names: only the tests that match
#   KUBE_FANOUT_REQUIRE  1: a case that cannot run because a tool is missing counts as a failure
#   TRANSPORT_SEED     selects the tenth of the requests that goes over TLS, and the tenth that goes over HTTP/2 [1]
#   KUBECTL       a kubectl of 1.32 or newer [the one in PATH, else Debian's]
#   RANDOM_SEED, RANDOM_COUNT, RANDOM_ONLY   see suites/replay/run.py
#   TRUST_ONLY, TRUST_MODES, TRUST_SEED, TRUST_QUESTIONS   see README.md, "Trust"
#   FAULTS_ONLY, FAULTS_CLIENTS, FAULTS_TABLE   see README.md, "Faults"
#   REAL_KEEP     not empty: keep the folders (target/real/SUITE-PID) with logs and credentials
#   REAL_APISERVER_*   see apiserver/real-apiserver.sh
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
maker=$here/apiserver/real-apiserver.sh
root=$(cd "$here/../.." && pwd)
work=$root/target/real
library=$work/python # what the suites use of PyPI, besides the official client, which has a virtual environment
suites=${*:-differential kubectl informers one-watch restart clients conformance random converge gates trust check}

unfit() { printf 'run.sh: %s\n' "$*" >&2; exit 3; }
wants() { [[ " $suites " == *" $1 "* ]]; }

for suite in $suites; do
  case $suite in
    differential | kubectl | informers | one-watch | restart | clients | conformance | random | converge | gates | trust | check | revocation | faults) ;;
    *) sed -n '2,/^set -/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '$d'; exit 2 ;;
  esac
done
for tool in python3 openssl curl setsid flock; do command -v "$tool" >/dev/null || unfit "$tool is missing"; done
python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' || unfit "Python 3.9 or newer is needed"

gateway=${GATEWAY:-$root/target/release/kube-fanout}
case $gateway in
  direct | relay) ;;
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

mkdir -p "$work"
export PYTHONPATH=$here:$library PYTHONPYCACHEPREFIX=$work/pycache
if ! python3 -c 'import h2.connection' 2>/dev/null; then
  { [ -x "$work/venv/bin/python" ] || python3 -m venv "$work/venv"; } &&
    "$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check --retries 2 --timeout 20 --upgrade --target "$library" 'h2>=4.1,<5' >&2 ||
    unfit "PyPI's h2 cannot be installed: pip install --target $library 'h2>=4.1,<5'"
fi

"$maker" install || unfit "the API server cannot be built: see above"
if wants informers || wants conformance || wants converge || wants faults; then "$maker" informer >/dev/null || unfit "the informers cannot be built: see above"; fi
if { wants kubectl || wants converge || wants trust; } && ! (cd "$here" && python3 -c 'import sys; from suites import kubectl; sys.exit(not kubectl.find())'); then
  "$maker" kubectl >/dev/null || printf 'run.sh: no kubectl from Debian; its suite will be skipped, converge will fail\n' >&2
fi

(cd "$here" && python3 -m unittest -q suites.quiet_test) || unfit "the check of quiet ends is broken"
if wants restart; then (cd "$here" && python3 -m unittest -q suites.restart.judge_test) || unfit "the judge of restarts is broken"; fi
if wants differential; then (cd "$here" && python3 -m unittest -q suites.differential.case_test) || unfit "the comparison itself is broken"; fi
# A run that writes the table may find an old one.
table_test=suites.conformance.table_test
[ -z "${CONFORMANCE_TABLE:-}" ] || table_test=
# shellcheck disable=SC2086
if wants conformance; then (cd "$here" && python3 -m unittest -q suites.conformance.framework_test $table_test) || unfit "the conformance suite is broken, or docs/CONFORMANCE.md is not its table"; fi
if wants random; then (cd "$here" && python3 -m unittest -q suites.replay.replay_test) || unfit "the replay itself is broken"; fi

# In the background, so that a signal to this script is passed on at once: the suites stop what they started.
cd "$here"
# shellcheck disable=SC2086
python3 -u -m suites $suites &
suites_pid=$!
trap 'kill -TERM "$suites_pid" 2>/dev/null; wait "$suites_pid" || true; exit 130' INT TERM HUP
rc=0
wait "$suites_pid" || rc=$?
exit "$rc"
