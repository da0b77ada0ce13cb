"""Tensors of .safetensors files, as tests read and write them: {name: (dtype, shape, bytes)}, in the order of the file."""
import array
import json
import struct

KINDS = {"F32": "f", "F64": "d", "I32": "i", "I64": "q"}  # of array.array


def read(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items()}


def read_numbers(path):
    """{name: array of numbers}, of a file that has types of KINDS alone."""
    return {name: array.array(KINDS[dtype], data) for name, (dtype, _, data) in read(path).items()}


def write(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))
