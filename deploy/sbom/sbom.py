#!/usr/bin/env python3
"""Writes a bill of materials of the programs of a release, as CycloneDX 1.6, and checks it. sbom.sh installs what this needs.

    sbom.py --target TRIPLE [--output FILE] [--program FILE]... [--libc NAME=VERSION] [--commit COMMIT] [--check]

Cargo says which packages the programs contain on that platform. Those that only build them (build scripts, procedural macros) are listed with
the scope `excluded`. --libc names the C library that a static program contains. The same commit gives the same file.

--check compares the bill with Cargo.lock, with Cargo's plan of the build, and with the names of source files in the programs.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib
import uuid

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The bill is that of the first.
PROGRAMS = ("kube-fanout", "kube-fanout-top")
PACKAGES = [f"--package={program}" for program in PROGRAMS]
# The namespace of the document's serial number, which is derived from its content.
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://kube-fanout.dev/sbom")


def cargo(*arguments, environment=None):
    done = subprocess.run(["cargo", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"sbom: cargo {' '.join(arguments)}: {done.stderr}")
    return done.stdout


def graph(target, edges):
    """Each package of the programs, as (name, version), with those that it depends on."""
    tree = cargo("tree", "--locked", *PACKAGES, f"--target={target}", f"--edges={edges}", "--prefix=depth")
    found, path = {}, []
    # A blank line divides the trees of two programs.
    for line in filter(None, tree.splitlines()):
        row = re.match(r"(\d+)(\S+) v(\S+)", line)
        depth, package = int(row[1]), (row[2], row[3])
        path[depth:] = [package]
        found.setdefault(package, set())
        if depth:
            found[path[depth - 1]].add(package)
    return found


def details(target):
    packages = json.loads(cargo("metadata", "--locked", "--format-version=1", f"--filter-platform={target}"))["packages"]
    return {(package["name"], package["version"]): package for package in packages}


def checksums():
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    return {(package["name"], package["version"]): package.get("checksum") for package in lock["package"]}


def licence(text):
    # Crates of the time before SPDX expressions separate alternatives by a slash.
    return [LicenseFactory().make_from_string(text.replace("/", " OR "))] if text else []


def crate(package, about, checksum, scope):
    name, version = package
    address = PackageURL("cargo", name=name, version=version)
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        purl=address,
        bom_ref=address.to_string(),
        scope=scope,
        description=" ".join((about["description"] or "").split()) or None,
        licenses=licence(about["license"]),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=checksum)] if checksum else [],
    )


def bill(arguments):
    runtime = graph(arguments.target, "normal,no-proc-macro")
    every = graph(arguments.target, "normal,build")
    known, sums = details(arguments.target), checksums()
    bom = Bom()
    components = {}
    for package in sorted(every):
        scope = ComponentScope.REQUIRED if package in runtime else ComponentScope.EXCLUDED
        components[package] = crate(package, known[package], sums.get(package), scope)
    programs = [components[next(package for package in every if package[0] == name)] for name in PROGRAMS]
    for program in programs:
        program.type = ComponentType.APPLICATION
    root = programs[0]
    root.scope = None
    root.properties.add(Property(name="kube-fanout:target", value=arguments.target))
    if arguments.commit:
        root.properties.add(Property(name="kube-fanout:commit", value=arguments.commit))
    bom.metadata.component = root
    rust = re.match(r"rustc (\S+)", subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True).stdout)[1]
    parts = [("rust-std", rust, "MIT OR Apache-2.0")]
    if arguments.libc:
        parts.append((*arguments.libc.split("=", 1), "LGPL-2.1-or-later"))
    linked = [
        Component(name=name, version=version, type=ComponentType.LIBRARY, bom_ref=f"{name}@{version}", scope=ComponentScope.REQUIRED, licenses=licence(terms))
        for name, version, terms in parts
    ]
    bom.components = [component for component in components.values() if component is not root] + linked
    for package, component in components.items():
        needed = [components[other] for other in every[package]]
        bom.register_dependency(component, needed + linked if component is root else needed)
    bom.metadata.timestamp = datetime.datetime.fromtimestamp(arguments.time, datetime.timezone.utc)
    bom.serial_number = uuid.UUID(int=0)
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string()
    bom.serial_number = uuid.uuid5(NAMESPACE, text)
    return make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)


# The check


def units(target):
    """The packages that Cargo would compile into the programs. Cargo shows its plan only to nightly toolchains, or if it is told that this is
    one; nothing is built."""
    command = ["build", "--locked", *PACKAGES, "--bins", f"--target={target}", "--unit-graph", "-Zunstable-options"]
    plan = json.loads(cargo(*command, environment={**os.environ, "RUSTC_BOOTSTRAP": "1"}))
    keys = [unit["pkg_id"] for unit in plan["units"] if unit["platform"] and unit["mode"] == "build"]
    # An identifier omits the name of a package whose folder has the same name.
    names = {package["id"]: name for name, package in details(target).items()}
    return {names[key] for key in keys}


def compiled_in(program):
    """The packages whose source files the program names, in messages of panics."""
    names = re.findall(rb"/registry/src/[^/\0]+/([A-Za-z0-9_.+-]+?)-(\d+\.\d+\.\d+[A-Za-z0-9.+-]*)/", pathlib.Path(program).read_bytes())
    return {(name.decode(), version.decode()) for name, version in names}


def faults(text, arguments):
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if error:
        yield f"not valid: {error}"
    document = json.loads(text)
    listed = {(part["name"], part["version"]): part for part in document["components"]}
    runtime = {package for package, part in listed.items() if part.get("scope") == "required"}
    own = (document["metadata"]["component"]["name"], document["metadata"]["component"]["version"])
    planned = units(arguments.target)
    for name, version in sorted(planned - runtime - {own}):
        yield f"{name} {version} is part of the program, and not in the bill"
    for name, version in sorted({package for package in runtime if "purl" in listed[package]} - planned):
        yield f"{name} {version} is in the bill, and not part of the program"
    sums = checksums()
    for package, part in sorted(listed.items()):
        if "purl" not in part:
            continue
        found = next((known["content"] for known in part.get("hashes", [])), None)
        if package not in sums:
            yield f"{' '.join(package)} is not in Cargo.lock"
        elif found != sums[package]:
            yield f"{' '.join(package)} has another checksum than in Cargo.lock"
        if not part.get("licenses"):
            yield f"{' '.join(package)} has no licence"
    for program in arguments.program:
        compiled = compiled_in(program)
        if not compiled:
            yield f"{program} names no source files"
        for name, version in sorted(compiled - runtime):
            yield f"{name} {version} is compiled into {program}, and not in the bill"


def check(text, arguments):
    """The faults of the bill, and whether the check can fail."""
    found = list(faults(text, arguments))
    planted = json.loads(text)
    lost = next(part for part in planted["components"] if part["name"] == "tokio")
    planted["components"].remove(lost)
    planted["metadata"]["component"]["type"] = "programme"
    expected = ["not valid: ", "tokio "]
    said = list(faults(json.dumps(planted), arguments))
    if not all(any(line.startswith(start) for line in said) for start in expected):
        found.append(f"a bill without tokio is accepted: {said}")
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", required=True)
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--program", action="append", default=[])
    parser.add_argument("--libc")
    parser.add_argument("--commit")
    parser.add_argument("--time", type=int, default=0, help="seconds since 1970, that of the commit")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    text = bill(arguments)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(text + "\n")
    parts = json.loads(text)["components"]
    runtime = sum(part.get("scope") == "required" for part in parts)
    print(f"sbom: {arguments.output or 'nothing written'}: {runtime} packages in the programs, {len(parts) - runtime} that build them")
    found = check(text, arguments) if arguments.check else []
    for fault in found:
        print(f"FAIL {fault}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
