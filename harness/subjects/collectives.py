"""What the ready subjects that try collectives have in common: their arguments, and what they emit."""

from __future__ import annotations

from harness.subjects.subject import NO_DEFECT, Argument

COLLECTIVES = {
    "collective.begin": (),
    "collective.end": (),
    "collective": ("kind", "round", "digest", "expected", "correct"),
    "collectives.done": ("digest", "wrong", "correct"),
}
OF_COLLECTIVES = {
    "elements": Argument(does="numbers that each rank puts in", default=1024),
    "rounds": Argument(does="how often each collective is done", default=1, at_most=10_000),
    "defect": Argument(
        does="own-value: ranks other than 0 go on with their own value instead of the result; "
        "left-out: what the last rank puts in does not count",
        default=NO_DEFECT,
        choices=(NO_DEFECT, "own-value", "left-out"),
    ),
}
