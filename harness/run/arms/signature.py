"""The parameters of a function, read from its file without importing it, and whether a call fits
them.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from inspect import Parameter, Signature

from harness.forms.problem import closest
from harness.forms.strict_json import JSON

LATE = {
    "coroutine": (
        "is a coroutine function: calling it runs nothing; call asyncio.run inside a plain function"
    ),
    "generator": (
        "is a generator function: calling it runs nothing; let a plain function walk through it"
    ),
}

BINDS_BY_NAME = frozenset(
    {"globals", "vars", "locals", "exec", "eval", "setattr", "modules", "__dict__"}
)
"""Names through which a module can bind names that nobody reads in it; `modules` is
`sys.modules`.
"""


@dataclass(frozen=True)
class Entry:
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


def read(text: bytes, name: str) -> Entry | None:
    """What the text of a module says of one of its functions.

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
    plain = [one for one in tree.body if isinstance(one, ast.FunctionDef)]
    own = [one for one in plain if one.name == name]
    if not own and name not in bindings:
        return Entry(
            there=False, names=tuple(one.name for one in plain if not one.name.startswith("_"))
        )
    if len(own) != 1 or bindings.count(name) != 1 or own[0].decorator_list:
        return None
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(own[0])):
        return None
    return Entry(there=True, signature=_signature(own[0].args))


def of_values(values: JSON) -> Entry | None:
    """What a rank said that looked at the function; None where it is not what `harness.rank.arm.look`
    says.
    """
    try:
        parameters = values["parameters"]
        if not values["there"]:
            return Entry(there=False, names=tuple(map(str, values["names"])))
        signature = None
        if parameters is not None:
            signature = Signature(
                [_parameter(name, kind, has_default=left) for name, kind, left in parameters]
            )
        return Entry(there=True, signature=signature, late=str(values["late"]))
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
    """The parameters of a function, in words."""
    stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}
    return (
        ", ".join(
            f"{stars.get(one.kind.name, '')}{one.name}" for one in signature.parameters.values()
        )
        or "nothing"
    )


def _explained(signature: Signature, arguments: Collection[str], *, called: str) -> list[Misfit]:
    parameters = list(signature.parameters.values())
    takes = f"{called}, which takes {shown(signature)}"
    first = parameters[0] if parameters else None
    if first is None or first.kind in (Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD):
        why = f"is {takes}: the first parameter of an entry is the rank's context; add it"
        return [Misfit(None, why, of_the_function=True)]
    named = [
        one
        for one in parameters
        if one.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    ]
    wrong = []
    if first in named and first.name in arguments:
        wrong.append(
            Misfit(
                first.name, f"is what {called} takes the rank's context as; rename one of the two"
            )
        )
    if all(one.kind is not Parameter.VAR_KEYWORD for one in parameters):
        known = [one.name for one in named]
        free = [name for name in known if name != first.name and name not in arguments]
        slips = [name for name in arguments if name not in known]
        wrong += [
            Misfit(name, f"is not a parameter of {takes}", closest(name, free)) for name in slips
        ]
    rest = [one for one in parameters if one is not first and one.default is Parameter.empty]
    if by_place := [one.name for one in rest if one.kind is Parameter.POSITIONAL_ONLY]:
        why = (
            f"is {called}, which takes {', '.join(by_place)} by place only, and arguments are given"
            " by name"
        )
        wrong.append(Misfit(None, why, of_the_function=True))
    lacking = (
        {one.name for one in rest if one in named}
        - set(arguments)
        - {one.suggestion for one in wrong}
    )
    if lacking:
        wrong.append(
            Misfit(
                None, f"lacks {', '.join(sorted(lacking))} for {takes}; add it here, or as an axis"
            )
        )
    return wrong


def _binds_by_name(tree: ast.Module) -> bool:
    """Whether the module may bind names that it does not spell: through its namespace, or by what
    it executes.
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
            yield from ((one.asname or one.name).partition(".")[0] for one in node.names)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
            # What a function declares global it may bind.
            yield from (
                name for one in ast.walk(node) if isinstance(one, ast.Global) for name in one.names
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
        _parameter(one.arg, kind, has_default=index >= without)
        for index, (one, kind) in enumerate(zip(by_place, kinds, strict=True))
    ]
    if given.vararg:
        parameters.append(_parameter(given.vararg.arg, "VAR_POSITIONAL"))
    parameters += [
        _parameter(one.arg, "KEYWORD_ONLY", has_default=default is not None)
        for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    if given.kwarg:
        parameters.append(_parameter(given.kwarg.arg, "VAR_KEYWORD"))
    return Signature(parameters)


def _parameter(name: str, kind: str, *, has_default: bool = False) -> Parameter:
    return Parameter(
        name, getattr(Parameter, kind), default=None if has_default else Parameter.empty
    )
