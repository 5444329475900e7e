#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tfmc watch: one line for each save of the model, of a document that it is based on, of its weights, or of the tensors of
# its checks; errors as compile prints them, object untouched; differences from the last result without errors; ^C is the regular end.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cp "$TFMC_SOURCE"/examples/embed/{model.safetensors,cases.safetensors} "$tmp"
cp "$TFMC_SOURCE/examples/embed/model.yaml" "$tmp/embed.yaml"
cd "$tmp"
python3 - "$TFMC" <<'PY'
import os, re, signal, subprocess, sys

tfmc, options = sys.argv[1], ["-O0", "--progress=never"]
embed = open("embed.yaml").read()

def save(name, text):
    """As editors do: a new file is renamed."""
    with open("saved", "w") as f:
        f.write(text)
    os.rename("saved", name)

def start(*arguments):
    open("messages", "w").close()
    return subprocess.Popen([tfmc, "watch", *arguments, *options], stdout=subprocess.PIPE, stderr=open("messages", "a"),
                            text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))

def result():
    """The next line without time of day and seconds, and the messages since the last one."""
    line = watch.stdout.readline()
    found = re.fullmatch(r"\d\d:\d\d:\d\d (.*), \d+\.\d s(.*)\n", line)
    assert found, (line, open("messages").read())
    messages = open("messages").read()
    os.truncate("messages", 0)
    return found[1] + found[2], messages

size = r"[\d.]+ (?:bytes|kB|MB)"

def expect(pattern, line):
    assert re.fullmatch(pattern, line), (pattern, line)

save("model.yaml", "tfmc: 1\nbase: embed.yaml\n")
watch = start("model.yaml", "-o", "out.o")
line, messages = result()
expect(rf"ok: \d+ groups, {size} of weights, {size} of arena", line)
assert messages == "", messages
before = open("out.o", "rb").read()
sizes = line

# A mistake in the base: the messages of compile.
save("embed.yaml", embed.replace("count: layers", "count: leyers"))
line, messages = result()
expect("failed, 1 error", line)
same = subprocess.run([tfmc, "model.yaml", "-o", "other.o", *options], capture_output=True, text=True)
assert same.returncode == 1 and "embed.yaml:15" in same.stderr and messages == same.stderr, (messages, same.stderr)
assert open("out.o", "rb").read() == before

# Mended, with longer sequences: compared with the last result without errors.
save("embed.yaml", embed.replace("longest: 20", "longest: 30"))
line, messages = result()
expect(re.escape(sizes.split(",")[0]) + rf", {size} of weights \(\+{size}\), {size} of arena \(\+{size}\)", line)
assert messages == "" and open("out.o", "rb").read() != before

# Weights, or tensors of checks, that are saved again: nothing differs.
for name in "model.safetensors", "cases.safetensors":
    os.utime(name)
    line, messages = result()
    expect(rf"ok: \d+ groups, {size} of weights, {size} of arena", line)

# Another result than the checks of the file expect.
save("embed.yaml", embed.replace("  - normalize: {p: 2}\n", ""))
line, messages = result()
expect(r"failed, \d errors?", line)
assert "embed.yaml" in messages and "E50" in messages, messages

# The base is not read any more, and not watched: the line is that of the second save.
save("model.yaml", embed)
line, messages = result()
expect(r"ok: .*", line)
save("embed.yaml", "nonsense")
save("model.yaml", embed + "\n")
line, messages = result()
expect(re.escape(sizes), line)

watch.send_signal(signal.SIGINT)
rest, _ = watch.communicate(timeout=100)
assert watch.returncode == 0 and rest == "", (watch.returncode, rest)

# Nothing is written without an output; ^C before the first result; what cannot be mended by a save.
os.remove("out.o")
watch = start("model.yaml")
expect(r"ok: .*", result()[0])
watch.send_signal(signal.SIGINT)
assert watch.wait() == 0 and not [f for f in os.listdir() if f.startswith("model.") and f.endswith((".o", ".h"))]
watch = start("model.yaml")
watch.send_signal(signal.SIGINT)
assert watch.wait() in (0, -signal.SIGINT) # the latter: before it has begun
watch = start("absent.yaml")
assert watch.wait() == 3 and "absent.yaml" in open("messages").read()
watch = start("model.yaml", "-MF", "rule.d", "-o", "out.o")
assert watch.wait() == 2 and "-MF FILE requires -MD" in open("messages").read()
PY
