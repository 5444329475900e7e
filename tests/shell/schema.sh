#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tfmc schema: every key and step kind of schema.def is in it, every model of the tree fits it, mistakes do not.
set -euo pipefail
exec python3 - <<'PY'
import glob, json, os, re, subprocess, sys
os.chdir(os.environ["TFMC_SOURCE"])
text = subprocess.check_output([os.environ["TFMC"], "schema"], text=True)
schema = json.loads(text)
failed = []

# Without further tools: each row is there, with its text.
table = re.sub(r"/\*.*?\*/", "", open("frontend/model/schema.def").read(), flags=re.S)
keys = re.findall(r'^KEY\((\w+), (\w+), \w+, (?:"[^"]*"|\w+), "[^"]*", (\w+), "((?:[^"\\]|\\.)*)"\)', table, flags=re.M)
assert len(keys) == len(re.findall(r"^KEY\(", table, flags=re.M)) and len(keys) > 150
kinds = re.findall(r"^STEP\((\w+),", table, flags=re.M)
definitions = schema["definitions"]


def mapping(name):
    found = definitions[name]
    return found["anyOf"][0] if "anyOf" in found else found


for where, key, state, doc in keys:
    homes = [schema] if where == "top" else [mapping(n) for n in (where, "step_" + where) if n in definitions]
    if where == "step":
        own = {k for k, name, _, _ in keys if name == key}
        homes = [mapping("step_" + k) for k in kinds if k not in own]
    for home in homes or [{}]:
        found = home.get("properties", {}).get(key)
        if found is None or not found["description"].endswith(doc.replace('\\"', '"')):
            failed.append(f"{where}.{key} is not in the schema, or without its text")
for kind in kinds:
    if kind not in definitions["step"]["properties"]:
        failed.append(f"step {kind} is not in the schema")

try:
    import jsonschema, yaml
except ImportError as e:
    print("SKIPPED:" if not failed else "\n".join(failed), "no models against the schema,", e)
    sys.exit(1 if failed else 77)


class Loader(yaml.SafeLoader):
    """Plain scalars as YAML 1.2 and editors read them."""


Loader.yaml_implicit_resolvers = {}
for tag, pattern, first in (("null", r"~|null|Null|NULL|", "~nN\0"), ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
                            ("int", r"[-+]?[0-9]+", "-+0123456789"),
                            ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789")):
    Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), [*first.replace("\0", ""), *([""] if tag == "null" else [])])
Loader.add_constructor("tag:yaml.org,2002:float", lambda loader, node: float(node.value))
validator = jsonschema.Draft7Validator(schema)
validator.check_schema(schema)


def mistakes(text):
    return list(validator.iter_errors(yaml.load(text, Loader)))


models = sorted(glob.glob("examples/*/model.yaml") + glob.glob("tests/golden/*/model.yaml") + glob.glob("frontend/presets/*.yaml")
                + glob.glob("tests/text/frontend/*.yaml"))
models = [m for m in models if not re.search(r"presets/(prelude|head_\w+)\.yaml$", m)]
fit = 0
for path in models:
    text = open(path).read()
    if path.startswith("tests/text") and ("%not" in text or "\ntfmc:" not in text):
        continue
    fit += 1
    for e in mistakes(text):
        failed.append(f"{path}: {list(e.absolute_path)}: {e.message[:200]}")

good = open("examples/embed/model.yaml").read()
for what, old, new in (
        ("a key of the file", "params:", "parms:"),
        ("a key of a step", "rope: {theta", "rop: {theta"),
        ("a key of a mapping in a step", "theta: 100", "thet: 100"),
        ("a kind of step", "- norm: {id: final}", "- norms: {id: final}"),
        ("a kind of step in a repeat", "[norm, ffn]", "[norm, fnn]"),
        ("a fraction for an int", "vocab: vocab,", "vocab: 1.5,"),
        ("a list for an int", "dim: d}", "dim: [64]}"),
        ("a word for a list of keys", "weights:\n  files: [model.safetensors]", "weights:\n  map: identity"),
        ("no name", "name: embed\n", ""),
        ("an empty name", "name: embed\n", "name:\n"),
        ("an input without type", ", dtype: i32, lengths: lengths}", ", lengths: lengths}"),
        ("a number for a bool", "{id: out, out: out}", "{id: out, out: out, bias: 1}"),
        ("a step of a weight source", '"final.{w}": "final.{w}"', '"final.{w}": {from: a, tranpose: true}'),
        ("a check", "rtol: 1e-4", "rtoll: 1e-4"),
        ("a name with a blank", "name: embed", "name: my model")):
    bad = good.replace(old, new)
    if bad == good or not mistakes(bad):
        failed.append(f"the schema accepts a mistake: {what}")
print("\n".join(failed) or f"{len(keys)} keys, {len(kinds)} kinds, {fit} models")
sys.exit(bool(failed))
PY
