#!/usr/bin/env bash
# 500 clients list 10,000 ConfigMaps of 2.9 KB at once, three times.
#
#   loadtest/relist-herd.sh [TARGET=gateway|direct] [FLAGS of kube-fanout-loadtest relist-herd]
# More in serve.sh and README.md.
. "$(dirname "$0")/serve.sh"
serve
"$bin/kube-fanout-loadtest" relist-herd "${flags[@]}" --clients 500 --rounds 3 --objects 10000 --object-size 2900 "$@"
