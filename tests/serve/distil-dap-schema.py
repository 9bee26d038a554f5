#!/usr/bin/env python3
"""Distils the published schema of the Debug Adapter Protocol to what an adapter sends.

    pip download --no-deps debugpy==1.8.22
    unzip -p debugpy-*.whl '*/debugProtocol.json' |
        tests/serve/distil-dap-schema.py >tests/common/dap_schema.json

Left out are descriptions, and what only requests use. Each definition is a line.
"""

import json
import sys

DROPPED = ("description", "title", "enumDescriptions", "_enum", "$schema")


def stripped(schema):
    """The schema without texts. `_enum` lists values of which others are allowed, too."""
    if isinstance(schema, list):
        return [stripped(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for key, value in schema.items():
        if key == "properties":
            # Properties may have the names of what is dropped.
            kept[key] = {name: stripped(one) for name, one in value.items()}
        elif key not in DROPPED:
            kept[key] = stripped(value)
    return kept


def references(schema):
    """The names of the definitions that a schema uses."""
    if isinstance(schema, list):
        for one in schema:
            yield from references(one)
    elif isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref":
                yield value.rsplit("/", 1)[1]
            else:
                yield from references(value)


def main():
    definitions = json.load(sys.stdin)["definitions"]
    wanted = [name for name in definitions if name.endswith(("Response", "Event"))]
    kept = {}
    while wanted:
        name = wanted.pop()
        if name not in kept:
            kept[name] = stripped(definitions[name])
            wanted.extend(references(kept[name]))
    lines = [
        f"{json.dumps(name)}: {json.dumps(kept[name], sort_keys=True)}" for name in sorted(kept)
    ]
    print("{\n" + ",\n".join(lines) + "\n}")


main()
