"""Read an input."""

from pathlib import Path


def read(context, *, encoding):
    """Entry: count the words of the input."""
    text = Path(context.inputs["words"]).read_text(encoding=encoding)
    context.emit("read", count=len(text.split()))
