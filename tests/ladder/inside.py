"""What a rank of the soak does: many sessions of a ready subject in one world, each told apart by
its number.
"""

import importlib


class Numbered:
    """A rank's context, whose artefacts and events carry the number of a session."""

    def __init__(self, context, number):
        self._context, self._number = context, number

    def __getattr__(self, name):
        return getattr(self._context, name)

    def emit(self, name, **values):
        if name in ("generated", "sensitivity", "shard", "perturbed", "envelope"):
            self._context.emit(name, session=self._number, **values)

    def keep(self, name, data):
        if name != "checkpoint":
            self._context.keep(f"session{self._number}.{name}", data)


def run(context, *, module, function, sessions):
    """Entry: each session anew, with its model and its arguments."""
    for session in sessions:
        numbered = Numbered(context, session["number"])
        numbered.inputs = {**context.inputs, "model": session["model"], **session.get("inputs", {})}
        invented, back = session.get("invented"), None
        if invented is not None:
            back = importlib.import_module(f"invented_{module}").put(invented)
        try:
            getattr(importlib.import_module(f"inference.{module}"), function)(
                numbered, **session["with"]
            )
        finally:
            if back is not None:
                back()
