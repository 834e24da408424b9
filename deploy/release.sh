#!/usr/bin/env bash
# Makes all files of a release from the commit that is checked out. docs/RELEASING.md lists them.
#
#   release.sh --prepare                   installs and downloads what is needed; only this and --publish use the network
#   release.sh [--output DIR]              makes the release, by default in target/release-VERSION
#   release.sh --publish [--output DIR]    pushes its images, as one index, and its chart to the registry, with the login that buildah and helm have
#   release.sh --check                     makes what needs no optimised build, with the program in target/debug, and looks at it
#
# The registry is that of `image.repository` in deploy/chart/kube-fanout/values.yaml, and nowhere else.
set -euo pipefail
cd "$(dirname "$0")/.."

ARCHITECTURES=(amd64 arm64)
# What a controller in Rust depends on, in the order of their dependencies.
CRATES=(kube-fanout-wire kube-fanout-cache kube-fanout-upstream kube-fanout-informer)

fail() { echo "release: $*" >&2; exit 1; }
usage() { sed -n '/^#   release.sh/s/^# *//p' "$0" >&2; exit 2; }
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
chart=deploy/chart/kube-fanout
repository=$(sed -n 's/^  repository: //p' $chart/values.yaml)
output=$target/release-$version task=make
while [ $# -gt 0 ]; do
    case "$1" in
        --output)
            [ $# -ge 2 ] || usage
            output=$(realpath -m "$2")
            shift 2
            ;;
        --prepare | --publish | --check) task=${1#--}; shift ;;
        *) usage ;;
    esac
done
time=$(git log -1 --format=%ct)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A folder as an archive without names of users and other times than the commit's: archive FOLDER FILE
archive() { tar --sort=name --mtime="@$time" --owner=0 --group=0 --numeric-owner -C "$(dirname "$1")" -c "$(basename "$1")" | gzip -n >"$2"; }

# Completions and manual pages, which are the same for every architecture: pages PROGRAM FOLDER
pages() {
    local command
    mkdir -p "$2/completions" "$2/man"
    "$1" completions bash >"$2/completions/kube-fanout"
    "$1" completions zsh >"$2/completions/_kube-fanout"
    "$1" completions fish >"$2/completions/kube-fanout.fish"
    "$1" man >"$2/man/kube-fanout.1"
    for command in $("$1" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p'); do
        [ "$command" = help ] || "$1" man "$command" >"$2/man/kube-fanout-$command.1"
    done
    [ -s "$2/man/kube-fanout-serve.1" ] || fail "$1 wrote no manual page of serve"
}

# The chart, into FOLDER. helm keeps the times of files.
package_chart() {
    # shellcheck source=deploy/helm.sh
    . deploy/helm.sh
    command -v helm >/dev/null || fail "helm is missing: install it"
    cp -r $chart "$work/chart"
    find "$work/chart" -exec touch -d "@$time" {} +
    alone helm package "$work/chart" --destination "$1"
}

# The crates, into FOLDER. Without --no-verify each is compiled from its package, with the packages before it.
package_crates() {
    local crate options=()
    for crate in "${CRATES[@]}"; do options+=(--package "$crate"); done
    CARGO_PROFILE_DEV_DEBUG=0 cargo package --locked --quiet "${options[@]}" "${@:2}"
    for crate in "${CRATES[@]}"; do cp "$target/package/$crate-$version.crate" "$1"; done
}

prepare() {
    eval "$(.ci/setup.sh release)"
    # shellcheck source=deploy/helm.sh
    . deploy/helm.sh
    cargo fetch --locked
    deploy/sbom/sbom.sh --check
}

make() {
    [ -z "$(git status --porcelain)" ] || fail "the checkout has changes that are in no commit"
    export CARGO_NET_OFFLINE=true
    local arch program folder own
    own=$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')
    rm -rf "$output"
    mkdir -p "$output"
    for arch in "${ARCHITECTURES[@]}"; do
        program=$(deploy/image.sh --arch "$arch" --program)
        [ "$arch" != "$own" ] || pages "$program" "$work/pages"
    done
    [ -d "$work/pages" ] || fail "no program of this release runs on $own, which writes the manual pages"
    for arch in "${ARCHITECTURES[@]}"; do
        program=$(deploy/image.sh --arch "$arch" --program)
        folder=$work/$arch/kube-fanout-$version
        mkdir -p "$folder"
        install -m 0755 "$program" "$program-top" "$folder"
        cp -r LICENSE docs/CHANGELOG.md "$work/pages"/* "$folder"
        archive "$folder" "$output/kube-fanout-$arch.tgz"
        folder=$work/$arch/kube-fanout-$version-symbols
        mkdir "$folder"
        cp "$program".debug "$program-top.debug" "$folder"
        archive "$folder" "$output/kube-fanout-$arch-symbols.tgz"
        # Only an image for this machine can be run.
        deploy/image.sh --arch "$arch" --tag "kube-fanout:$version" --output "$output/kube-fanout-$arch.tar" $([ "$arch" != "$own" ] || echo --test)
    done
    package_chart "$output"
    package_crates "$output"
    (cd "$output" && sha256sum -- * >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)
    ls -l "$output"
}

publish() {
    case "$repository" in
        *example.com/*) fail "$chart/values.yaml names no registry that exists: image.repository is $repository" ;;
    esac
    (cd "$output" && sha256sum --check --quiet SHA256SUMS) || fail "$output is not as it was made"
    local arch storage=(--root "$work/root" --runroot "$work/run" --storage-driver vfs)
    buildah "${storage[@]}" manifest create kube-fanout >/dev/null
    for arch in "${ARCHITECTURES[@]}"; do
        buildah "${storage[@]}" manifest add kube-fanout "oci-archive:$output/kube-fanout-$arch.tar"
    done
    rm -f "$output/DIGEST"
    buildah "${storage[@]}" manifest push --all --digestfile "$output/DIGEST" kube-fanout "docker://$repository:$version"
    # buildah 1.28 does not report every failure.
    [ -s "$output/DIGEST" ] || fail "the images were not pushed to $repository"
    # shellcheck source=deploy/helm.sh
    . deploy/helm.sh
    helm push "$output/kube-fanout-$version.tgz" "oci://${repository%/*}/charts"
    echo "$repository@$(cat "$output/DIGEST")"
}

check() {
    local program=$target/debug/kube-fanout name
    [ -x "$program" ] || fail "$program is missing: cargo build"
    pages "$program" "$work/pages"
    package_chart "$work"
    package_crates "$work" --allow-dirty --no-verify
    name=$(tar -tzf "$work/kube-fanout-$version.tgz" kube-fanout/values.yaml)
    [ -n "$name" ] || fail "the chart's package has no values"
    for name in deploy/*.sh; do bash -n "$name"; done
    # The workflow runs what is here.
    for name in $(grep -o 'deploy/[a-z./-]*\.sh' deploy/release/workflow.yaml); do [ -x "$name" ] || fail "the workflow runs $name, which is missing"; done
    echo "release: $(find "$work/pages/man" -type f | wc -l) manual pages, ${#CRATES[@]} crates, the chart"
}

"$task"
