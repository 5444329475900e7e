# SPDX-License-Identifier: Apache-2.0
"""
call.py LIBRARY HEADER IN.safetensors OUT.safetensors DIM=VALUE...: calls the entry `run` of a compiled model as
its header declares it, with one worker.
"""
import ctypes
import re
import sys

import tensor

FIELD = re.compile(r"^\t(const )?(\w+) \*?(\w+);(?: /\* (\w+) \[([^\]]*)\])?", re.M)
CONFIG = ["struct_size", "weights", "weights_bytes", "state", "state_bytes", "arena", "arena_bytes", "batch", "workers",
          "parallel_for", "yield", "user", "variants", "system0", "system1", "device", "state_is_zero", "ranks"]


def aligned(n):
    memory = ctypes.create_string_buffer(n + 64)
    return memory, (ctypes.addressof(memory) + 63) // 64 * 64


def function(library, name, result, *arguments):
    f = getattr(library, name)
    f.restype, f.argtypes = result, arguments
    return f


def words(values):
    return (ctypes.c_uint64 * max(len(values), 1))(*values)


def checked(status, what):
    if status != 0:
        sys.exit("%s gives the status %d" % (what, status))


def open_model(library, name, header, dims):
    size = function(library, name + "_arena_bytes", ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int64)(words(dims), 1)
    memory, arena = aligned(size)
    room = re.search(r"_CONTEXT_BYTES (\d+)", header).group(1)
    own, context = aligned(int(room))
    config = words([{"struct_size": 8 * len(CONFIG), "arena": arena, "arena_bytes": size, "workers": 1}.get(c, 0)
                    for c in CONFIG])
    checked(function(library, name + "_init", ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(context, config), "init")
    return context, (memory, own)


def main():
    path, header_path, in_path, out_path = sys.argv[1:5]
    sizes = {k: int(v) for k, v in (a.split("=") for a in sys.argv[5:])}
    with open(header_path) as f:
        header = f.read()
    name = re.search(r"struct (\w+)_run_args \{\n(.*?)\n\};", header, re.S)
    fields = FIELD.findall(name.group(2))
    name, inputs, outputs, args, keep = name.group(1), tensor.read(in_path), {}, [], []
    dims = [sizes[field] for _, _, field, dtype, _ in fields if field in sizes]
    for is_input, _, field, dtype, shape in fields:
        if dtype:
            shape = [eval(d.replace("/", "//"), {}, sizes) for d in shape.split(",") if d]
            raw = tensor.to_bytes(inputs[field]) if is_input else bytes(tensor.count(shape) * tensor.BYTES[dtype])
            memory, at = aligned(len(raw))
            ctypes.memmove(at, raw, len(raw))
            keep.append(memory)
            args += [at, tensor.count(shape)]
            if not is_input:
                outputs[field] = (dtype, shape, at, len(raw))
        elif field in sizes:
            args.append(sizes[field])
    library = ctypes.CDLL(path)
    context, own = open_model(library, name, header, dims)
    checked(function(library, name + "_run", ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(context, words(args)), "run")
    tensor.write(out_path, {field: tensor.from_bytes(dtype, shape, ctypes.string_at(at, n))
                            for field, (dtype, shape, at, n) in outputs.items()})


main()
