"""Run a module as `python -m` does, on a machine that seems to have no torch.

mlx-lm does not need torch, but importing it, where it is installed, takes half of a start.
"""

import runpy
import sys

sys.modules["torch"] = None
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
