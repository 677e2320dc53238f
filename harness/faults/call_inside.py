"""Faults of calls inside a rank, at the seam of the ledger.

Standard library and `harness.rank` only.

Arrays are torch's or MLX's: only what both have is asked of them.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

from harness.ledger.inside import seam
from harness.ledger.inside.seam import StruckCall, Unfit

# What the rank tells: fault, what, operation, nth, site, and what more the kind proves. Or `why` it
# could not.
TOLD = "fault.call"
# Types of as many bytes, in which the same bits mean something else.
OTHER_TYPES = {
    "float64": "int64",
    "int64": "float64",
    "float32": "int32",
    "int32": "float32",
    "float16": "bfloat16",
    "bfloat16": "float16",
    "int8": "uint8",
    "uint8": "int8",
}
Emit = Callable[[str, dict[str, Any]], None]


def inside(order: Mapping[str, Any], emit: Emit) -> None:
    """Wait for the call that is to be struck.

    Args:
        order: what `CallFault.inside` gave, and the fault's id as `fault`.
        emit: emits an event.
    """
    seam.expect(CallStrike(order, emit))


class CallStrike:
    """One fault that waits for its call, and does what it is for."""

    def __init__(self, order: Mapping[str, Any], emit: Emit) -> None:
        self._order = order
        self._emit = emit
        self._acts = {
            "skip": self._skip,
            "repeat": self._repeat,
            "reorder": self._hold,
            "stale": self._stale,
            "halves": self._halves,
            "shape": self._shape,
            "dtype": self._dtype,
            "lost": self._lost,
            "doubled": self._doubled,
        }
        self._count = 0
        self._held: StruckCall | None = None
        self._earlier: list[Any] | None = None
        self._lock = threading.Lock()

    def takes(self, call: StruckCall) -> bool:
        order = self._order
        if self._held is not None:
            return True
        if order["operation"] not in (None, call.operation) or call.operation not in order["only"]:
            return False
        if order["line"] is not None and call.site.partition(" in ")[0] != order["line"]:
            return False
        self._count += 1
        if order["what"] == "stale" and self._count == order["nth"] - 1:
            self._earlier = _payload(call)
        return bool(self._count == order["nth"])

    def act(self, call: StruckCall) -> Any:
        if self._held is not None:
            return self._overtake(call)
        try:
            return self._acts[self._order["what"]](call)
        except Unfit as why:
            self._tell(call, why=str(why))
            return call.make()

    def _tell(self, call: StruckCall, **more: Any) -> None:
        order = self._order
        about = {"fault": order["fault"], "what": order["what"], "nth": order["nth"]}
        self._emit(TOLD, {**about, "operation": call.operation, "site": call.site, **more})

    def _skip(self, call: StruckCall) -> Any:
        result = call.pretend()
        self._tell(call)
        return result

    def _repeat(self, call: StruckCall) -> Any:
        self._tell(call)
        return call.after(call.make())

    def _hold(self, call: StruckCall) -> Any:
        result = call.pretend()
        with self._lock:
            self._held = call
        return result

    def _overtake(self, call: StruckCall) -> Any:
        with self._lock:
            held = self._held
            self._held = None
        if held is None:
            return call.make()  # another thread was faster
        self._tell(held, overtaken_by=call.operation, by_site=call.site)
        result = call.make()
        held.make()
        return result

    def _stale(self, call: StruckCall) -> Any:
        def earlier(now: list[Any]) -> list[Any]:
            if not self._earlier:
                raise Unfit("there is no earlier call whose payload could be sent again")
            if [(one.shape, one.dtype) for one in now] != [
                (one.shape, one.dtype) for one in self._earlier
            ]:
                raise Unfit("the tensors of the previous call had a different shape or dtype")
            return self._earlier

        return self._give(call, earlier)

    def _halves(self, call: StruckCall) -> Any:
        def swapped(array: Any) -> Any:
            flat = array.reshape(-1)
            return call.library.roll(flat, flat.shape[0] // 2).reshape(array.shape)

        return self._give(call, lambda now: [swapped(one) for one in now])

    def _lost(self, call: StruckCall) -> Any:
        _demand_a_sum(call)
        return self._give(call, lambda now: [call.library.zeros_like(array) for array in now])

    def _doubled(self, call: StruckCall) -> Any:
        _demand_a_sum(call)
        return self._give(call, lambda now: [array + array for array in now])

    def _give(self, call: StruckCall, change: Callable[[list[Any]], list[Any]]) -> Any:
        """Make a call with another payload, and tell what both are."""
        now = [call.copy(array) for array in call.payload()]
        if not now:
            raise Unfit("the rank sends nothing in this call")
        changed = change(now)
        before, after = (
            hashlib.sha256(call.bytes_of(arrays)).hexdigest() for arrays in (now, changed)
        )
        if before == after:
            raise Unfit("this fault does not change the payload of the call")
        self._tell(call, before=before, after=after)
        return call.give(changed)

    def _shape(self, call: StruckCall) -> Any:
        def shorter(array: Any) -> Any:
            flat = array.reshape(-1)
            if flat.shape[0] < 2:
                raise Unfit("its array has fewer than two elements")
            return flat[:-1]

        return self._state(call, shorter)

    def _dtype(self, call: StruckCall) -> Any:
        def viewed(array: Any) -> Any:
            other = OTHER_TYPES.get(_type_of(array))
            if other is None:
                raise Unfit(f"its array has type {_type_of(array)}, which has no replacement type")
            if not array.shape:
                raise Unfit("its array has no dimensions, so it cannot be sent as another type")
            return array.view(getattr(call.library, other))

        return self._state(call, viewed)

    def _state(self, call: StruckCall, change: seam.Change) -> Any:
        """Make a call with other arrays, and tell how they differ."""
        if not call.payload():
            raise Unfit("the rank sends nothing in this call")
        stated: dict[str, Any] = {}

        def noted(array: Any) -> Any:
            changed = change(array)
            stated["before"] = [_type_of(array), list(array.shape)]
            stated["after"] = [_type_of(changed), list(changed.shape)]
            return changed

        return call.state(noted, tell=lambda: self._tell(call, **stated))


def _payload(call: StruckCall) -> list[Any] | None:
    try:
        return [call.copy(array) for array in call.payload()]
    except Unfit:
        return None


def _demand_a_sum(call: StruckCall) -> None:
    if call.reduction != "sum":
        raise Unfit(f"it is a {call.reduction or 'call without a reduction'}, not a sum")


def _type_of(array: Any) -> str:
    return str(array.dtype).rpartition(".")[2]
