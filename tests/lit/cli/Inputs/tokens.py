"""tokens.py DIR: three .npy files of tokens, of which one is good."""
import struct
import sys


def write(name, descr, data, n):
    header = repr({"descr": descr, "fortran_order": False, "shape": (n,)})
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    with open(sys.argv[1] + "/" + name, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)


write("i64.npy", "<i8", struct.pack("<2q", 1, 255), 2)
write("huge.npy", "<i8", struct.pack("<2q", 1, 1 << 62), 2)
write("bool.npy", "|b1", b"\x00\x01", 2)
