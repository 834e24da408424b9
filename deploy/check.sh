#!/usr/bin/env bash
# Checks manifests, chart and examples without a cluster: deploy/check.py says what. This installs what it needs below the build directory:
# the schemas of Kubernetes, which come with the Python package kubernetes-validate; deploy/helm.sh brings helm and kubectl.
# Alerts and dashboard follow (deploy/alerts/check.sh). tests/tidy/documents.rs checks that every flag exists.
set -euo pipefail
cd "$(dirname "$0")/.."

SCHEMAS=1.37.0
# Installs what is missing, where it can; what it cannot, it names.
if environment=$(.ci/setup.sh deploy); then
    eval "$environment"
fi

built=$(realpath -m "${CARGO_TARGET_DIR:-target}")
venv=$built/deploy-check
if [ ! -x "$venv/bin/kubernetes-validate" ] || [ "$(cat "$venv/installed" 2>/dev/null)" != "$SCHEMAS" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-input "kubernetes-validate==$SCHEMAS"
    echo "$SCHEMAS" >"$venv/installed"
fi

. deploy/helm.sh
# The gateway itself checks the configurations, if it has been built. tests/tidy checks the names of their keys in any case.
gateway=$built/debug/kube-fanout
options=()
if [ -x "$gateway" ]; then
    options+=(--gateway "$gateway")
fi
alone "$venv/bin/python" deploy/check.py "${options[@]}"

deploy/alerts/check.sh
