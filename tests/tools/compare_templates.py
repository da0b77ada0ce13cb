#!/usr/bin/env python3
"""Compares what Hadal and transformers make of chat templates, by the python that has transformers and jinja2.

    tests/tools/compare_templates.py build/release/lib/libhadaltext.so TEMPLATE.jinja..

Each template is rendered with every conversation of chat_conversations.py; output must be the same to the byte, and what is an
error for one must be one for the other. Compared so were the templates of these public repositories, 116 in all: axolotl
(src/axolotl/utils/chat_templates/templates), trl (trl/chat_templates), chat_templates of chujiezheng (chat_templates),
mistral.rs (chat_templates)."""
import ctypes
import json
import os
import sys
import tempfile

import transformers.utils.chat_template_utils as transformers_templates
from chat_conversations import CONVERSATIONS
from make_templates import TOKENS, WHEN, Clock, all_variables, render


class Chat(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("messages", ctypes.c_void_p), ("n_messages", ctypes.c_size_t),
                ("messages_json", ctypes.c_char_p), ("tools_json", ctypes.c_char_p), ("variables_json", ctypes.c_char_p),
                ("template_name", ctypes.c_char_p), ("add_generation_prompt", ctypes.c_int), ("special", ctypes.c_int),
                ("now", ctypes.c_int64)]


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(os.path.abspath(path))
        self.lib.hadal_chat_template_open.restype = ctypes.c_void_p
        self.lib.hadal_chat_text.restype = ctypes.c_int64
        self.out, self.message = ctypes.create_string_buffer(1 << 20), ctypes.create_string_buffer(4096)

    def render(self, folder, conversation):
        """The output; None and a message after an error."""
        rest = {k: v for k, v in conversation.items() if k not in ("messages", "tools", "add_generation_prompt")}
        chat = Chat(ctypes.sizeof(Chat), None, 0, json.dumps(conversation["messages"]).encode(),
                    json.dumps(conversation["tools"]).encode() if "tools" in conversation else None, json.dumps(rest).encode(),
                    None, conversation["add_generation_prompt"], 0, WHEN)
        template = self.lib.hadal_chat_template_open(folder.encode(), self.message, len(self.message))
        if not template:
            return None
        n = self.lib.hadal_chat_text(ctypes.c_void_p(template), ctypes.byref(chat), self.out, ctypes.c_int64(len(self.out)), self.message,
                                     len(self.message))
        self.lib.hadal_chat_template_close(ctypes.c_void_p(template))
        return self.out.raw[:n].decode() if n >= 0 else None


def main():
    os.environ["TZ"] = "UTC"
    transformers_templates.datetime = Clock
    library, different, rendered = Library(sys.argv[1]), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for path in sys.argv[2:]:
            with open(path, newline="") as f:
                source = f.read()
            with open(f"{folder}/chat_template.jinja", "w", newline="") as f:
                f.write(source)
            with open(f"{folder}/tokenizer_config.json", "w") as f:
                json.dump(TOKENS, f)
            for name, conversation in CONVERSATIONS:
                mine, theirs = library.render(folder, conversation), render(source, all_variables(conversation))
                rendered += mine is not None
                if mine == (theirs if isinstance(theirs, str) else None):
                    continue
                different += 1
                print(f"{path}, {name}:\n  hadal  {mine!r:.400}\n  jinja2 {theirs!r:.400}\n  {library.message.value.decode()}")
    print(f"{len(sys.argv) - 2} templates, {(len(sys.argv) - 2) * len(CONVERSATIONS)} renderings, {rendered} without an error, {different} different")
    return different != 0


if __name__ == "__main__":
    sys.exit(main())
