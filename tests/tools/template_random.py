#!/usr/bin/env python3
"""Compares what Hadal and jinja2, set up by transformers, make of drawn templates.

    tests/tools/template_random.py build/release/lib/libhadaltext.so SEED SECONDS"""
import os
import random
import sys
import tempfile
import time
import warnings

import transformers.utils.chat_template_utils as transformers_templates
from chat_snippets import VARIABLES
from compare_templates import Library
from make_templates import Clock, render

NAMES = "n x s e l d none t w lines messages messages[0] messages[1].tool_calls undef m.role".split()
LITERALS = ["1", "0", "-1", "2.5", '"a"', '"ab"', '" "', '""', "[]", '[1,"a"]', "{}", '{"a":1}', "(1,2)", "true", "none", "1e3", '"%s"']
FILTERS = """trim upper lower length list first last join(",") join default("z") default("z",true) string int float tojson
    tojson(indent=2) replace("a","b") reverse reverse|list sort unique|list sum min max abs round round(1) title capitalize
    map("string")|list map("upper")|join select|list reject("none")|list selectattr("role")|list map(attribute="role")|list items|list
    dictsort indent(2) wordcount batch(2)|list""".split()
TESTS = """defined undefined none string mapping sequence iterable number integer float boolean true false odd even in\u00a0[1,"a"] eq\u00a01
    ne\u00a0"a" gt\u00a01 lt\u00a03 divisibleby\u00a02 callable lower upper""".split(" ")
METHODS = """strip() split() split(",") upper() startswith("a") endswith("f") replace("a","") items()|list keys()|list get("a")
    get("zz","d") find("c") count("a") title() splitlines() rstrip("f") lstrip() index("a") partition("b") rsplit("b",1) isdigit()
    join(["p","q"]) zfill(9) center(12,"*") removeprefix("ab") swapcase() rfind("e")""".split()
OPERATORS = "+ - * / // % ~ == != < > <= >= in not\u00a0in and or".split(" ")
INDICES = ["0", "-1", "1:", "::-1", "::2", ":-1", '"a"', '"role"', "1", "2:0:-1", "-2:"]


class Drawer:
    def __init__(self, seed):
        self.draw = random.Random(seed)

    def one(self, *choices):
        return self.draw.choice(choices).strip().replace("\u00a0", " ")

    def expression(self, depth):
        kind = self.draw.random() if depth else 0
        inner = lambda: self.expression(depth - 1)
        if kind < 0.18:
            return self.one(*NAMES, *NAMES, *LITERALS)
        if kind < 0.40:
            return f"({inner()} {self.one(*OPERATORS)} {inner()})"
        if kind < 0.60:
            return f"({inner()})|{self.one(*FILTERS)}"
        if kind < 0.70:
            return f"({inner()} is {self.one('', 'not')} {self.one(*TESTS)})"
        if kind < 0.80:
            return f"({inner()}).{self.one(*METHODS)}"
        if kind < 0.88:
            return f"({inner()})[{self.one(*INDICES)}]"
        return f"({inner()} if {inner()} else {inner()})" if kind < 0.95 else f"(not {inner()})"

    def statement(self, depth):
        kind, dash, value = self.draw.random() if depth else 0, self.one("", "-"), self.expression(2)
        if kind < 0.3:
            return "{{" + f"{dash} {value} {self.one('', '-')}" + "}}"
        if kind < 0.4:
            return self.draw.choice(["\n", "  ", "x", " \n  ", "{# c #}", "{#- c -#}\n"])
        body = self.block(depth - 1)
        if kind < 0.6:
            return f"{{%{dash} if {value} %}}{body}{{% else {dash}%}}{self.block(depth - 1)}{{% endif %}}"
        if kind < 0.8:
            name, test = self.one("i", "m", "a, b"), self.one("", "if i", "")
            shown = self.one("i", "m", "loop.index", "loop.last", "loop.length", "loop.previtem")
            return f"{{% for {name} in {value} {test} {dash}%}}{{{{ {shown} }}}}{body}{{%- endfor %}}"
        if kind < 0.95:
            return f"{{%- set {self.one('v', 'n', 's', 'm')} = {value} %}}"
        return f"{{% set v %}}{body}{{% endset %}}{{{{ v }}}}"

    def block(self, depth):
        return "".join(self.statement(depth) for _ in range(self.draw.randint(1, 3)))


def is_known(mine, theirs, message):
    """Constants are folded by jinja2, which takes their errors for undefined values; addresses, and numbers of any size."""
    shown = theirs if isinstance(theirs, str) else ""
    return any(w in message for w in ("has no slices", "too large", "has no text")) or any(w in shown for w in (" at 0x", "dict_", "<built-in"))


def main():
    warnings.simplefilter("ignore")
    os.environ["TZ"] = "UTC"
    transformers_templates.datetime = Clock
    library, drawer, drawn, rendered, different = Library(sys.argv[1]), Drawer(int(sys.argv[2])), 0, 0, 0
    variables = {**VARIABLES, "documents": None, "add_generation_prompt": False}
    end = time.monotonic() + float(sys.argv[3])
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < end and different < 20:
            template = drawer.block(3)
            with open(f"{folder}/chat_template.jinja", "w", newline="") as f:
                f.write(template)
            library.message.value = b""
            mine, theirs = library.render(folder, variables), render(template, variables)
            drawn, rendered = drawn + 1, rendered + (mine is not None)
            message = library.message.value.decode()
            if mine == (theirs if isinstance(theirs, str) else None) or is_known(mine, theirs, message):
                continue
            different += 1
            print(f"{template!r}\n  hadal  {mine!r:.300} {message}\n  jinja2 {theirs!r:.300}")
    print(f"{drawn} templates, {rendered} without an error, {different} different")
    return different != 0


if __name__ == "__main__":
    sys.exit(main())
