# SPDX-License-Identifier: Apache-2.0
"""Greedy steps of an imported decoder, by the entries prefill and step of its object (steps.c)."""
import os
import subprocess

import numpy


def in_object(tfmc, path, prompt, count, folder):
    """Logits [1 + count, V] behind the prompt and behind each step."""
    made = subprocess.run([tfmc, path, "--dim=batch=1..4,seq=1..64", "--name=m", "-o", f"{folder}/m.o"], capture_output=True,
                          text=True)
    if made.returncode:
        raise RuntimeError(made.stderr)
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "steps.c")
    subprocess.run([os.environ.get("CC", "cc"), "-std=c17", "-I", folder, program, f"{folder}/m.o", "-lm", "-o",
                    f"{folder}/steps"], check=True)
    ran = subprocess.run([f"{folder}/steps", str(count), *map(str, prompt)], check=True, capture_output=True, text=True)
    return numpy.array([[float(x) for x in line.split()] for line in ran.stdout.splitlines()])
