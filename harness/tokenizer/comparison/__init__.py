"""The one comparator of tokenizers: what differs between two of them, in words, with a text that
shows it.

* `compare(a, b)`: the differences between two tokenizers, or between two forms.
* `Difference`: one of them, with the part that it is about.

Two tokenizers are compared by every part of their identities, as far as both have it; what the
semantic digest covers comes first. Two forms, which may be of different formats, are compared by
what every format can say: then a part that one of them cannot say is undecided, and not a
difference.
"""

from __future__ import annotations

from harness.tokenizer.comparison.forms import compare_forms
from harness.tokenizer.comparison.identities import Difference, compare_identities
from harness.tokenizer.formats import Form
from harness.tokenizer.objects import ComparedTokenizer

__all__ = ["Difference", "compare"]


def compare(first: ComparedTokenizer | Form, second: ComparedTokenizer | Form) -> list[Difference]:
    """List what differs between two tokenizers, or two forms; the list is empty if nothing does.

    Raises:
        NotComparable: a difference between these two means nothing.
        TypeError: one is a form and the other is not.
    """
    if isinstance(first, Form) and isinstance(second, Form):
        return compare_forms(first, second)
    if isinstance(first, Form) or isinstance(second, Form):
        raise TypeError("a form is compared with another form")
    return compare_identities(first, second)
