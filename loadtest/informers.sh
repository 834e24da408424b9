#!/usr/bin/env bash
# client-go's informers, kube-rs's reflector and this project's informer on 100,000 pods of a real API server: sync time, CPU, memory,
# as ratios to client-go; every store must equal the server's state. About 25 minutes.
#
#   loadtest/informers.sh [NAME=VALUE…] [--pods N] [FLAGS of kube-fanout-informers compare]
#   loadtest/informers.sh --pods 10000 --rows typed/client-go,typed/ours --churn 5s --settle 2s
#
# Environment (defaults in brackets):
#   BIN            folder of kube-fanout-informers [target/release]
#   PORT, ETCD_PORT   of the API server and its etcd [16771, 12771]
#   REAL_APISERVER_HOME   as in tests/real/apiserver/README.md; built there the first time, in five minutes
#   STATE          folder for the server's data, a gigabyte, removed at the end [a temporary one]
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
while [[ ${1:-} == [A-Z_]*=* ]]; do
  export "${1?}"
  shift
done
bin=${BIN:-$root/target/release}
server=$root/tests/real/apiserver/real-apiserver.sh
state=${STATE:-$(mktemp -d)}
export REAL_APISERVER_STATE=$state REAL_APISERVER_PORT=${PORT:-16771} REAL_APISERVER_ETCD_PORT=${ETCD_PORT:-12771}
export REAL_APISERVER_PEER_PORT=$((REAL_APISERVER_ETCD_PORT + 1))

die() { printf 'informers.sh: %s\n' "$*" >&2; exit 1; }
[ -x "$bin/kube-fanout-informers" ] || die "$bin/kube-fanout-informers is missing: cargo build --release --workspace"

[ ! -e "$state/run" ] || die "$state holds a server already"
working=

# Flags that the seeder needs too.
fleet=() rest=()
while [ $# -gt 0 ]; do
  case $1 in
    --pods | --namespaces | --nodes) fleet+=("$1" "${2:?$1 wants a number}"); shift 2 ;;
    --pods=* | --namespaces=* | --nodes=*) fleet+=("$1"); shift ;;
    *) rest+=("$1"); shift ;;
  esac
done

clean_up() {
  local code=$?
  trap - EXIT INT TERM
  if [ -n "$working" ]; then kill -TERM "$working" 2>/dev/null || true; fi
  "$server" stop >&2 || true
  rm -rf "$state/run" "$state/pki"
  rmdir "$state" 2>/dev/null || true
  exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

client_go=$("$server" informer)
"$server" start
at=(--target "https://127.0.0.1:$REAL_APISERVER_PORT" --ca "$state/pki/ca.crt" --token "@$state/pki/admin.token" ${fleet[@]+"${fleet[@]}"})
echo "load before: $(cut -d' ' -f1-3 /proc/loadavg)"

# In the background, so that a signal to this script is handled at once. The informers end when the program does.
play() {
  "$bin/kube-fanout-informers" "$@" &
  working=$!
  local code=0
  wait "$working" || code=$?
  working=
  return "$code"
}
play seed-pods "${at[@]}"
play compare "${at[@]}" --kubeconfig "$state/pki/kubeconfig-$REAL_APISERVER_PORT" --client-go "$client_go" ${rest[@]+"${rest[@]}"}
