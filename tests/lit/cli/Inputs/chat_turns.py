"""chat_turns.py whole|cut TOKENIZER_FOLDER LIBRARY LINE ..: the answers of hadal chat to the lines, against those that hadal generate gives for the whole text

of each turn, by the template of chat.test; and how many tokens each turn read. With `cut` the template leaves only the first word of earlier answers."""
import re
import subprocess
import sys

cut, folder, library, lines = sys.argv[1] == "cut", sys.argv[2], sys.argv[3], sys.argv[4:]
options = [library, "--tokenizer", folder, "-n", "12"]
chat = subprocess.run(["hadal", "chat", *options, "--time-passes", "--system", "Be odd.", "--chat-variables", '{"cut": true}' if cut else "{}"],
                      input="\n".join(lines).encode(),
                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
answers, text, same = chat.stdout.split(b"\n")[:-1], b"Be odd.\n", len(lines)
for line, answer in zip(lines, answers):
    text += b"user: " + line.encode() + b"\nassistant: "
    alone = subprocess.run(["hadal", "generate", *options, "-q", "--raw-prompt"], input=text, stdout=subprocess.PIPE, check=True)
    same -= alone.stdout == answer + b"\n"
    text += (answer.split(b" ")[0] if cut else answer) + b"\n"
print("answers", len(answers), "different", same, "read", re.findall(r"(\d+) tokens? read", chat.stderr.decode()), "text", len(text) > 20)
