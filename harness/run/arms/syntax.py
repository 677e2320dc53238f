"""What the text of a subject's code says without being imported: the parameters of its entry,
whether a call fits them, and which libraries it imports.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from inspect import Parameter, Signature
from pathlib import Path

from harness.backends import Backend
from harness.faults import Fault
from harness.forms.problem import closest
from harness.forms.strict_json import JSON
from harness.world.below.preload import EVERYTHING, MODULES, OF_MODELS, Preload

LATE = {
    "coroutine": (
        "is a coroutine function, so calling it runs nothing; call asyncio.run inside a plain"
        " function"
    ),
    "generator": (
        "is a generator function, so calling it runs nothing; iterate over it inside a plain"
        " function"
    ),
}

BINDS_BY_NAME = frozenset(
    {"globals", "vars", "locals", "exec", "eval", "setattr", "modules", "__dict__"}
)
"""Names through which a module can bind names that nobody reads in it; `modules` is
`sys.modules`.
"""


@dataclass(frozen=True)
class SubjectEntry:
    """What is known of an entry.

    Attributes:
        there: whether there is a function of that name.
        names: what else could be called, where there is none.
        signature: None where nobody can tell.
        late: why a call would run nothing, as `harness.rank.arm.look` says it.
    """

    there: bool
    names: tuple[str, ...] = ()
    signature: Signature | None = None
    late: str = ""


@dataclass(frozen=True)
class Misfit:
    """Why a call does not fit.

    Attributes:
        argument: the argument it is about, or None.
        why: what is wrong.
        suggestion: what was probably meant.
        of_the_function: no arguments would fit it.
    """

    argument: str | None
    why: str
    suggestion: str | None = None
    of_the_function: bool = False


def read(text: bytes, name: str) -> SubjectEntry | None:
    """Return what the text of a module says of one of its functions.

    Returns:
        None where only importing it would tell: the function is decorated, bound more than once or
        in another way than by `def`, or this Python cannot read the file.
    """
    try:
        with warnings.catch_warnings():
            # A SyntaxWarning of the subject's is the trial's affair.
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    bindings = list(_bindings(tree))
    if "*" in bindings or "__getattr__" in bindings or _binds_by_name(tree):
        return None
    plain = [function for function in tree.body if isinstance(function, ast.FunctionDef)]
    named = [function for function in plain if function.name == name]
    if not named and name not in bindings:
        return SubjectEntry(
            there=False,
            names=tuple(function.name for function in plain if not function.name.startswith("_")),
        )
    if len(named) != 1 or bindings.count(name) != 1 or named[0].decorator_list:
        return None
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(named[0])):
        return None
    return SubjectEntry(there=True, signature=_signature(named[0].args))


def of_values(values: JSON) -> SubjectEntry | None:
    """Return what a rank said that looked at the function; None where it is not what
    `harness.rank.arm.look` says.
    """
    try:
        parameters = values["parameters"]
        if not values["there"]:
            return SubjectEntry(there=False, names=tuple(map(str, values["names"])))
        signature = None
        if parameters is not None:
            signature = Signature(
                [_parameter(name, kind, has_default=left) for name, kind, left in parameters]
            )
        return SubjectEntry(there=True, signature=signature, late=str(values["late"]))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def misfits(signature: Signature, arguments: Collection[str], *, called: str) -> list[Misfit]:
    """Why `function(context, **arguments)` would fail, empty where it binds; `called` is the
    function, in words.
    """
    try:
        signature.bind(None, **dict.fromkeys(arguments))
    except TypeError as error:
        why_not = _explained(signature, arguments, called=called)
        return why_not or [Misfit(None, f"does not fit the parameters of {called}: {error}")]
    return []


def shown(signature: Signature) -> str:
    """Return the parameters of a function, in words."""
    stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}
    return (
        ", ".join(
            f"{stars.get(parameter.kind.name, '')}{parameter.name}"
            for parameter in signature.parameters.values()
        )
        or "nothing"
    )


def _explained(signature: Signature, arguments: Collection[str], *, called: str) -> list[Misfit]:
    parameters = list(signature.parameters.values())
    takes = f"{called}, which takes {shown(signature)}"
    first = parameters[0] if parameters else None
    if first is None or first.kind in (Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD):
        why = f"is {takes}; add a first parameter for the rank's context"
        return [Misfit(None, why, of_the_function=True)]
    named = [
        parameter
        for parameter in parameters
        if parameter.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    ]
    wrong = []
    if first in named and first.name in arguments:
        wrong.append(
            Misfit(
                first.name,
                f"is also the name of the parameter of {called} that receives the rank's context;"
                " rename one of them",
            )
        )
    if all(parameter.kind is not Parameter.VAR_KEYWORD for parameter in parameters):
        known = [parameter.name for parameter in named]
        free = [name for name in known if name != first.name and name not in arguments]
        slips = [name for name in arguments if name not in known]
        wrong += [
            Misfit(name, f"is not a parameter of {takes}", closest(name, free)) for name in slips
        ]
    rest = [parameter for parameter in parameters[1:] if parameter.default is Parameter.empty]
    if by_place := [
        parameter.name for parameter in rest if parameter.kind is Parameter.POSITIONAL_ONLY
    ]:
        why = (
            f"is {called}, which takes {', '.join(by_place)} only by position, but arguments are"
            " passed by name"
        )
        wrong.append(Misfit(None, why, of_the_function=True))
    lacking = (
        {parameter.name for parameter in rest if parameter in named}
        - set(arguments)
        - {misfit.suggestion for misfit in wrong}
    )
    if lacking:
        wrong.append(
            Misfit(
                None,
                f"does not set {', '.join(sorted(lacking))} for {takes}; set it here, or add"
                " an axis with that name",
            )
        )
    return wrong


def _binds_by_name(tree: ast.Module) -> bool:
    """Return whether the module may bind names that it does not spell: through its namespace, or by
    what it executes.
    """
    words = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    words |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return not words.isdisjoint(BINDS_BY_NAME)


def _bindings(tree: ast.Module) -> Iterator[str]:
    """Every name that is bound anywhere outside functions and classes, as often as it is; `*` for a
    star import.
    """
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
            # What a function declares global it may bind.
            yield from (
                name
                for inner in ast.walk(node)
                if isinstance(inner, ast.Global)
                for name in inner.names
            )
            continue
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name
        waiting += ast.iter_child_nodes(node)


def _signature(given: ast.arguments) -> Signature:
    by_place = [*given.posonlyargs, *given.args]
    without = len(by_place) - len(given.defaults)
    kinds = ["POSITIONAL_ONLY"] * len(given.posonlyargs) + ["POSITIONAL_OR_KEYWORD"] * len(
        given.args
    )
    parameters = [
        _parameter(argument.arg, kind, has_default=index >= without)
        for index, (argument, kind) in enumerate(zip(by_place, kinds, strict=True))
    ]
    if given.vararg:
        parameters.append(_parameter(given.vararg.arg, "VAR_POSITIONAL"))
    parameters += [
        _parameter(argument.arg, "KEYWORD_ONLY", has_default=default is not None)
        for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    if given.kwarg:
        parameters.append(_parameter(given.kwarg.arg, "VAR_KEYWORD"))
    return Signature(parameters)


def _parameter(name: str, kind: str, *, has_default: bool = False) -> Parameter:
    return Parameter(
        name, getattr(Parameter, kind), default=None if has_default else Parameter.empty
    )


# What each word in the code asks for. A tokenizer is loaded with whatever its library finds there.
OF_TORCH = ("numpy", "numpy.random", "torch", "torch.distributed")
ASKED_BY = {
    "numpy": ("numpy", "numpy.random"),
    "torch": OF_TORCH,
    "mlx": ("numpy", "numpy.random", "mlx.core"),
    "tokenizers": MODULES,
    "transformers": MODULES,
}
# The same for whatever loads models, further code or none.
OF_A_MODEL = re.compile(rb"\bAutoModelForCausalLM\b")
MOST_BYTES = 4 * 2**20


def preload(
    folders: Iterable[Path],
    *,
    packages: Collection[str],
    backends: Iterable[Backend],
    faults: Iterable[Fault],
    environments: bool = False,
    asked: Sequence[str] = (),
) -> Preload:
    """Return what a warm server holds for ranks of these arms: the same for both, or the two could
    not be compared.

    Code that imports nothing but the standard library, itself and what we know asks for what it
    names; any other import may bring anything, and a name that is made as it runs is still a word
    of the text.

    Args:
        folders: the code of the arms.
        packages: the modules and packages at the top of it.
        backends: those of the scenario's cells.
        faults: the scenario's.
        environments: whether an arm has an environment of its own, where other packages may be
            installed than here.
        asked: what the scenario asks for beside.
    """
    backends = list(backends)
    folders = list(folders)
    files = {backend.inside_file for backend in backends}
    files |= {fault.inside_file for fault in faults if fault.inside_file is not None}
    words = {
        module.partition(".")[0] for backend in backends for module in backend.properties.modules
    }
    modules: Collection[str]
    if (
        named := _named(folders, packages=packages, environments=environments)
    ) is None or words - ASKED_BY.keys():
        modules = EVERYTHING.modules
    else:
        modules = {module for word in words | named for module in ASKED_BY[word]}
    wanted = [name for name in MODULES if name in modules]
    if "transformers" in wanted and any(
        OF_A_MODEL.search(file.read_bytes()) for file in _files(folders)
    ):
        wanted += OF_MODELS
    wanted += [name for name in asked if name not in wanted]
    return Preload(modules=tuple(wanted), files=tuple(sorted(files)))


def _files(folders: Iterable[Path]) -> Iterator[Path]:
    return (file for folder in folders for file in sorted(folder.rglob("*.py")))


def _named(
    folders: Iterable[Path], *, packages: Collection[str], environments: bool
) -> set[str] | None:
    """Which of the known libraries the code names; None where it may import others, or is too much
    to read.
    """
    known = {*ASKED_BY, *packages, *sys.stdlib_module_names}
    words = set()
    size = 0
    for file in _files(folders):
        text = file.read_bytes()
        size += len(text)
        strangers = _imports(text) - known
        if size > MOST_BYTES or any(environments or _is_installed(name) for name in strangers):
            return None
        words |= {word for word in ASKED_BY if re.search(rb"\b%s\b" % word.encode(), text)}
    return words


def _is_installed(name: str) -> bool:
    """Return whether a package is here that could bring others.

    What is not raises in the rank, as it did.
    """
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return True


def _imports(text: bytes) -> set[str]:
    """Return the top-level packages that a file imports by statements.

    A file that is not Python imports none.
    """
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError):
        return set()
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {
        node.module
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module and not node.level
    }
    return {name.partition(".")[0] for name in names}
