"""What holds peers to the vectors of a CPU level: variables of the environment for the processes of models. llama.cpp has them as
options of its build, and ONNX Runtime looks at the CPU alone: models.py leaves out what cannot be held."""
import os

HELD = {"avx2": {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2", "DNNL_MAX_CPU_ISA": "AVX2"}}
LEVELS = ("best", *HELD)
WIDER = {"avx2": ("AVX512", "AVX_VNNI", "AMX_INT8")}  # of what llama.cpp says about itself: not at this level
VARIABLE = "HADAL_PEERS_LEVEL"


def hold(level):
    """Processes that are started from now on keep to the level."""
    os.environ.update({**HELD.get(level, {}), VARIABLE: level})


def held():
    """The level that this process keeps to."""
    return os.environ.get(VARIABLE, "best")


def hold_inductor():
    """torch.compile looks at the CPU, whatever the environment says."""
    if held() == "avx2":
        import torch._inductor.config as inductor
        inductor.cpp.simdlen = 256  # bits of a vector
