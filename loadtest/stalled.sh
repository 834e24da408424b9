#!/usr/bin/env bash
# 5,000 watchers twice, the second time with 50 that stop reading; small rings, so that these fall out and list again.
#
#   loadtest/stalled.sh [TARGET=gateway|direct] [FLAGS of kube-fanout-loadtest stalled]
# More in serve.sh and README.md.
export GATEWAY_ARGS=${GATEWAY_ARGS:---ring-events-max 512}
. "$(dirname "$0")/serve.sh"
serve
"$bin/kube-fanout-loadtest" stalled "${flags[@]}" --watchers 5000 --stalled 50 --write-rate 100 --object-size 1024 --duration 30s "$@"
