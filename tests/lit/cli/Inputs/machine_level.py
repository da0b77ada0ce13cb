"""What hadal machine --cpu-level baseline measures, beside what it measures of the whole machine.

    machine_level.py ALL.json LEVEL.json"""
import json
import sys

whole, level = (json.load(open(path)) for path in sys.argv[1:])
assert "level" not in whole and level["level"] == "baseline", level
for of_the_cpu in ("features", "levels", "found", "cpus"):
    assert whole[of_the_cpu] == level[of_the_cpu], of_the_cpu
assert level["lanes"] == 4 and level["assumed"]["l2"] == 256 << 10, level
assert not {"bf16 dots", "int8 dots", "bf16 tile products"} & set(level["limits"]), level["limits"]
assert "bf16_dots" not in level["rates"] and "matrix_unit" not in level["rates"], level["rates"]
clock = level["clock"]
assert "moved" in clock or set(clock["share"]) == {"scalar", "4"} and set(clock["throttled"]) <= {"baseline"}, clock
assert level["reached"] or "not_reached" in level, level
# sums of four f32 without fused multiply-adds: far from what wider vectors do, however busy the machine is
if whole["lanes"] > 4:
    assert level["limits"]["f32 multiply-add"] < 0.75 * whole["limits"]["f32 multiply-add"], (level["limits"], whole["limits"])
