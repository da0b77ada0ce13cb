# lit: as tests/lit, for the tests of this directory; HADAL_BUILD is the build that has the pass.
import os

here = os.path.dirname(os.path.abspath(__file__))
lit_config.load_config(config, os.path.join(here, "..", "..", "tests", "lit", "lit.cfg.py"))
config.name = "own-pass"
config.test_source_root = here
config.test_exec_root = os.path.join(os.environ["HADAL_BUILD"], "tests", "own-pass")
