"""Sums of the same numbers in two orders: not the same bits, and near all the same."""

import math


def add(context, *, order):
    """Report the sum of a thousand numbers of this rank."""
    numbers = [math.sin(number * (context.rank + 1)) for number in range(1, 1001)]
    context.emit("summed", total=sum(numbers) if order == "forward" else pairwise(numbers))


def pairwise(numbers):
    """Sum halves, and halves of halves: rounding errors grow with the depth, not with the
    length.
    """
    if len(numbers) <= 2:
        return sum(numbers)
    middle = len(numbers) // 2
    return pairwise(numbers[:middle]) + pairwise(numbers[middle:])
