"""Rehearsals in forks of one process: the libraries are imported once for all tests of a module."""

from __future__ import annotations

import subprocess
import sys
from types import TracebackType
from typing import Self

from harness.engines.rehearsal import INSIDE

SERVER = """
import importlib, json, os, sys
sys.path.insert(0, sys.argv[1])
os.environ |= {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "CUDA_VISIBLE_DEVICES": ""}
rehearsal = importlib.import_module("inference_inside.rehearsal")
for name in ("rehearsal_hf", "mlx", "transformers.modeling_utils", "mlx_lm.utils"):
    try:
        importlib.import_module(name if "." in name else f"inference_inside.{name}")
    except ImportError:
        pass  # the tests that want it are skipped
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # libraries print while they load
for line in sys.stdin:
    if (child := os.fork()) == 0:
        answers.write(json.dumps(rehearsal.complaints(json.loads(line))) + "\\n")
        answers.flush()
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        answers.write("\\n")
        answers.flush()
"""


class Rehearsals:
    """Stands for `rehearsal.ask`."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", SERVER, str(INSIDE.parent)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _: TracebackType | None,
    ) -> None:
        self._process.communicate()

    def ask(self, asked: str) -> str:
        """See `rehearsal.ask`; an empty line of one that ended without an answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(asked, file=self._process.stdin, flush=True)
        return self._process.stdout.readline()
