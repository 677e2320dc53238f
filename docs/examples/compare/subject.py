"""Sums of the same numbers in two orders: not the same bits, and near all the same."""

import random


def add(context, *, order):
    """Report the sum of a thousand numbers of this rank."""
    dice = random.Random(context.rank)
    numbers = [dice.uniform(-1, 1) for _ in range(1000)]
    context.emit("summed", total=sum(numbers) if order == "forward" else pairwise(numbers))


def pairwise(numbers):
    """Sum halves, and halves of halves: rounding errors grow with the depth, not with the length."""
    if len(numbers) <= 2:
        return sum(numbers)
    middle = len(numbers) // 2
    return pairwise(numbers[:middle]) + pairwise(numbers[middle:])
