#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""join.py IDS VALUES OUT    writes OUT: the tensors of the safetensors file VALUES, and the input `ids` [1, n], such as 1,2,3"""
import json
import struct
import sys

ids = [int(n) for n in sys.argv[1].split(",")]
with open(sys.argv[2], "rb") as file:
    data = file.read()
begin = 8 + struct.unpack_from("<Q", data)[0]
header, numbers = json.loads(data[8:begin]), data[begin:]
header["ids"] = {"dtype": "I32", "shape": [1, len(ids)], "data_offsets": [len(numbers), len(numbers) + 4 * len(ids)]}
text = json.dumps(header).encode()
with open(sys.argv[3], "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + numbers + struct.pack(f"<{len(ids)}i", *ids))
