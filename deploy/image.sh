#!/usr/bin/env bash
# Builds the image of the gateway without a daemon and without a registry: two statically linked programs, the gateway and `top`, in an
# otherwise empty image.
#
#   image.sh [--arch amd64|arm64] [--tag NAME:TAG] [--output FILE]    the image, as an OCI archive
#   image.sh [--arch amd64|arm64] --program                           only the programs; prints the gateway's path, beside which all are
#   image.sh [--arch amd64|arm64] --link                              links the programs without optimisation, to see that they can be
#   image.sh --test [--output FILE]                                   builds the image for this machine, and runs it with its probes
#
# Beside the archive it writes a bill of materials (FILE.cdx.json, by deploy/sbom/sbom.sh). The programs are stripped; line tables and names
# are in a file PROGRAM.debug beside each, where debuggers and the program's own backtraces look for them. release.sh calls this.
#
# Neither has times or names of this machine: the same commit and toolchain give the same bytes. `podman load --input FILE` loads an
# archive, `skopeo copy oci-archive:FILE docker://REGISTRY/NAME:TAG` pushes it.
#
# The program links glibc, whose resolver reads /etc/hosts and asks the name servers of /etc/resolv.conf without further files; test.py
# checks both in the image. Its allocator is mimalloc.
#
# Needs buildah; --test needs podman, runc and python3 as well; another architecture needs its C compiler and C library
# (gcc-aarch64-linux-gnu and libc6-dev-arm64-cross). Rust's library for it comes from rustup, or is compiled from the component rust-src.
set -euo pipefail
cd "$(dirname "$0")/.."

case "$(uname -m)" in
    x86_64) here=amd64 ;;
    aarch64) here=arm64 ;;
    *) here= ;;
esac
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
arch=$here tag=kube-fanout:$version output= program= test= link=
usage() { sed -n '/^#   image.sh/s/^# *//p' "$0" >&2; exit 2; }
while [ $# -gt 0 ]; do
    case "$1" in
        --arch | --tag | --output)
            [ $# -ge 2 ] || usage
            declare "${1#--}=$2"
            shift 2
            ;;
        --program) program=1; shift ;;
        --test) test=1; shift ;;
        --link) link=1; shift ;;
        *) usage ;;
    esac
done
needs() { command -v "$1" >/dev/null || { echo "image: $1 is missing: install $2" >&2; exit 1; }; }

case "$arch" in
    amd64) triple=x86_64-unknown-linux-gnu compiler=x86_64-linux-gnu-gcc machine=X86-64 ;;
    arm64) triple=aarch64-unknown-linux-gnu compiler=aarch64-linux-gnu-gcc machine=AArch64 ;;
    *) usage ;;
esac
[ -z "$test" ] || [ "$arch" = "$here" ] || { echo "image: --test runs only images for this machine's architecture" >&2; exit 2; }

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")/image profile=release
options=(build --locked --package kube-fanout --package kube-fanout-top --bins --target "$triple")
if [ -n "$link" ]; then
    # Build scripts and procedural macros are those of other unoptimised builds.
    target=${target%/image} profile=debug
    export CARGO_PROFILE_DEV_DEBUG=false
else
    options+=(--release)
fi
variable=${triple//-/_}
export CARGO_TARGET_DIR=$target CARGO_PROFILE_RELEASE_DEBUG=line-tables-only CARGO_PROFILE_RELEASE_STRIP=none
# Only for the program: with --target, Cargo does not use them for build scripts. Of several prefixes that fit, the last one counts.
rustflags="-C target-feature=+crt-static" cflags=
for folder in "$PWD=/src" "${CARGO_HOME:-$HOME/.cargo}=/cargo" "$target=/target"; do
    rustflags+=" --remap-path-prefix=$folder" cflags+=" -ffile-prefix-map=$folder"
done
export "CARGO_TARGET_${variable^^}_RUSTFLAGS=$rustflags" "CFLAGS_$variable=${cflags# }"
if [ "$arch" != "$here" ]; then
    needs "$compiler" "gcc-${compiler%%-*}-linux-gnu and libc6-dev-$arch-cross"
    export "CARGO_TARGET_${variable^^}_LINKER=$compiler" "CC_$variable=$compiler"
fi
if [ ! -d "$(rustc --print target-libdir --target "$triple")" ] && ! rustup target add "$triple" >/dev/null 2>&1; then
    echo "image: Rust's library for $triple is not installed and cannot be downloaded; compiling it from rust-src" >&2
    [ -d "$(rustc --print sysroot)/lib/rustlib/src" ] || { echo "image: it is missing: rustup component add rust-src" >&2; exit 1; }
    # Cargo offers this only to nightly toolchains; the library is the stable one of this toolchain all the same.
    export RUSTC_BOOTSTRAP=1
    options+=(-Z build-std=std,panic_unwind)
fi
KUBE_FANOUT_COMMIT=${KUBE_FANOUT_COMMIT:-$(git describe --always --dirty --abbrev=12 --exclude '*' 2>/dev/null || true)}
export KUBE_FANOUT_COMMIT
cargo "${options[@]}" >&2
built=$target/$triple/$profile/kube-fanout
for one in "$built" "$built-top"; do
    if readelf --program-headers "$one" | grep -q INTERP; then
        echo "image: $one is not linked statically" >&2
        exit 1
    fi
    if ! readelf --file-header "$one" | grep -q "Machine:.*$machine"; then
        echo "image: $one is not for $arch" >&2
        exit 1
    fi
done
if [ -n "$link" ]; then
    echo "$built"
    exit
fi

# Cargo keeps its own, from which this can be repeated.
objcopy=objcopy
[ "$arch" = "$here" ] || objcopy=${compiler%gcc}objcopy
stripped=$target/$arch
mkdir -p "$stripped"
for one in "$built" "$built-top"; do
    symbols=$stripped/$(basename "$one").debug
    "$objcopy" --only-keep-debug "$one" "$symbols"
    "$objcopy" --strip-all --add-gnu-debuglink="$symbols" "$one" "${symbols%.debug}"
    chmod 0644 "$symbols"
done
built=$stripped/kube-fanout
if [ -n "$program" ]; then
    echo "$built"
    exit
fi

needs buildah buildah
output=$(realpath -m "${output:-$target/kube-fanout-$arch.tar}")
# A storage of its own; the driver vfs works in containers and on every file system.
storage=$(mktemp -d)
trap 'rm -rf "$storage"' EXIT
image() { buildah --root "$storage/root" --runroot "$storage/run" --storage-driver vfs "$@"; }
container=$(image from --arch "$arch" scratch)
image copy --quiet --chmod 0755 "$container" "$built" "$built-top" /usr/local/bin/ >/dev/null
# 65532 is the user of the manifests. 8443: clients; 9090: metrics and health.
image config --arch "$arch" --os linux --user 65532:65532 --port 8443 --port 9090 \
    --entrypoint '["/usr/local/bin/kube-fanout"]' --cmd 'serve --in-cluster' \
    --label org.opencontainers.image.title=kube-fanout --label "org.opencontainers.image.version=${tag##*:}" \
    --label "org.opencontainers.image.revision=$KUBE_FANOUT_COMMIT" --label org.opencontainers.image.licenses=Apache-2.0 "$container"
mkdir -p "$(dirname "$output")"
rm -f "$output"
time=$(git log -1 --format=%ct 2>/dev/null || echo 0)
image commit --quiet --timestamp "$time" "$container" "oci-archive:$output:$tag" >/dev/null
echo "$output: $(stat -c %s "$output") bytes, $tag for $arch"

CARGO_TARGET_DIR=$(dirname "$target") deploy/sbom/sbom.sh --arch "$arch" --program "$built" --program "$built-top" --output "${output%.tar}.cdx.json" --check

if [ -n "$test" ]; then
    needs podman podman
    needs runc runc
    needs python3 python3
    python3 deploy/image/test.py "$output" "$tag"
fi
