# lit: one test per file; RUN lines start the command as a user would.
import os
import shutil
import sys

import lit.formats

config.name = "hadal"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".hir", ".hadal", ".test"]
config.excludes = ["Inputs"]
config.test_source_root = os.path.dirname(__file__)
build = os.environ["HADAL_BUILD"]
config.test_exec_root = os.path.join(build, "tests", "lit")
config.environment["PATH"] = os.pathsep.join([os.path.join(build, "bin"), os.path.join(build, "tests"), os.environ["PATH"]])
for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "CC", "HADAL_BUILD", "HADAL_CODE_CACHE", "HADAL_FULL", "OMP_WAIT_POLICY"):
    if name in os.environ:
        config.environment[name] = os.environ[name]
config.substitutions.append(("FileCheck", "FileCheck-19"))
config.substitutions.append(("%examples", os.path.join(config.test_source_root, "..", "..", "examples")))
config.substitutions.append(("%golden", os.path.join(config.test_source_root, "..", "golden")))
config.substitutions.append(("%python", sys.executable))
if shutil.which("gdb"):
    config.available_features.add("gdb")
if os.environ.get("HADAL_FULL") == "1":  # docs/testing.md: %if full %{ command %}
    config.available_features.add("full")
if os.environ.get("SANITIZE"):
    config.available_features.add("sanitized")
