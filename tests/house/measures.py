"""The figures of a source tree, read with `ast` and `tokenize`."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

MOST_ARGUMENTS = 6
MOST_STATEMENTS = 40
SMALL = 80
WEAK_OPENINGS = frozenset({"The", "What", "A", "An", "Whether"})
OF_TESTS = frozenset({"test", "tests", "_tests"})

Function = ast.FunctionDef | ast.AsyncFunctionDef
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The counts of one source tree."""

    files: int
    lines: int
    statements: int
    lines_over_100: int
    lines_over_105: int
    parallel_assignments: int
    conditionals: int
    nested_conditionals: int
    comment_lines: int
    many_arguments: int
    many_arguments_unexplained: int
    many_statements: int
    many_statements_unexplained: int
    any_annotations: int
    dicts_of_any: int
    docstrings: int
    weak_docstrings: int
    class_names_repeated: int
    small_modules: int


class Source:
    """One file.

    Attributes:
        module: its dotted name; a package has the name of its folder.
        is_package: whether it is an `__init__.py`.
        text: its content.
    """

    def __init__(self, module: str, text: str, *, is_package: bool = False) -> None:
        self.module = module
        self.is_package = is_package
        self.text = text
        self.lines = text.splitlines()

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of the syntax tree."""
        return list(ast.walk(ast.parse(self.text)))

    @cached_property
    def functions(self) -> list[Function]:
        """Every function and method."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        return [node for node in self.nodes if isinstance(node, kinds)]

    @cached_property
    def commented(self) -> frozenset[int]:
        """Numbers of the lines with a comment, alone or behind code."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return frozenset(token.start[0] for token in tokens if token.type == tokenize.COMMENT)

    def has_reason(self, function: Function) -> bool:
        """Whether a comment stands directly above a function or within its signature."""
        first = min([function.lineno, *(one.lineno for one in function.decorator_list)])
        return any(line in self.commented for line in range(first - 1, function.body[0].lineno))


def sources(root: Path) -> list[Source]:
    """The files of a package's folder, without the tests that it ships.

    Args:
        root: the folder that has the package's import name.
    """
    found = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        if OF_TESTS.intersection(parts[1:]):
            continue
        is_package = parts[-1] == "__init__"
        module = ".".join(parts[:-1] if is_package else parts)
        found.append(Source(module, path.read_text(encoding="utf-8"), is_package=is_package))
    return found


def figures(files: Sequence[Source]) -> Figures:
    """The counts of these files together."""
    nodes = [node for source in files for node in source.nodes]
    lines = [line for source in files for line in source.lines]
    openings = list(docstring_openings(nodes))
    names = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    functions = [(source, function) for source in files for function in source.functions]
    wide = [(source, one) for source, one in functions if count_arguments(one) > MOST_ARGUMENTS]
    long = [(source, one) for source, one in functions if count_statements(one) > MOST_STATEMENTS]
    return Figures(
        files=len(files),
        lines=len(lines),
        statements=sum(isinstance(node, ast.stmt) for node in nodes),
        lines_over_100=sum(len(line) > 100 for line in lines),
        lines_over_105=sum(len(line) > 105 for line in lines),
        parallel_assignments=sum(is_parallel_assignment(node) for node in nodes),
        conditionals=sum(isinstance(node, ast.IfExp) for node in nodes),
        nested_conditionals=count_nested_conditionals(nodes),
        comment_lines=sum(line.lstrip().startswith("#") for line in comments(files)),
        many_arguments=len(wide),
        many_arguments_unexplained=sum(not source.has_reason(one) for source, one in wide),
        many_statements=len(long),
        many_statements_unexplained=sum(not source.has_reason(one) for source, one in long),
        any_annotations=sum(is_any(node) for node in nodes),
        dicts_of_any=sum(is_dict_of_any(node) for node in nodes),
        docstrings=len(openings),
        weak_docstrings=sum(word in WEAK_OPENINGS for word in openings),
        class_names_repeated=sum(count > 1 for count in names.values()),
        small_modules=len(small_modules(files)),
    )


def comments(files: Iterable[Source]) -> Iterator[str]:
    """The lines that have a comment."""
    for source in files:
        for number in source.commented:
            yield source.lines[number - 1]


def is_parallel_assignment(node: ast.AST) -> bool:
    """Whether a tuple is assigned from a tuple display of the same length that is not a swap."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    values = node.value.elts
    if any(isinstance(value, ast.Starred) for value in values):
        return False
    for target in node.targets:
        if not isinstance(target, ast.Tuple) or len(target.elts) != len(values):
            continue
        if any(isinstance(one, ast.Starred) for one in target.elts):
            continue
        if sorted(map(ast.unparse, target.elts)) != sorted(map(ast.unparse, values)):
            return True
    return False


def count_nested_conditionals(nodes: Iterable[ast.AST]) -> int:
    """How many conditional expressions are inside another one."""
    inner: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.IfExp):
            inside = ast.walk(node)
            inner |= {id(one) for one in inside if isinstance(one, ast.IfExp) and one is not node}
    return len(inner)


def count_arguments(function: Function) -> int:
    """How many arguments a function takes, without `self` and `cls`."""
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    named = [one.arg for one in [*positional, *given.kwonlyargs]]
    named += [one.arg for one in (given.vararg, given.kwarg) if one is not None]
    if positional and positional[0].arg in {"self", "cls"}:
        return len(named) - 1
    return len(named)


def count_statements(function: Function) -> int:
    """How many statements a function has, those of inner functions included, without docstrings."""
    inside = [one for one in ast.walk(function) if isinstance(one, ast.stmt)]
    return sum(not is_docstring(one) for one in inside) - 1


def is_docstring(node: ast.AST) -> bool:
    """Whether a statement is a lone text."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
        return False
    return isinstance(node.value.value, str)


def is_any(node: ast.AST) -> bool:
    """Whether a node is the name `Any`, alone or behind `typing.`."""
    if isinstance(node, ast.Name):
        return node.id == "Any"
    return isinstance(node, ast.Attribute) and node.attr == "Any"


def is_dict_of_any(node: ast.AST) -> bool:
    """Whether a node is `dict[str, Any]`."""
    return isinstance(node, ast.Subscript) and ast.unparse(node) == "dict[str, Any]"


def docstring_openings(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The first word of each docstring."""
    for node in nodes:
        if isinstance(node, DOCUMENTED):
            words = (ast.get_docstring(node) or "").split()
            if words:
                yield words[0]


def small_modules(files: Sequence[Source]) -> list[str]:
    """Modules of fewer than 80 lines that exactly one other module imports."""
    importers = importers_by_module(files)
    small = [one for one in files if len(one.lines) < SMALL and not one.is_package]
    return [one.module for one in small if len(importers[one.module]) == 1]


def importers_by_module(files: Sequence[Source]) -> Mapping[str, set[str]]:
    """For each module of the tree the other modules of the tree that import it."""
    importers: dict[str, set[str]] = {source.module: set() for source in files}
    for source in files:
        for names in imports(source):
            for name in names:
                module = longest_known(name, importers)
                if module is not None and module != source.module:
                    importers[module].add(source.module)
    return importers


def longest_known(name: str, modules: Container[str]) -> str | None:
    """The module that a dotted name is or is in; None where it is of another tree."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        module = ".".join(parts[:end])
        if module in modules:
            return module
    return None


def imports(source: Source) -> Iterator[list[str]]:
    """For each import statement of a file the dotted names that it imports, made absolute."""
    package = source.module.split(".")
    if not source.is_package:
        package = package[:-1]
    for node in source.nodes:
        if isinstance(node, ast.Import):
            yield [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            if node.module:
                start = [*start, node.module]
            yield [".".join([*start, one.name]) for one in node.names]


def conftest_imports(files: Iterable[Source]) -> int:
    """How many import statements name a conftest."""
    statements = [names for source in files for names in imports(source)]
    return sum(any("conftest" in name.split(".") for name in names) for names in statements)
