"""Arrays and tensors of every layout: they come exactly as they are, or are refused before anything
is sent.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rankproof_integrity import Misused, ReliableMessageTransport, TorchTensors
from rankproof_integrity.tensors import TOGETHER, torch_bytes

BASE = np.arange(24, dtype="f4").reshape(4, 6)
COME = {
    "strided": BASE[:, ::2],
    "backwards": BASE[::-1],
    "transposed": BASE.T,
    "Fortran": np.asfortranarray(BASE),
    "broadcast": np.broadcast_to(np.float32(1), (3, 4)),
    "of no dimensions": np.array(1.5),
    "empty": np.zeros((0, 3)),
    "big-endian": np.arange(3, dtype=">i4"),
    "fields": np.array([(1, 2.5)], dtype=[("Out", "i4"), ("P", "f8")]),
    "bool": np.array([True, False]),
    "float16": np.ones(3, "f2"),
    "complex": np.ones(3, "c8"),
    "long double": np.ones(3, "g"),
    "text": np.array(["ab"]),
    "void": np.zeros(3, "V4"),
    "gaps in bytes": memoryview(b"abcdef")[::2],
}


@pytest.fixture(scope="module")
def met(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two transports that know each other."""
    a, b = (ReliableMessageTransport(node=name) for name in "ab")
    with a, b:
        a.expect("b")
        b.connect("a", a.listen(str(tmp_path_factory.mktemp("met") / "a")))
        yield a, b


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("kind", COME)
def test_an_array_of_any_layout_comes_as_it_is(met: Any, kind: str, readonly: bool) -> None:
    """Its elements in the order of its indices, whether it may be written to or not."""
    a, b = met
    sent = COME[kind]
    if readonly and isinstance(sent, np.ndarray):
        sent = sent.view()
        sent.flags.writeable = False
    b.send(sent, to="a")
    assert bytes(a.receive(source="b", timeout=20).data) == sent.tobytes()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (np.array([object(), None]), "of dtype object contains addresses"),
        (np.array([(1, None)], dtype=[("a", "i4"), ("b", "O")]), "contains addresses"),
        ((ctypes.c_void_p * 2)(1, 2), "contains addresses"),
        (
            np.array(["2020-01-01"], dtype="M8[D]"),
            r'send array.view\("i8"\), and view the received array as datetime64\[D\]',
        ),
        (np.ma.masked_array([1, 2], mask=[0, 1]), "has a mask, which is not part of its bytes"),
        ([1, 2], "a message must be a buffer, but builtins.list is not"),
        (None, "a message must be a buffer, but builtins.NoneType is not"),
    ],
    ids=[
        "objects",
        "an object among fields",
        "addresses of C",
        "dates",
        "masked",
        "list",
        "nothing",
    ],
)
def test_what_its_bytes_do_not_tell_is_refused(met: Any, given: Any, words: str) -> None:
    """Addresses would come as numbers, and a mask not at all; the next message goes as ever."""
    a, b = met
    with pytest.raises(Misused, match=words):
        b.send(given, to="a")
    b.send(b"next", to="a")
    assert a.receive(source="b", timeout=20).data == b"next"


class Way:
    """Takes the place of torch.distributed's send and recv: the memory of a tensor, as it lies."""

    def __init__(self) -> None:
        self.sent: deque[Any] = deque()

    def send(self, tensor: Any, *, dst: int, group: Any) -> None:
        del dst, group
        assert tensor.is_contiguous()
        assert not tensor.is_conj()
        self.sent.append(bytes(torch_bytes(tensor)))

    def recv(self, tensor: Any, *, src: int, group: Any) -> None:
        import torch

        del src, group
        came = self.sent.popleft()
        assert len(came) == tensor.nbytes
        if came:
            tensor.detach().reshape(-1).view(torch.uint8).copy_(
                torch.frombuffer(bytearray(came), dtype=torch.uint8)
            )


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> tuple[TorchTensors, TorchTensors]:
    """Two ranks in one process."""
    torch = pytest.importorskip("torch")
    way = Way()
    monkeypatch.setattr(torch.distributed, "send", way.send)
    monkeypatch.setattr(torch.distributed, "recv", way.recv)
    return TorchTensors(rank=0), TorchTensors(rank=1)


def tensors(count: int) -> dict[str, Any]:
    import torch

    base = torch.arange(2 * count, dtype=torch.float32)
    numbers = torch.complex(base, base + 1)
    return {
        "strided": base[::2],
        "transposed": base.reshape(2, count).t(),
        "expanded": torch.ones(1).expand(count),
        "bfloat16": base.bfloat16(),
        "with a gradient": base.clone().requires_grad_() * 2,
        "a parameter": torch.nn.Parameter(base.clone()),
        "complex": numbers,
        "conjugated": numbers.conj(),
        "negated": numbers.conj().imag,
        "adjoint": numbers.reshape(2, count).mH,
        "bool": base > 3,
        "empty": torch.zeros(0, 3),
        "of no dimensions": torch.tensor(2.5),
    }


@pytest.mark.slow
@pytest.mark.parametrize("count", [5, TOGETHER])
def test_a_tensor_of_any_layout_comes_as_it_is(
    two: tuple[TorchTensors, TorchTensors], count: int
) -> None:
    """Strides, views that conjugate or negate, gradients and any dtype, of few elements and of
    many.
    """
    import torch

    for name, sent in tensors(count).items():
        two[0].send(sent, to=1)
        into = torch.full(sent.shape, 7, dtype=sent.dtype)
        two[1].receive(into, source=0)
        assert torch.equal(into, sent), name
        assert bytes(torch_bytes(into)) == bytes(torch_bytes(sent)), name


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("count", [5, TOGETHER])
def test_a_tensor_without_its_elements_in_memory_is_refused(
    two: tuple[TorchTensors, TorchTensors], count: int
) -> None:
    """Neither sent nor filled, and the next one goes as ever: nothing was said of those."""
    import torch

    plain = torch.ones(count, 2)
    for odd in (
        plain.to_sparse(),
        plain.to_sparse_csr(),
        plain.to("meta"),
        plain.to_mkldnn(),
        plain.tolist(),
    ):
        with pytest.raises(Misused, match="cannot be sent: "):
            two[0].send(odd, to=1)
        with pytest.raises(Misused, match=r"filled|to receive into"):
            two[1].receive(odd, source=0)
    with pytest.raises(Misused, match="must be contiguous"):
        two[1].receive(plain.t(), source=0)
    two[0].send(plain, to=1)
    two[1].receive(plain.zero_(), source=0)
    assert plain.all()


@pytest.mark.slow
@pytest.mark.parametrize("count", [6, TOGETHER])
def test_who_takes_a_tensor_for_another_kind_is_told(
    two: tuple[TorchTensors, TorchTensors], count: int
) -> None:
    """As many bytes of another dtype or shape would pass as good numbers."""
    import torch

    for into, words in (
        (
            torch.zeros(count, dtype=torch.float16),
            "sent as torch.bfloat16 and received as torch.float16",
        ),
        (
            torch.zeros(count // 2, 2, dtype=torch.bfloat16),
            r"sent in a shape other than \(\d+, 2\)",
        ),
    ):
        two[0].send(torch.ones(count, dtype=torch.bfloat16), to=1)
        with pytest.raises(Misused, match=words):
            two[1].receive(into, source=0)
    two[0].send(torch.ones(count), to=1)
    two[1].receive(taken := torch.zeros(count), source=0)
    assert taken.all()


@pytest.mark.slow
def test_one_thread_may_receive_while_another_sends(
    two: tuple[TorchTensors, TorchTensors], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes meanwhile, of the same size, does not get among what goes."""
    import torch

    two[1].send(torch.full((4,), 2.0), to=0)
    seal: Callable[..., Any] = two[0]._seals.seal

    def meanwhile(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(two[0]._seals, "seal", seal)
        two[0].receive(torch.zeros(4), source=1)
        return seal(*given, **named)

    monkeypatch.setattr(two[0]._seals, "seal", meanwhile)
    two[0].send(torch.full((4,), 1.0), to=1)
    two[1].receive(into := torch.zeros(4), source=0)
    assert into.tolist() == [1.0] * 4
