"""grouped.py TEXT ALL: each line of ALL stands in TEXT, or is counted below a line that differs in numbers alone."""
import collections
import re
import sys

text, every = (open(path).read().splitlines() for path in sys.argv[1:])


def words(line):
    return re.sub(r"\d+", "#", re.sub(r"^\S+:\d+:\d+: | \[\S+\]$", "", line))


counted = collections.Counter()
for line in text:
    more = re.fullmatch(r"  and (\d+) more like it \(--remarks=all\)", line)
    assert more or line in every, line
    last = last if more else words(line)
    counted[last] += int(more[1]) if more else 1
assert counted == collections.Counter(map(words, every)), counted - collections.Counter(map(words, every))
assert len(text) < len(every) / 2
