#!/usr/bin/env python3
"""manifest.py CARGO_TOML SOURCES: prints the manifest of a crate with these sources and those dependencies of CARGO_TOML that they use."""
import pathlib
import re
import sys
import tomllib

manifest = tomllib.loads(pathlib.Path(sys.argv[1]).read_text())
text = "\n".join(file.read_text() for file in pathlib.Path(sys.argv[2]).rglob("*.rs"))


def value(spec):
    if isinstance(spec, str):
        return f'"{spec}"'
    parts = {key: part for key, part in spec.items() if key != "optional"}
    return "{ " + ", ".join(f"{key} = {literal(part)}" for key, part in parts.items()) + " }"


def literal(part):
    if isinstance(part, bool):
        return str(part).lower()
    return "[" + ", ".join(f'"{one}"' for one in part) + "]" if isinstance(part, list) else f'"{part}"'


print(f'''[package]
name = "kube-fanout-core"
version = "0.0.0"
edition = "{manifest["package"]["edition"]}"

[workspace]

[lints.rust]
unexpected_cfgs = "allow"
''')
for table in ("dependencies", "dev-dependencies"):
    print(f"[{table}]")
    for name, spec in manifest[table].items():
        if re.search(rf"\b{name.replace('-', '_')}::", text):
            print(f"{name} = {value(spec)}")
    print()
