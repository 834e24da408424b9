#!/usr/bin/env bash
# 50 clients list 10,000 ConfigMaps of 2.9 KB at once, twenty times plain and twenty times with gzip: CPU of the server per list.
#
#   loadtest/gzip-herd.sh [TARGET=gateway|direct|real] [FLAGS of kube-fanout-loadtest gzip-herd]
#
# TARGET=real asks a real API server (tests/real/apiserver) directly, three times each, on REAL_APISERVER_PORT and
# REAL_APISERVER_ETCD_PORT [16772, 12772]. More in serve.sh and README.md.
. "$(dirname "$0")/serve.sh"

herd() { "$bin/kube-fanout-loadtest" gzip-herd "${flags[@]}" --clients 50 --objects 10000 --object-size 2900 "$@"; }

if [ "$target" != real ]; then
  serve
  herd --rounds 20 "$@"
  exit
fi

server=$root/tests/real/apiserver/real-apiserver.sh
export REAL_APISERVER_STATE=$logs/real REAL_APISERVER_PORT=${REAL_APISERVER_PORT:-16772}
export REAL_APISERVER_ETCD_PORT=${REAL_APISERVER_ETCD_PORT:-12772}
export REAL_APISERVER_PEER_PORT=$((REAL_APISERVER_ETCD_PORT + 1))
[ -x "$bin/kube-fanout-loadtest" ] || die "$bin/kube-fanout-loadtest is missing: cargo build --release --workspace"
trap '"$server" stop >&2 || true; clean_up' EXIT
"$server" start
state=$REAL_APISERVER_STATE
flags=(--target "https://127.0.0.1:$REAL_APISERVER_PORT" --ca "$state/pki/ca.crt" --token "@$state/pki/admin.token"
  --server-pid "$(cat "$state/run/real-apiserver.pid")")
herd --rounds 3 "$@"
