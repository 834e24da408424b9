#!/usr/bin/env bash
# 10,000 idle watches: the server's memory per watch.
#
#   loadtest/idle-memory.sh [TARGET=gateway|direct] [FLAGS of kube-fanout-loadtest idle-memory]
# More in serve.sh and README.md.
. "$(dirname "$0")/serve.sh"
serve
"$bin/kube-fanout-loadtest" idle-memory "${flags[@]}" --watchers 10000 "$@"
