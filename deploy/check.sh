#!/usr/bin/env bash
# Validates the manifests strictly against the schemas of Kubernetes, without a cluster. The schemas come with the Python package
# kubernetes-validate, which is installed into a virtual environment below the build directory. tests/tidy/documents.rs checks that every
# flag exists.
set -euo pipefail
cd "$(dirname "$0")/.."

VERSION=1.37.0
# The oldest and the newest API server that the manifests support.
KUBERNETES_VERSIONS=(1.32 1.37)
# Kinds of other projects, for which Kubernetes has no schema.
FOREIGN='PodMonitor|Certificate|Issuer'

venv=${CARGO_TARGET_DIR:-target}/deploy-check
if [ ! -x "$venv/bin/kubernetes-validate" ] || [ "$(cat "$venv/installed" 2>/dev/null)" != "$VERSION" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-input "kubernetes-validate==$VERSION"
    echo "$VERSION" >"$venv/installed"
fi

validate() { # version, files…
    local version=$1
    shift
    "$venv/bin/kubernetes-validate" --strict --kubernetes-version "$version" "$@" 2>&1
}

for version in "${KUBERNETES_VERSIONS[@]}"; do
    output=$(validate "$version" deploy/manifests/*.yaml deploy/optional/*.yaml) || { echo "$output"; exit 1; }
    # A kind without a schema causes only a warning, so a misspelt kind would pass.
    if unknown=$(grep -E '^WARN' <<<"$output" | grep -vE "kind ($FOREIGN) "); then
        echo "$unknown"
        exit 1
    fi
    echo "manifests: $(grep -c '^INFO.* passed ' <<<"$output") objects valid for Kubernetes $version"
done

# Prove that the check itself can fail.
broken=$(mktemp --suffix=.yaml)
trap 'rm -f "$broken"' EXIT
sed 's/terminationGracePeriodSeconds/terminationGraceSeconds/' deploy/manifests/30-deployment.yaml >"$broken"
if validate "${KUBERNETES_VERSIONS[-1]}" "$broken" >/dev/null; then
    echo "manifests: a misspelt field was not noticed" >&2
    exit 1
fi
