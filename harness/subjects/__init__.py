"""Ready subjects: code that really works over several ranks, for scenarios without Python of their own.

A scenario names one with `subject.use`. What each does, takes and emits stands in its file here, which imports no
engine; its code lies beside it, in `KIND_inside.py`. A scenario that was signed names them: none is renamed, and
arguments only come.
"""

from harness.plugins import Registry
from harness.subjects import inference, mlx_allreduce, tokenizer_load, torch_allreduce, torch_pipeline
from harness.subjects.subject import Argument, ReadySubject

__all__ = ["READY", "Argument", "ReadySubject"]

READY: Registry[ReadySubject] = Registry(
    "rankproof.subjects",
    ReadySubject,
    {
        "torch-pipeline": torch_pipeline.SUBJECT,
        "torch-allreduce": torch_allreduce.SUBJECT,
        "mlx-allreduce": mlx_allreduce.SUBJECT,
        "tokenizer-load": tokenizer_load.SUBJECT,
        **inference.SUBJECTS,
    },
)
