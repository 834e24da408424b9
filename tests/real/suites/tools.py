"""Programs that tests need and that may be missing."""
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from . import stack as stacks

KUBECTL_OLDEST = (1, 32)


def needed(found, what):
    """FOUND. Without it the test is skipped; with KUBE_FANOUT_REQUIRE=1 it fails."""
    if not found:
        (pytest.fail if os.environ.get("KUBE_FANOUT_REQUIRE") == "1" else pytest.skip)(f"missing: {what}")
    return found


@functools.cache
def kubectl():
    """A kubectl that is new enough, or None. Debian's is fetched if the machine has none."""
    for find in (lambda: os.environ.get("KUBECTL"), lambda: shutil.which("kubectl"), lambda: _printed("kubectl")):
        if (path := find()) and os.access(path, os.X_OK):
            try:
                output = subprocess.run([path, "version", "--client", "-o", "json"], capture_output=True, text=True, timeout=30).stdout
                major, minor = (int(re.match(r"\d+", json.loads(output)["clientVersion"][k]).group()) for k in ("major", "minor"))
            except (ValueError, KeyError, AttributeError, subprocess.TimeoutExpired):
                continue
            if (major, minor) >= KUBECTL_OLDEST:
                return path
    return None


@functools.cache
def client_go():
    """client-go's informers, built if needed, or None."""
    return _printed("informer")


@functools.cache
def node_modules():
    """The folder with the official JavaScript client, or None."""
    return _printed("javascript")


def okhttp():
    """The class path of Debian's OkHttp, or None without it or without a JDK that runs a source file."""
    jars = [Path("/usr/share/java", name) for name in ("okhttp.jar", "okio.jar")]
    return ":".join(map(str, jars)) if shutil.which("javac") and all(jar.exists() for jar in jars) else None


def _printed(verb):
    """The path that real-apiserver.sh prints, or None."""
    done = subprocess.run([str(stacks.SCRIPT), verb], capture_output=True, text=True, timeout=900)
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
    return None if done.returncode else done.stdout.strip().splitlines()[-1]


def informers():
    """The program with this project's informers and kube-rs's, or None."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", stacks.ROOT / "target"))
    found = [path for path in (target / profile / "kube-fanout-informers" for profile in ("release", "debug")) if path.exists()]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


@functools.cache
def integration_tests():
    """The program of tests/it, built if needed, or None without cargo. IT_PROGRAM names one that is built already."""
    if path := os.environ.get("IT_PROGRAM"):
        return path
    if not shutil.which("cargo"):
        return None
    built = subprocess.run(["cargo", "test", "--locked", "--quiet", "--test", "it", "--no-run", "--message-format=json"], cwd=stacks.ROOT, capture_output=True, text=True, timeout=1500)
    programs = [m["executable"] for m in map(json.loads, filter(lambda line: line.startswith("{"), built.stdout.splitlines())) if m.get("executable") and m["target"]["name"] == "it"]
    if built.returncode or not programs:
        raise RuntimeError(f"tests/it cannot be built:\n{built.stderr[-3000:]}")
    return programs[-1]
