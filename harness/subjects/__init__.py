"""Ready subjects: code that really works over several ranks, for scenarios without Python of their own.

A scenario names one with `subject.use`. What each does, is told and tells stands in the catalogue, which imports no
engine; its code lies in `code/`.
"""

from harness.subjects.catalogue import READY
from harness.subjects.ready import Argument, ReadySubject

__all__ = ["READY", "Argument", "ReadySubject"]
