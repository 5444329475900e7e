#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""draw.py FILE NAME:SHAPE ..    writes a safetensors file of random numbers, such as draw.py a.safetensors w:3x4 b:4"""
import json
import random
import struct
import sys

header, data = {}, b""
for word in sys.argv[2:]:
    name, shape = word.split(":")
    shape = [int(n) for n in shape.split("x")]
    count = 1
    for n in shape:
        count *= n
    draw = random.Random(name)
    begin = len(data)
    data += struct.pack(f"<{count}f", *(draw.uniform(-0.2, 0.2) for _ in range(count)))
    header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
text = json.dumps(header).encode()
with open(sys.argv[1], "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + data)
