"""Ties: where noise makes a router choose other experts, or an indexer other keys, what follows is something else.

A reference tells by how much each choice was decided at each position, in its own order of sums and in others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.numeric.array import NotAnArray
from harness.numeric.arrays import ArrayFile, numbers

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


def decided(
    gaps: Mapping[int, ArrayFile], variants: Sequence[Mapping[int, ArrayFile]], *, margin: float
) -> dict[int, int]:
    """How many positions of each prompt come before the first at which noise can make a choice another one.

    A choice is held against its own noise: the scores of routers and of indexers are numbers of different size.

    Args:
        gaps: by prompt, `[positions, choices]`, infinite where nothing was left out; or the least of all,
            `[positions]`.
        variants: the same in other orders of the same sums, of all prompts or some.
        margin: times its noise that a gap has to be.

    Raises:
        NotAnArray: one is not an array of floats with one axis or two, or has other positions in a variant.
    """
    import numpy as np

    kept = {prompt: _columns(file) for prompt, file in gaps.items()}
    others = [{prompt: _columns(file) for prompt, file in one.items() if prompt in kept} for one in variants]
    width = max(found.shape[1] for one in (kept, *others) for found in one.values())
    kept = {prompt: _widened(gap, width) for prompt, gap in kept.items()}
    noise = {prompt: np.zeros(gap.shape) for prompt, gap in kept.items()}
    for variant in others:
        for prompt, found in variant.items():
            gap, other = kept[prompt], _widened(found, width)
            if other.shape != gap.shape:
                raise NotAnArray(f"{gaps[prompt].name} has another shape in a variant")
            # What chooses nothing leaves nothing undecided: its gap is infinite, on both sides.
            with np.errstate(invalid="ignore"):
                apart = np.where(other == gap, 0.0, np.abs(other - gap))
            noise[prompt] = np.maximum(noise[prompt], apart)
    # Behind a choice that was made otherwise everything is something else, which is not noise of what comes before:
    # what counts is the noise so far, and no less than that of half of all positions at which there is a choice.
    gap_of_all, noise_of_all = (np.concatenate(list(one.values())) for one in (kept, noise))
    half = np.array([_median(noise_of_all[~np.isinf(gap_of_all[:, at]), at]) for at in range(width)])
    many = {}
    for prompt, gap in kept.items():
        so_far = np.maximum(np.maximum.accumulate(noise[prompt]), half)
        tied = np.flatnonzero(~(gap > margin * so_far).all(axis=1))
        many[prompt] = int(tied[0]) if tied.size else int(gap.shape[0])
    return many


def _columns(file: ArrayFile) -> Array:
    array = numbers(file)
    if array.ndim not in (1, 2) or array.dtype.kind != "f":
        raise NotAnArray(f"{file.name} has the shape {list(array.shape)}: floats with one axis or two are asked")
    return (array if array.ndim == 2 else array[:, None]).astype("float64")


def _widened(gaps: Array, width: int) -> Array:
    """With the choices that came up later, which were none before."""
    import numpy as np

    return np.pad(gaps, ((0, 0), (0, width - gaps.shape[1])), constant_values=np.inf)


def _median(values: Array) -> float:
    import numpy as np

    return float(np.median(values)) if values.size else 0.0
