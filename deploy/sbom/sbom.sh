#!/usr/bin/env bash
# Writes a bill of materials of the programs, as CycloneDX 1.6: which packages, in which versions, under which licences.
#
#   sbom.sh [--arch amd64|arm64] [--output FILE] [--program FILE]... [--check]
#
# --program names a built program, whose C library is listed if it is linked statically; --check compares the bill with Cargo.lock, and
# with the programs. image.sh calls this with both. Needs python3 3.11 with venv; the library that writes the format comes from PyPI.
set -euo pipefail
cd "$(dirname "$0")/../.."

PACKAGE='cyclonedx-python-lib[json-validation]==11.12.0'

case "$(uname -m)" in
    x86_64) arch=amd64 ;;
    aarch64) arch=arm64 ;;
    *) arch= ;;
esac
output= program= options=()
usage() { sed -n '/^#   sbom.sh/s/^# *//p' "$0" >&2; exit 2; }
while [ $# -gt 0 ]; do
    case "$1" in
        --program)
            [ $# -ge 2 ] || usage
            program=$2
            options+=(--program "$2")
            shift 2
            ;;
        --arch | --output)
            [ $# -ge 2 ] || usage
            declare "${1#--}=$2"
            shift 2
            ;;
        --check) options+=(--check); shift ;;
        *) usage ;;
    esac
done
case "$arch" in
    amd64) triple=x86_64-unknown-linux-gnu compiler=cc ;;
    arm64) triple=aarch64-unknown-linux-gnu compiler=aarch64-linux-gnu-gcc ;;
    *) usage ;;
esac
[ "$(uname -m)" != aarch64 ] || compiler=cc

built=$(realpath -m "${CARGO_TARGET_DIR:-target}")
venv=$built/sbom
if [ "$(cat "$venv/installed" 2>/dev/null)" != "$PACKAGE" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-input "$PACKAGE" </dev/null
    echo "$PACKAGE" >"$venv/installed"
fi

if [ -n "$program" ]; then
    # The Debian package of the archive that was linked, where there is one.
    archive=$(realpath "$("$compiler" -print-file-name=libc.a)")
    if owner=$(dpkg-query --search "$archive" 2>/dev/null) && ! readelf --program-headers "$program" | grep -q INTERP; then
        options+=(--libc "glibc=$(dpkg-query --show --showformat '${Version}' "${owner%: *}")")
    fi
fi
commit=${KUBE_FANOUT_COMMIT:-$(git describe --always --dirty --abbrev=12 --exclude '*' 2>/dev/null || true)}
"$venv/bin/python" deploy/sbom/sbom.py --target "$triple" --output "${output:-$built/kube-fanout-$arch.cdx.json}" --commit "$commit" \
    --time "$(git log -1 --format=%ct 2>/dev/null || echo 0)" "${options[@]}"
