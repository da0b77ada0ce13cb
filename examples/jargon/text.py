#!/usr/bin/env python3
"""The text that the model of this folder has learned: the Jargon File, from Debian's package dict-jargon.

    text.py /usr/share/dictd/jargon.dict.dz TRAIN.txt HELDOUT.txt

Quotation marks, dashes and the lines of tables become ASCII, empty lines that follow one another become one, and the last 7936
bytes are held out."""
import gzip
import hashlib
import re
import sys
import unicodedata

DIGEST = "6c8118c277d0b00736d406d4941b77b69932d6ab125f7179ff88fe12939cc19e"  # of version 4.4.7-3.1, unpacked
HELD_OUT = 7936
ASCII = {"“": '"', "”": '"', "‘": "'", "’": "'", "´": "'", "—": "--", "−": "-", "\xad": "", "─": "-", "│": "|", "·": "."}

source, train, heldout = sys.argv[1:]
with gzip.open(source) as f:
    packed = f.read()
assert hashlib.sha256(packed).hexdigest() == DIGEST, "another version of the Jargon File"
text = "".join(ASCII.get(c, "+" if "─" <= c <= "╿" else c) for c in packed.decode("utf-8"))
text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore")
text = re.sub(rb"\n{3,}", b"\n\n", text).strip(b"\n") + b"\n"
for path, part in ((train, text[:-HELD_OUT]), (heldout, text[-HELD_OUT:])):
    with open(path, "wb") as f:
        f.write(part)
