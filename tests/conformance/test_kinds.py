"""Every kind of difference that a row can find has words of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from harness.conformance import judgement, rows
from harness.conformance.rows import ROWS
from harness.conformance.rows.kinds import UNDECIDED, WRONG

FOLDER = Path(rows.__file__).parent
TOLD = ("REFUSES", "NOT ASKED")
"""Words whose first screen needs no kind: the reason is stated as it is."""


def constants(node: ast.expr) -> list[str]:
    """The texts that an expression may be."""
    if isinstance(node, ast.IfExp):
        return [*constants(node.body), *constants(node.orelse)]
    return [node.value] if isinstance(node, ast.Constant) else []


PLACES = {"demand_same": 0, "all_alike": 1, "demand_unchanged": 3}
"""Functions that say VIOLATES, with the place of the kind among their arguments."""


def found() -> Iterator[tuple[str, str]]:
    """Yield each word with each kind that the code of the rows names."""
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "about":
                yield from product(["VIOLATES"], constants(node.value))
            elif isinstance(node, ast.Call):
                yield from product(*stated(node))


def stated(call: ast.Call) -> tuple[list[str], list[str]]:
    """The words and the kinds that a call may state."""
    name = ast.unparse(call.func)
    given = {one.arg: one.value for one in call.keywords}
    if name == "Judged":
        return constants(call.args[0]), constants(call.args[1])
    if name == "RowFinding":
        return constants(given["word"]), constants(given["about"])
    if name in PLACES:
        return ["VIOLATES"], constants(call.args[PLACES[name]])
    return [], []


def test_every_kind_has_a_few_words() -> None:
    """None is missing, none is left over, and each fits a line with the names of some rows."""
    kinds = set(found())
    wrong = {kind for word, kind in kinds if word == "VIOLATES"}
    undecided = {kind for word, kind in kinds if word == "CANNOT TELL"}
    undecided |= {judgement.SOMETIMES, judgement.UNSTEADY, judgement.UNCONTROLLED}
    assert {word for word, _ in kinds} <= {"VIOLATES", "CANNOT TELL", "CONFORMS", *TOLD}
    assert wrong == set(WRONG)
    assert undecided == set(UNDECIDED)
    assert {row.about for row in ROWS.values()} <= wrong
    assert max(map(len, (*WRONG.values(), *UNDECIDED.values()))) <= 56
