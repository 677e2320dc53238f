"""The collectives of MLX over its ring, each called on a payload, and what each must give."""

# ruff: noqa: ARG001 - all of them are called alike

import mlx.core as mx

TYPES = (
    "float32",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint64",
    "uint32",
    "uint16",
    "uint8",
)
SUM = "all_sum"
# What MLX raises where its ring has no such call, or no such type.
LACKING = (ValueError, RuntimeError)
LARGEST = {"all_max": max, "all_min": min}


def _array(values, dtype):
    return mx.array(values, dtype=getattr(mx, dtype))


def _reduced(name):
    def call(context, values, dtype, *, number):
        found = getattr(mx.distributed, name)(_array(values, dtype), group=context.group.native)
        return found.astype(mx.float32).tolist()

    return call


def _passed_on(context, values, dtype, *, number):
    """Send to the rank behind, receive from the one before; every second rank the other way round.

    Given both to evaluate, MLX takes the last first: all ranks receive, and wait for ever. If all
    sent first, large arrays would fill the sockets, and all would wait again.
    """
    group = context.group.native
    array = _array(values, dtype)
    sent = mx.distributed.send(array, (context.rank + 1) % context.size, group=group)
    found = mx.distributed.recv_like(array, (context.rank - 1) % context.size, group=group)
    for one in (sent, found) if context.rank % 2 == 0 else (found, sent):
        mx.eval(one)
    return found.astype(mx.float32).tolist()


CALLS = {
    SUM: _reduced("all_sum"),
    "all_max": _reduced("all_max"),
    "all_min": _reduced("all_min"),
    "all_gather": _reduced("all_gather"),
    "send and receive": _passed_on,
}


def expected(operation, context, everyone, *, number=0):
    """What a call must give a rank, from what every rank gave."""
    match operation:
        case "all_max" | "all_min":
            return [LARGEST[operation](column) for column in zip(*everyone, strict=True)]
        case "all_gather":
            return [value for values in everyone for value in values]
        case "send and receive":
            return everyone[(context.rank - 1) % context.size]
        case _:
            return [sum(column) for column in zip(*everyone, strict=True)]
