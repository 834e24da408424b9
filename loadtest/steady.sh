#!/usr/bin/env bash
# 5,000 watchers, 100 events a second of 1 KiB, 30 s; then the same against a bare socket loop, and the ratio.
#
#   loadtest/steady.sh [TARGET=gateway|direct] [FLAGS of kube-fanout-loadtest steady]
#   loadtest/steady.sh --http2 --streams-per-connection 100
# More in serve.sh and README.md.
. "$(dirname "$0")/serve.sh"
serve
"$bin/kube-fanout-loadtest" steady "${flags[@]}" --watchers 5000 --write-rate 100 --object-size 1024 --duration 30s --baseline "$@"
