#!/usr/bin/env python3
"""Compares what Hadal and transformers make of chat templates, by the python that has transformers and jinja2.

    tests/tools/compare_templates.py build/release/lib/libhadaltext.so TEMPLATE.jinja..
    tests/tools/compare_templates.py build/release/lib/libhadaltext.so --drawn SEED SECONDS

Each template is rendered with every conversation of chat_conversations.py, and drawn ones, by the second command, with the variables of
chat_snippets.py. Output must be the same to the byte, and what is an error for one must be one for the other. Compared so were the
templates of these public repositories, 116 in all: axolotl (src/axolotl/utils/chat_templates/templates), trl (trl/chat_templates),
chat_templates of chujiezheng (chat_templates), mistral.rs (chat_templates)."""
import ctypes
import json
import os
import random
import sys
import tempfile
import time
import warnings

import transformers.utils.chat_template_utils as transformers_templates
from chat_conversations import CONVERSATIONS
from chat_snippets import VARIABLES
from make_templates import TOKENS, WHEN, Clock, all_variables, render


class Chat(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("messages", ctypes.c_void_p), ("n_messages", ctypes.c_size_t),
                ("messages_json", ctypes.c_char_p), ("tools_json", ctypes.c_char_p), ("variables_json", ctypes.c_char_p),
                ("template_name", ctypes.c_char_p), ("add_generation_prompt", ctypes.c_int), ("special", ctypes.c_int),
                ("now", ctypes.c_int64)]


class Comparison:
    """Hadal's renderings beside those of transformers, in a folder of their own."""

    def __init__(self, path, folder):
        self.lib, self.folder = ctypes.CDLL(os.path.abspath(path)), folder
        self.lib.hadal_chat_template_open.restype = ctypes.c_void_p
        self.lib.hadal_chat_text.restype = ctypes.c_int64
        self.out, self.message = ctypes.create_string_buffer(1 << 20), ctypes.create_string_buffer(4096)
        self.renderings = self.rendered = self.different = 0
        with open(f"{folder}/tokenizer_config.json", "w") as f:
            json.dump(TOKENS, f)

    def hadal(self, conversation):
        """The output; None and a message after an error."""
        rest = {k: v for k, v in conversation.items() if k not in ("messages", "tools", "add_generation_prompt")}
        chat = Chat(ctypes.sizeof(Chat), None, 0, json.dumps(conversation["messages"]).encode(),
                    json.dumps(conversation["tools"]).encode() if "tools" in conversation else None, json.dumps(rest).encode(),
                    None, conversation["add_generation_prompt"], 0, WHEN)
        self.message.value = b""
        template = self.lib.hadal_chat_template_open(self.folder.encode(), self.message, len(self.message))
        if not template:
            return None
        n = self.lib.hadal_chat_text(ctypes.c_void_p(template), ctypes.byref(chat), self.out, ctypes.c_int64(len(self.out)), self.message,
                                     len(self.message))
        self.lib.hadal_chat_template_close(ctypes.c_void_p(template))
        return self.out.raw[:n].decode() if n >= 0 else None

    def compare(self, name, source, conversation, is_known=lambda mine, theirs, message: False):
        """Shows a difference, unless it is one that is known."""
        with open(f"{self.folder}/chat_template.jinja", "w", newline="") as f:
            f.write(source)
        mine, theirs = self.hadal(conversation), render(source, all_variables(conversation))
        message = self.message.value.decode()
        self.renderings, self.rendered = self.renderings + 1, self.rendered + (mine is not None)
        if mine == (theirs if isinstance(theirs, str) else None) or is_known(mine, theirs, message):
            return
        self.different += 1
        print(f"{name}:\n  hadal  {mine!r:.400} {message}\n  jinja2 {theirs!r:.400}")


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


def compare_files(comparison, paths):
    for path in paths:
        with open(path, newline="") as f:
            source = f.read()
        for name, conversation in CONVERSATIONS:
            comparison.compare(f"{path}, {name}", source, conversation)


def compare_drawn(comparison, seed, seconds):
    warnings.simplefilter("ignore")
    drawer, end = Drawer(int(seed)), time.monotonic() + float(seconds)
    while time.monotonic() < end and comparison.different < 20:
        template = drawer.block(3)
        comparison.compare(repr(template), template, {**VARIABLES, "documents": None, "add_generation_prompt": False}, is_known)


def main():
    os.environ["TZ"] = "UTC"
    transformers_templates.datetime = Clock
    library, *rest = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        comparison = Comparison(library, folder)
        if rest[:1] == ["--drawn"]:
            compare_drawn(comparison, *rest[1:])
        else:
            compare_files(comparison, rest)
    print(f"{comparison.renderings} renderings, {comparison.rendered} without an error, {comparison.different} different")
    return comparison.different != 0


if __name__ == "__main__":
    sys.exit(main())
