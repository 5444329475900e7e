# SPDX-License-Identifier: Apache-2.0
"""
abi.py OUT.py: the declarations of the public headers for cffi (out-of-line ABI mode), as the C preprocessor ($CC) leaves
them, so that no structure is written twice. Functions with a body, which only C can call, are left out.
"""
import os
import re
import subprocess
import sys

import cffi  # type: ignore[import-untyped,unused-ignore]

HEADERS = ("../abi.h", "../tfmc_rt.h", "../tokenizer/tfmc_tokenizer.h", "object.h")
# Macros that Python uses, as enumerators.
CONSTANTS = """
enum python_constants { TOKENIZE_SPECIAL = TFMC_TOKENIZE_SPECIAL, DETOKENIZE_AFTER = TFMC_DETOKENIZE_AFTER,
                        DETOKENIZE_KEEP = TFMC_DETOKENIZE_KEEP };
"""


def declarations() -> str:
    here, text = os.path.dirname(os.path.abspath(__file__)), ""
    for header in HEADERS:
        with open(os.path.join(here, header), encoding="utf-8") as f:
            text += re.sub(r"^#include.*", "", f.read(), flags=re.M)
    compiler = os.environ.get("CC", "cc").split()
    text = subprocess.run([*compiler, "-E", "-P", "-x", "c", "-"], input=text + CONSTANTS, text=True, check=True,
                          stdout=subprocess.PIPE).stdout
    return re.sub(r"^static inline .*?^}$", "", text, flags=re.S | re.M)


def main() -> None:
    ffi = cffi.FFI()
    ffi.cdef(declarations())
    ffi.set_source("_abi", None)
    ffi.emit_python_code(sys.argv[1])


main()
