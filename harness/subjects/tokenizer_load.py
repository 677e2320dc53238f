"""`tokenizer-load`: a tokenizer on every rank."""

from __future__ import annotations

from pathlib import Path

from harness.subjects.subject import Argument, ReadySubject

SUBJECT = ReadySubject(
    does=(
        "loads a tokenizer on every rank with transformers, identifies it, and encodes and decodes"
        " a text"
    ),
    file=Path(__file__).with_name("tokenizer_load_inside.py"),
    backends=("gloo", "mlx-ring", "nccl", "none"),
    arguments={
        "tokenizer": Argument(
            does="the input that holds it", default="tokenizer", names_an_input=True
        ),
        "text": Argument(does="what is encoded and decoded", default="Hello world"),
        "loader": Argument(
            does="rank-0-only: the other ranks go on without a tokenizer",
            default="every-rank",
            choices=("every-rank", "rank-0-only"),
        ),
    },
    emits={
        "tokenizer.load.begin": (),
        "tokenizer.load.end": (),
        "tokenizer": ("class", "fast", "size", "semantic", "full"),
        "identities": ("count", "distinct"),
        "tokenizer.ready": ("ids", "count", "text", "returns"),
    },
)
