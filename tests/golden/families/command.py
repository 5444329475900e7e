# SPDX-License-Identifier: Apache-2.0
"""The command under test, whose path is in TFMC."""
import os
import subprocess
import tempfile


def call(*args, timeout=None):
    """Runs it within the scratch folder, where a failing pass leaves its reproducer; messages are text."""
    return subprocess.run([os.path.abspath(os.environ["TFMC"]), *args], capture_output=True, text=True, errors="replace", cwd=tempfile.gettempdir(), timeout=timeout)
