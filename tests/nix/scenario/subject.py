"""Ranks add their numbers, and each lets MLX compile a kernel for the CPU, which takes the shell's
C++ compiler.
"""

from __future__ import annotations


def meet(context, *, broken):
    """Entry: add the rank numbers over the group; the broken one asks for another sum."""
    import mlx.core as mx

    shares = context.group.all_gather(str(context.rank).encode())
    total = sum(map(int, shares))
    expected = context.size * (context.size - 1) // 2 + broken
    assert total == expected
    context.emit("added", total=total)

    @mx.compile
    def fused(x):
        return mx.exp(x * 2) + mx.sin(x)

    with mx.stream(mx.cpu):
        result = fused(mx.array([0.0, 1.0]))
        mx.eval(result)
    context.emit("compiled", values=[round(value, 4) for value in result.tolist()])
    context.group.barrier()
