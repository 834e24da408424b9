#!/usr/bin/env bash
# Records the requests that clients send to an API server, and replays them to the server and to a gateway; compares the responses byte by
# byte.
#
#   replay.sh record --upstream URL --listen 127.0.0.1:PORT --out FILE [--ca FILE] [--token @FILE]
#   replay.sh replay FILE --server URL --gateway URL [--ca FILE] [--token @FILE] [--gateway-ca FILE]
#             [--server-token @FILE] [--gateway-token @FILE] [--watch-seconds N]
#
# `record` is a plain HTTP/1.1 relay: point a client at http://127.0.0.1:PORT. It writes one JSON line per request to FILE, without
# credentials. `replay` sends the reads among them to both sides at the same time, prints the differences, and exits with code 1 if there
# are any. Needs only Python 3.9.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PYTHONPATH=$here PYTHONPYCACHEPREFIX=$here/../../target/real/pycache exec python3 -u -m suites.replay "$@"
