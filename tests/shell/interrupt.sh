#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# ^C during `tfmc generate` ends the text at the next token: the line ends, -v says how fast it was, and the signal ends
# the command. A command that ignores the signal goes on.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
python3 "$TFMC_SOURCE/tests/support/make_llama.py" "$tmp/long" llama max_position_embeddings=1048576
python3 - "$TFMC" "$tmp/long" "${quick[@]}" <<'PY'
import json, re, signal, subprocess, sys, time
command = [sys.argv[1], "generate", sys.argv[2], *sys.argv[3:], "--tokens=1,5,9", "--ignore-stop", "--print-tokens", "-v"]
def interrupt(action, tokens):
    p = subprocess.Popen(command + ["--max-tokens", str(tokens)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
                         preexec_fn=lambda: signal.signal(signal.SIGINT, action))
    first = b""
    while first.count(b" ") < 5:
        first += p.stdout.read(20)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=100)
    return p.returncode, (first + out).decode(), err.decode()
code, out, err = interrupt(signal.SIG_DFL, 1000000)
assert code == -signal.SIGINT, (code, err)
assert re.fullmatch(r"\d+( \d+)*\n", out) and len(out.split()) < 1000000, out[-80:]
[n] = re.findall(r"; answer (\d+) tokens in ", err) or [err]
assert int(n) == len(out.split()), (n, len(out.split()))
# --json: the line is whole. Until the generation begins the signal ends the command at once, with no line.
for seconds in (1, 2, 4, 8, 16, 32):
    p = subprocess.Popen(command + ["--max-tokens=1000000", "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                         preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    time.sleep(seconds)
    p.send_signal(signal.SIGINT)
    out = p.communicate(timeout=100)[0]
    if out:
        break
assert p.returncode == -signal.SIGINT
result = json.loads(out)
assert result["finish"] == "interrupted" and 0 < len(result["tokens"]) == len(result["token_ms"]) < 1000000
code, out, err = interrupt(signal.SIG_IGN, 3000)
assert code == 0 and len(out.split()) == 3000, (code, len(out.split()), err)
PY
