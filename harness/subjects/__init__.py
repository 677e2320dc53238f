"""Ready subjects: code that really works over several ranks, for scenarios without Python of their
own.

A scenario names one with `subject.use`. What each does, takes and emits is in `ready.py` and
`openai_client.py`, which import no engine; its code is in `KIND_inside.py` or `KIND_inside/`. Those
that run inference are in `harness.engines`. Signed scenarios name them, so none is ever renamed,
and arguments are only added.
"""

from harness.registry import Package, Registry
from harness.subjects.subject import Argument, ReadySubject

__all__ = ["READY", "Argument", "ReadySubject"]

READY: Registry[ReadySubject] = Registry(
    "rankproof.subjects",
    ReadySubject,
    Package(
        "harness",
        {
            "torch-pipeline": "subjects.ready:TORCH_PIPELINE",
            "torch-allreduce": "subjects.ready:TORCH_ALLREDUCE",
            "mlx-allreduce": "subjects.ready:MLX_ALLREDUCE",
            "tokenizer-load": "subjects.ready:TOKENIZER_LOAD",
            "openai-client": "subjects.openai_client:OPENAI_CLIENT",
            "hf-single": "engines.inference:HF_SINGLE",
            "hf-tensor": "engines.inference:HF_TENSOR",
            "hf-pipeline": "engines.inference:HF_PIPELINE",
            "mlx-single": "engines.inference:MLX_SINGLE",
            "mlx-tensor": "engines.inference:MLX_TENSOR",
            "mlx-pipeline": "engines.inference:MLX_PIPELINE",
            "hf-sharded": "engines.inference:HF_SHARDED",
            "mlx-sharded": "engines.inference:MLX_SHARDED",
        },
    ),
)
