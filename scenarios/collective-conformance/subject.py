"""Every collective of a backend, over types and sizes, with payloads whose every element is known
beforehand.

An element follows from the rank that gave it, the number of the call and its place, and is a whole
number so small that every type holds it and every sum of it exactly: no tolerance is needed. What
comes back is compared element by element with what must; the first wrong one of a call is told with
its place, and whose it is.
"""

import importlib

SIZES = (0, 1, 2, 7, 251, 1023, 1024, 1025, 65535, 65537)
LARGE = 4 * 1024 * 1024
"""Elements of four bytes: 16 MiB."""
CHANGES = 2000
SPAN = 7
MOST_TOLD = 10


def conform(context, *, halves):
    """Make all calls, then thousands of small ones whose shape changes each time."""
    # Ranks of the one backend need not have the other's library.
    library = importlib.import_module("ring" if context.backend == "mlx-ring" else "torch_calls")
    calls, wrong, lacks = 0, [], set()

    def make(operation, dtype, size):
        nonlocal calls
        sent = size // 2 * 2 if halves == "equal" and size > 1 else size
        try:
            found = library.CALLS[operation](
                context, given(context.rank, calls, sent), dtype, number=calls
            )
        except library.LACKING as error:
            if "onnection" in str(error):
                raise  # a peer is gone, which is not a call that the backend lacks
            lacks.add(f"{operation} of {dtype}: {type(error).__name__}")
            return
        everyone = [given(rank, calls, size) for rank in range(context.size)]
        expected = library.expected(operation, context, everyone, number=calls)
        if found != expected and len(wrong) < MOST_TOLD:
            wrong.append(
                {
                    "operation": operation,
                    "dtype": dtype,
                    "size": size,
                    "call": calls,
                    **first(found, expected),
                }
            )
        calls += 1

    for operation in library.CALLS:
        for dtype in library.TYPES:
            for size in SIZES:
                make(operation, dtype, size)
        context.emit("made", operation=operation, calls=calls)
    make(library.SUM, "float32", LARGE)
    context.emit("made", operation="large", calls=calls)
    for number in range(CHANGES):
        make(tuple(library.CALLS)[number % len(library.CALLS)], "float32", number * 37 % 301)
    context.emit("conformed", calls=calls, wrong=wrong, lacks=sorted(lacks))


def given(rank, number, size):
    """What a rank gives to a call: small whole numbers, which shift with rank and call."""
    pattern = [(rank * 3 + number + place) % SPAN for place in range(SPAN)]
    return (pattern * (size // SPAN + 1))[:size]


def first(found, expected):
    """The first element that is wrong, and what it should be.

    Or that there are too few or too many.
    """
    if len(found) != len(expected):
        return {"elements": len(found), "expected": len(expected)}
    place = next(
        place
        for place, (one, other) in enumerate(zip(found, expected, strict=True))
        if one != other
    )
    return {"place": place, "found": found[place], "expected": expected[place]}
