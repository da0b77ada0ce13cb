"""Parses pictures as XML, checks that all they draw lies inside, and prints title and panels."""
import re
import sys
import xml.etree.ElementTree as xml

NS = "{http://www.w3.org/2000/svg}"
for path in sys.argv[1:]:
    root = xml.parse(path).getroot()
    width, height = float(root.get("width")), float(root.get("height"))
    texts = root.findall(NS + "text")
    for e in texts:
        assert e.text and "nan" not in e.text.lower(), e.text
        assert 0 <= float(e.get("x")) <= width and 0 <= float(e.get("y")) <= height, e.text
    for e in root.findall(NS + "path"):
        for x, y in re.findall(r"M([\d.]+) ([\d.]+)", e.get("d")):
            assert 0 <= float(x) <= width and 0 <= float(y) <= height, (x, y)
        assert "nan" not in e.get("d")
    heads = [e.text for e in texts if e.get("class") in ("t", "p")]
    print(path.split("/")[-1] + ":", " | ".join(heads))
