"""sampled_case.py FOLDER TEMPERATURE TOP_K TOP_P SEED: generates ids with FOLDER/jargon, then draws them again (sampled.py)."""
import os
import subprocess
import sys

folder, temperature, top_k, top_p, seed = sys.argv[1:]
here = os.path.dirname(os.path.abspath(__file__))
jargon = os.path.join(here, "..", "..", "..", "..", "examples", "jargon")
prompt = "104,97,99,107,101,114,58,32"
draws = [] if temperature == "0" else ["--temperature", temperature, "--top-k", top_k, "--top-p", top_p, "--seed", seed]
written = subprocess.run(["hadal", "generate", os.path.join(folder, "jargon"), "--tokens", prompt, "-n", "40", "-q", *draws], check=True, capture_output=True, text=True).stdout
with open(os.path.join(folder, "written"), "w") as f:
    f.write(written)
logits = os.path.join(folder, "logits.npy")
subprocess.run(["hadal", "run", jargon, "--tokens", prompt + "," + ",".join(written.split()), "--interpret", "--logits", logits, "-q"], check=True)
subprocess.run([sys.executable, os.path.join(here, "sampled.py"), prompt, os.path.join(folder, "written"), logits, temperature, top_k, top_p, seed], check=True)
