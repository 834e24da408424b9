#!/usr/bin/env bash
# Checks alerts, ALERTS.md and the dashboard: promtool proves each alert firing and silent, and check.py compares all of them with each
# other and with docs/METRICS.md. With --live PROGRAM, where PROGRAM is a built kube-fanout, a real Prometheus then scrapes it under planted
# faults (live.py). The Python packages are installed into a virtual environment below the build directory.
set -euo pipefail
program=
case "$#:${1:-}" in
    0:) ;;
    2:--live) program=$(realpath "$2") ;;
    *) echo "usage: $0 [--live PROGRAM]" >&2; exit 2 ;;
esac
cd "$(dirname "$0")/../.."

PACKAGES=(promql-parser==0.11.0 PyYAML==6.0.3 'grafana-foundation-sdk==1769699998!10.1.0')

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
PATH=$target/tools/bin:$PATH

venv=$target/alerts-check
if [ "$(cat "$venv/installed" 2>/dev/null)" != "${PACKAGES[*]}" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-input "${PACKAGES[@]}" </dev/null
    echo "${PACKAGES[*]}" >"$venv/installed"
fi

quietly() { # Prints the output of a command only if it fails.
    local output
    output=$("$@" 2>&1) || { echo "$output"; return 1; }
}
"$venv/bin/python" deploy/alerts/check.py
# Last, so that everything else is checked without it.
if ! command -v promtool >/dev/null; then
    echo "alerts: promtool is missing, so no alert was tried: install Prometheus, which has it, or run .ci/setup.sh deploy" >&2
    exit 1
fi
quietly promtool check rules deploy/alerts/kube-fanout.rules.yaml
quietly promtool test rules deploy/alerts/tests/*.yaml
[ -z "$program" ] || "$venv/bin/python" deploy/alerts/live.py "$program"
