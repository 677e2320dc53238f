"""Mutants of a module: one comparison, bound or negation changed in each.

Only the code that decides is changed: what is compared, with which bound, and which way a condition
goes. Texts, arguments and arithmetic stay, because a sentence that reads differently is no wrong
verdict.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
CONDITIONS = (ast.If, ast.IfExp, ast.While)


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A module with one change.

    Attributes:
        path: of the module, from the top of the repository.
        name: the function that the change is in, dotted; `module` at the top level.
        line: where the changed expression begins, from 1.
        before: the expression as it is.
        after: the expression as the mutant has it.
        number: which of the equal changes of this function it is, from 1.
        source: the whole mutated module.
    """

    path: str
    name: str
    line: int
    before: str
    after: str
    number: int
    source: str

    @property
    def key(self) -> str:
        """What the list of equivalents names it by; independent of line numbers."""
        again = f" #{self.number}" if self.number > 1 else ""
        return f"{self.path}::{self.name}: {self.before} -> {self.after}{again}"


def mutants(path: Path, *, root: Path) -> list[Mutant]:
    """Every mutant of a module, in the order of its lines.

    Raises:
        SyntaxError: the module cannot be parsed.
    """
    tree = ast.parse(path.read_bytes())
    names = _names(tree)
    seen: Counter[tuple[str, str, str]] = Counter()
    found: list[Mutant] = []
    for index, node in enumerate(ast.walk(tree)):
        for turn in range(_count(node)):
            changed = copy.deepcopy(tree)
            target = _nth(changed, index)
            before = (
                ast.unparse(node) if isinstance(node, ast.expr) else ast.unparse(_condition(node))
            )
            after = _change(target, turn)
            name = names.get(id(node), "module")
            seen[name, before, after] += 1
            found.append(
                Mutant(
                    path=path.relative_to(root).as_posix(),
                    name=name,
                    # Only expressions and statements have a count.
                    line=node.lineno,  # type: ignore[attr-defined]
                    before=before,
                    after=after,
                    number=seen[name, before, after],
                    source=ast.unparse(changed),
                )
            )
    return sorted(found, key=lambda mutant: mutant.line)


def _names(tree: ast.Module) -> dict[int, str]:
    """The dotted name of the function that each node is in, by the node's id."""
    names: dict[int, str] = {}

    def visit(node: ast.AST, name: str) -> None:
        for child in ast.iter_child_nodes(node):
            below = name
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                below = f"{name}.{child.name}" if name else child.name
            if below:
                names[id(child)] = below
            visit(child, below)

    visit(tree, "")
    return names


def _nth(tree: ast.Module, index: int) -> ast.AST:
    for number, node in enumerate(ast.walk(tree)):
        if number == index:
            return node
    raise IndexError(index)


def _condition(node: ast.AST) -> ast.expr:
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        return node.test
    assert isinstance(node, ast.Assign | ast.AnnAssign)
    assert node.value is not None
    return node.value


def _bounds(node: ast.AST) -> list[ast.Constant]:
    """The numbers that a comparison has as bounds, or that a name of the module stands for."""
    operands: list[ast.expr] = []
    if isinstance(node, ast.Compare):
        operands = [node.left, *node.comparators]
    elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        operands = [node.value] if _is_constant_name(node) else []
    return [
        one for one in operands if isinstance(one, ast.Constant) and type(one.value) in (int, float)
    ]


def _is_constant_name(node: ast.Assign | ast.AnnAssign) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return all(isinstance(target, ast.Name) and target.id.isupper() for target in targets)


def _plain(test: ast.expr) -> bool:
    """Whether a condition is changed nowhere else: its truth itself is turned then."""
    return not isinstance(test, ast.Compare | ast.BoolOp) and not (
        isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    )


def _count(node: ast.AST) -> int:
    """In how many ways a node can be changed."""
    bounds = len(_bounds(node))
    match node:
        case ast.Compare():
            return bounds + sum(type(op) in COMPARISONS for op in node.ops)
        case ast.BoolOp():
            return 1
        case ast.UnaryOp(op=ast.Not()):
            return 1
        case ast.If() | ast.IfExp() | ast.While():
            return int(_plain(node.test))
        case ast.Assign() | ast.AnnAssign():
            return bounds
    return 0


def _change(node: ast.AST, turn: int) -> str:
    """Change a node in place, in one of the ways that it can be; return what it reads now."""
    bounds = _bounds(node)
    if turn < len(bounds):
        bound = bounds[turn]
        # Twice a rate of 0.05 is the slip that was seen; of a count the neighbour is the nearest
        # wrong one.
        bound.value = (
            bound.value * 2 if isinstance(bound.value, float) and bound.value else bound.value + 1
        )  # type: ignore[operator]
    elif isinstance(node, ast.Compare):
        places = [place for place, op in enumerate(node.ops) if type(op) in COMPARISONS]
        place = places[turn - len(bounds)]
        node.ops[place] = COMPARISONS[type(node.ops[place])]()
    elif isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.UnaryOp):
        # `not not x` is the truth of x, which is what the mutant without `not` has.
        node.operand = ast.UnaryOp(op=ast.Not(), operand=node.operand)
    elif isinstance(node, CONDITIONS):
        node.test = ast.UnaryOp(op=ast.Not(), operand=node.test)
    ast.fix_missing_locations(node)
    return ast.unparse(node) if isinstance(node, ast.expr) else ast.unparse(_condition(node))


def paths(root: Path, names: list[str]) -> Iterator[Path]:
    """The modules of files and folders, from the top of the repository."""
    for name in names:
        place = root / name
        yield from sorted(place.rglob("*.py")) if place.is_dir() else [place]
