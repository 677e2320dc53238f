"""What can go wrong with a hub: one small family of errors."""

from __future__ import annotations

from collections.abc import Iterable

from harness.forms.problem import Problem


class HubError(Exception):
    """The hub cannot start, or had to stop; the message says what, where and what to do."""


class RulesError(HubError):
    """A rules file cannot be used.

    ``problems`` holds one line for each mistake, ``file:line:column: key: message``, in the order
    of the file.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(map(str, problems))
        super().__init__("\n".join(self.problems))


class LogLost(HubError):
    """The access log could not be written.

    The hub stopped, because an answer without its line is not evidence.
    """
