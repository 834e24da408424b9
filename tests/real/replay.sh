#!/usr/bin/env bash
# Writes down what clients ask of an API server, and asks it again of the server and of a gateway, byte by byte.
#
#   replay.sh record --upstream URL --listen 127.0.0.1:PORT --out FILE [--ca FILE] [--token @FILE]
#   replay.sh replay FILE --server URL --gateway URL [--ca FILE] [--token @FILE] [--gateway-ca FILE]
#             [--server-token @FILE] [--gateway-token @FILE] [--watch-seconds N]
#
# `record` is a plain HTTP/1.1 relay: point a client at http://127.0.0.1:PORT. FILE gets one JSON line a request, without
# credentials. `replay` sends the reads among them to both sides at once, prints what differs, and ends with 1 if
# anything does. Needs Python 3.9 alone.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PYTHONPATH=$here PYTHONPYCACHEPREFIX=$here/../../target/real/pycache exec python3 -u -m suites.replay "$@"
