"""set_weight.py IN OUT NAME INDEX NUMBER: a copy of a safetensors file with one f32 element changed."""
import json
import struct
import sys

source, target, name, index, number = sys.argv[1:]
with open(source, "rb") as f:
    content = bytearray(f.read())
(n,) = struct.unpack_from("<Q", content)
begin = 8 + n + json.loads(content[8 : 8 + n])[name]["data_offsets"][0]
struct.pack_into("<f", content, begin + 4 * int(index), float(number))
with open(target, "wb") as f:
    f.write(content)
