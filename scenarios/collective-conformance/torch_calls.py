"""The collectives of torch.distributed, each called on a payload, and what each must give."""

# ruff: noqa: ARG001 - all of them are called alike

import torch
import torch.distributed as dist

TYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8")
SUM = "all_reduce sum"
# What a backend without a call, or without a type of it, raises.
LACKING = (NotImplementedError, RuntimeError)
LARGEST = {"all_reduce max": max, "all_reduce min": min}


def _array(values, dtype):
    return torch.tensor(values, dtype=getattr(torch, dtype))


def _numbers(array):
    return array.to(torch.float64).tolist() if array.numel() < 1_000_000 else array.tolist()


def _reduced(operation):
    def call(context, values, dtype, *, number):
        array = _array(values, dtype)
        dist.all_reduce(array, op=operation)
        return _numbers(array)

    return call


def _broadcast(context, values, dtype, *, number):
    array = _array(values, dtype)
    dist.broadcast(array, src=number % context.size)
    return _numbers(array)


def _gathered(context, values, dtype, *, number):
    array = _array(values, dtype)
    found = [torch.empty_like(array) for _ in range(context.size)]
    dist.all_gather(found, array)
    return _numbers(torch.cat(found))


def _passed_on(context, values, dtype, *, number):
    """Send to the rank behind, receive from the one before; even ranks send first."""
    array, found = _array(values, dtype), _array(values, dtype)
    behind, before = (context.rank + 1) % context.size, (context.rank - 1) % context.size
    calls = [dist.P2POp(dist.isend, array, behind), dist.P2POp(dist.irecv, found, before)]
    for request in dist.batch_isend_irecv(calls):
        request.wait()
    return _numbers(found)


def _all_to_all(context, values, dtype, *, number):
    """Every rank gives its payload to every other."""
    array = _array(values, dtype).repeat(context.size)
    found = torch.empty_like(array)
    dist.all_to_all_single(found, array)
    return _numbers(found)


def _scattered_sum(context, values, dtype, *, number):
    """Every rank gives its payload once for each rank, and gets the sum of one."""
    array = _array(values, dtype)
    found = torch.empty_like(array)
    dist.reduce_scatter_tensor(found, array.repeat(context.size))
    return _numbers(found)


CALLS = {
    SUM: _reduced(dist.ReduceOp.SUM),
    "all_reduce max": _reduced(dist.ReduceOp.MAX),
    "all_reduce min": _reduced(dist.ReduceOp.MIN),
    "broadcast": _broadcast,
    "all_gather": _gathered,
    "send and receive": _passed_on,
    "all_to_all": _all_to_all,
    "reduce_scatter": _scattered_sum,
}


def expected(operation, context, everyone, *, number=0):
    """What a call must give a rank, from what every rank gave."""
    match operation:
        case "all_reduce max" | "all_reduce min":
            return [LARGEST[operation](column) for column in zip(*everyone, strict=True)]
        case "broadcast":
            return everyone[number % context.size]
        case "all_gather" | "all_to_all":
            return [value for values in everyone for value in values]
        case "send and receive":
            return everyone[(context.rank - 1) % context.size]
        case _:
            return [sum(column) for column in zip(*everyone, strict=True)]
