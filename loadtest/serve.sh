# Sourced by the scenario scripts: starts an embedded API server and a gateway, ends both by their process ids.
#
# Environment (defaults in brackets):
#   TARGET          what the swarm talks to: gateway, or direct for the API server itself [gateway]
#   BIN             folder of the binaries [target/release]
#   API_PORT        port of the embedded API server [16601]
#   GATEWAY_PORT    port of the gateway [16602]
#   ADMIN_PORT      port of the gateway's metrics [16603]
#   APISERVER_ARGS, GATEWAY_ARGS   more flags, split on blanks
# Arguments of a script: TARGET=… and the like first, then flags for kube-fanout-loadtest.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
while [[ ${1:-} == [A-Z_]*=* ]]; do
  export "${1?}"
  shift
done
target=${TARGET:-gateway}
bin=${BIN:-$root/target/release}
api_port=${API_PORT:-16601}
gateway_port=${GATEWAY_PORT:-16602}
admin_port=${ADMIN_PORT:-16603}
logs=$(mktemp -d)
pids=()

die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

clean_up() {
  local code=$? pid
  for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do
    for _ in $(seq 50); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    kill -KILL "$pid" 2>/dev/null || true
  done
  if [ "$code" -ne 0 ] && [ -n "$(cat "$logs"/* 2>/dev/null)" ]; then
    echo "last lines of the servers' logs:" >&2
    tail -n 20 "$logs"/* >&2
  fi
  rm -rf "$logs"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# launch NAME ARGS…: the process id is in $launched.
launch() {
  local name=$1; shift
  "$@" >"$logs/$name" 2>&1 </dev/null &
  launched=$!
  pids+=("$launched")
}

# wait_for URL PID NAME: until it answers at all, 20 s at most.
wait_for() {
  for _ in $(seq 200); do
    if curl -sf -o /dev/null --max-time 2 "$1"; then return; fi
    kill -0 "$2" 2>/dev/null || die "$3 has ended"
    sleep 0.1
  done
  die "$3 does not answer at $1"
}

# serve: sets $flags, the arguments that tell the load test about the servers.
serve() {
  local program
  for program in kube-fanout kube-fanout-loadtest; do
    [ -x "$bin/$program" ] || die "$bin/$program is missing: cargo build --release --workspace"
  done
  case $target in gateway | direct) ;; *) die "TARGET is gateway or direct, not $target" ;; esac
  local port
  for port in "$api_port" "$gateway_port"; do
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then die "port $port is in use"; fi
  done
  # A loop of thousands of sockets needs as many open files.
  ulimit -n "$(ulimit -Hn)"
  local api=http://127.0.0.1:$api_port gateway=http://127.0.0.1:$gateway_port api_pid
  # The load test writes by itself, so that every version is known to it: no churn here.
  # shellcheck disable=SC2086
  launch apiserver "$bin/kube-fanout" apiserver --listen "127.0.0.1:$api_port" --objects configmaps=0 --churn 0 ${APISERVER_ARGS:-}
  api_pid=$launched
  wait_for "$api/api/v1/namespaces/default/configmaps?limit=1" "$api_pid" apiserver
  if [ "$target" = direct ]; then
    flags=(--target "$api" --server-pid "$api_pid")
    return
  fi
  # shellcheck disable=SC2086
  launch gateway "$bin/kube-fanout" serve --upstream "$api" --listen "127.0.0.1:$gateway_port" --plain-http --auth none \
    --admin-listen "127.0.0.1:$admin_port" ${GATEWAY_ARGS:-}
  wait_for "$gateway/api/v1/namespaces/default/configmaps?limit=1" "$launched" gateway
  flags=(--target "$gateway" --reference "$api" --server-pid "$launched" --upstream-pid "$api_pid")
}
