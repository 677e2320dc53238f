"""Sum numbers on every rank."""

import os


def total(context, *, broken, size):
    """Entry: `size` comes from the matrix, `broken` from the arm."""
    numbers = [1, 2, 3, 4] if size == "small" else [4, 6]
    value = sum(numbers) + (context.rank if broken else 0)
    context.emit("sum", value=value, count=len(numbers), word=os.environ["EXAMPLE_WORD"])
    context.group.barrier()
