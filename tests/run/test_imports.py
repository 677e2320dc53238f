"""What a warm server holds: what the arms' code names, and everything where that cannot be told."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.backends import KINDS
from harness.run.arms.syntax import preload
from harness.world.below.preload import MODULES, OF_MODELS

TORCH = ("numpy", "numpy.random", "torch", "torch.distributed")


@pytest.mark.parametrize(
    ("code", "backend", "expected"),
    [
        ("import json\nfrom . import other\nfrom own.part import thing", "none", ()),
        ("def broken(:", "none", ()),
        ("import nosuchlib", "none", ()),
        ("", "gloo", TORCH),
        ("", "mlx-ring", ("numpy", "numpy.random", "mlx.core")),
        ("import numpy as np", "none", ("numpy", "numpy.random")),
        ("__import__('torch')", "none", TORCH),
        ("import importlib\nimportlib.import_module('transformers')", "none", MODULES),
        ("import pydantic", "none", MODULES),
        ("from transformers import AutoModelForCausalLM", "none", MODULES + OF_MODELS),
        ("def late():\n    import huggingface_hub", "none", MODULES),
    ],
)
def test_what_the_code_names_is_held(
    tmp_path: Path, code: str, backend: str, expected: tuple[str, ...]
) -> None:
    """Words ask for their libraries, backends for theirs, and an import that may bring anything for
    all of them.
    """
    (tmp_path / "subject.py").write_text(code)
    found = preload([tmp_path], packages={"subject", "own"}, backends=[KINDS[backend]], faults=[])
    assert found.modules == expected
    assert found.files == (KINDS[backend].inside_file,)


def test_both_arms_count_and_an_environment_may_bring_anything(tmp_path: Path) -> None:
    """What one arm names, the other's server holds too.

    A name that is not installed here may be there.
    """
    for arm, code in (("candidate", "import json"), ("control", "import torch")):
        (tmp_path / arm).mkdir()
        (tmp_path / arm / "subject.py").write_text(code)
    arms = [tmp_path / "candidate", tmp_path / "control"]
    assert preload(arms, packages={"subject"}, backends=[KINDS["none"]], faults=[]).modules == TORCH
    (tmp_path / "control" / "subject.py").write_text("import nosuchlib")
    assert preload(arms, packages={"subject"}, backends=[KINDS["none"]], faults=[]).modules == ()
    found = preload(
        arms, packages={"subject"}, backends=[KINDS["none"]], faults=[], environments=True
    )
    assert found.modules == MODULES
