"""A golden file: texts with the ids that a tokenizer gives, written once and held against it later."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

from pydantic import Field

from harness.forms.fields import SchemaVersion
from harness.forms.model import Model, parse_json
from harness.forms.regular_file import read_regular
from harness.tokenizer.digest import canonical_json
from harness.tokenizer.engines import Engine, EngineFailed
from harness.tokenizer.engines.adapter import Mode
from harness.tokenizer.problem import Unreadable, refused
from harness.tokenizer.texts import fixed, generated

LARGEST = 64 << 20
MOST = 100_000
"""Texts."""
Ids = list[Annotated[int, Field(ge=0)]]


class Golden(Model):
    """One text with its ids.

    Attributes:
        text: the text.
        mode: how it was asked: `plain`, `special` or `around`.
        ids: what the tokenizer gave; None where it refused the text.
    """

    text: str
    mode: Mode
    ids: Ids | None


class Contract(Model):
    """A golden file. Closed and strict.

    Attributes:
        schema_: 1.
        made_with: the engine that gave the ids, with its version.
        texts: every text.
    """

    schema_: SchemaVersion = Field(alias="schema")
    made_with: str
    texts: Annotated[list[Golden], Field(min_length=1, max_length=MOST)]


def record(engine: Engine, *, count: int = 500, seed: int = 0) -> Contract:
    """Ask an engine for the ids of the fixed texts, and of generated ones, in every mode that it has."""
    tokens, special = engine.vocabulary()
    texts = list(dict.fromkeys([*fixed(), *generated(count, seed=seed, tokens=tokens, special=special)]))
    rows = [
        Golden(text=text, mode=mode, ids=None if isinstance(ids, str) else ids)
        for mode in engine.modes
        for text, ids in zip(texts, engine.encode(texts, mode), strict=True)
    ]
    return Contract(schema=1, made_with=engine.about, texts=rows)


def broken(engine: Engine, contract: Contract) -> list[tuple[Golden, list[int] | None]]:
    """The texts of which the ids are others now, with those ids; none: the contract holds.

    Raises:
        EngineFailed: the engine died, or has not every mode of the contract: then it is not shown to hold.
    """
    lacking = sorted({one.mode for one in contract.texts} - set(engine.modes))
    if lacking:
        raise EngineFailed(f"{engine.about} does not encode in the mode {lacking[0]}, which the contract asks for")
    found: list[tuple[Golden, list[int] | None]] = []
    for mode in engine.modes:
        rows = [one for one in contract.texts if one.mode == mode]
        for row, ids in zip(rows, engine.encode([one.text for one in rows], mode), strict=True):
            now = None if isinstance(ids, str) else ids
            if now != row.ids:
                found.append((row, now))
    return found


def read(path: Path) -> Contract:
    """Read a golden file.

    Raises:
        Unreadable: it is not there, or not exactly such a file.
    """
    try:
        return parse_json(Contract, read_regular(path, limit=LARGEST))
    except OSError as error:
        raise refused(path, error) from None
    except ValueError as error:
        raise Unreadable(f"{path}: is not a golden file: {error}") from None


def write(contract: Contract, path: Path) -> None:
    """Write a golden file whole or not at all: a line for each text, so that a review shows what changed.

    Raises:
        OSError: it cannot be written.
    """
    rows = ",\n".join(canonical_json(one.model_dump()) for one in contract.texts)
    head = canonical_json({"schema": contract.schema_, "made_with": contract.made_with})[:-1]
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with draft.open("x", encoding="utf-8") as stream:
            stream.write(f'{head},"texts":[\n{rows}\n]}}\n')
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
