"""Every operator of a sweep, with its axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from harness.series.operators.cells import Library, Operator

# -- torch.distributed -----------------------------------------------------------------------------

FLOATS = ("float32", "float64", "bfloat16", "float16")
TORCH_DTYPES = (
    *FLOATS,
    *("int64", "int32", "int16", "int8", "uint8", "bool", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64"),
)
SHAPES = ("1", "2", "3", "2x2", "3x4", "7", "5x1", "2x3x2", "scalar", "0", "0x3", "65")
INPUTS = ("contiguous", "offset", "strided", "columns", "rows", "transposed", "conj")
OUTPUTS = INPUTS
CALLS = ("sync", "async")
COALESCED = (*CALLS, "coalesced")
OPS = ("sum", "max", "min", "product", "avg", "band", "bor", "bxor")
VALUES = ("plain", "nan", "inf", "-inf", "-0")
ROOTS = ("first", "last")
COMMON: Final[Mapping[str, Sequence[str]]] = {
    "shape": SHAPES,
    "dtype": TORCH_DTYPES,
    "layout": INPUTS,
    "values": VALUES,
}
EXPANDED = (*INPUTS, "expanded")
THROUGH = {"layout": EXPANDED, "out": OUTPUTS}
COLLECTIVES: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "all_reduce": {"op": OPS, "call": COALESCED},
    "broadcast": {"root": ROOTS, "call": CALLS},
    "reduce": {"op": OPS, "root": ROOTS, "call": CALLS},
    "all_gather": {**THROUGH, "call": CALLS},
    "all_gather_into_tensor": {**THROUGH, "call": COALESCED},
    "reduce_scatter": {**THROUGH, "op": OPS, "call": CALLS},
    "reduce_scatter_tensor": {**THROUGH, "op": OPS, "call": COALESCED},
    "scatter": {**THROUGH, "root": ROOTS, "call": CALLS},
    "gather": {**THROUGH, "root": ROOTS, "call": CALLS},
    "all_to_all": {**THROUGH, "call": CALLS},
    "all_to_all_single": {**THROUGH, "call": CALLS},
    "send_recv": {**THROUGH, "call": CALLS},
}

# -- DTensor ---------------------------------------------------------------------------------------

PARTIAL = ("P:sum", "P:avg", "P:max", "P:min")
PLACEMENTS = ("S0", "S1", "R", *PARTIAL)
ON_A_MESH = (
    *("S0,S1", "S0,S0", "R,S0", "S1,R", "R,R", "P:sum,S0", "S0,P:sum", "P:sum,P:sum"),
    *("P:max,S1", "P:avg,R", "S1,S1", "S1,S0"),
)
THEN = (
    *("{}", "{}.float()", "{}.int()", "{} * 2", "{} + 1", "-{}", "{} / 2", "{}.abs()"),
    *(
        "{}.sum()",
        "{}.square()",
        "{} > 1",
        "{}.to(torch.float64)",
        "{} * {}",
        "{} + {}",
        "{} == {}",
    ),
    *("{} * -1", "{}.clone()", "{}.cumsum(0)", "{}.max()", "{}.mean()", "2 - {}", "{}.bool()"),
)
DTENSOR_SHAPES = ("4x6", "2x2", "1x2", "5x3", "3x5", "7x1", "6", "5", "2x3x4", "3x2x5", "1x1")
DTENSOR_DTYPES = ("float32", "float64", "int64", "int32", "bool", "bfloat16", "complex64")

# A number out of a DTensor (`.item()`) is what the rank holds, on purpose: pytorch#144054.
UNARY = """
x.clone() x.contiguous() x.abs() x.neg() x.square() x.sign() x.relu() x.exp().log() x.clamp(-2,3)
x.clamp(min=1) x.sqrt() x.pow(2) x.pow(3) x.reciprocal() x.sigmoid() x.tanh() x.floor() x.round()
x.logical_not() x.isnan() x.isfinite() x.bool() x.float() x.int() x.long() x.to(torch.float64)
x.half() x.bfloat16() x.real x.conj() x.sum() x.sum(0) x.sum(1) x.sum(-1,keepdim=True)
x.sum((0,1)) x.mean() x.mean(0) x.mean(1) x.mean(-1,keepdim=True) x.prod() x.prod(0) x.prod(1)
x.max() x.min() x.amax() x.amin() x.amax(0) x.amax(1) x.amin(0) x.amin(-1) x.max(0) x.max(1)
x.min(0) x.min(1) x.argmax() x.argmin() x.argmax(0) x.argmax(1) x.argmin(0) x.argmin(1) x.any()
x.all() x.any(0) x.any(1) x.all(0) x.all(1) x.aminmax() x.var() x.var(0) x.var(1) x.std() x.std(0)
x.std(1) x.var(unbiased=False) torch.var_mean(x) x.norm() x.norm(p=1) x.norm(p=float('inf'))
x.norm(p=0) x.norm(p=3) x.norm(dim=0) x.norm(dim=1) torch.linalg.vector_norm(x,ord=1,dim=0)
torch.linalg.vector_norm(x,ord=float('-inf')) torch.linalg.norm(x) x.logsumexp(0) x.logsumexp(1)
x.softmax(0) x.softmax(1) x.log_softmax(0) x.log_softmax(-1) x.cumsum(0) x.cumsum(1) x.cumprod(0)
x.cummax(0) x.cummin(1) x.logcumsumexp(0) x.sort(0) x.sort(1) x.argsort(0) x.topk(1,0) x.topk(2,1)
x.kthvalue(1,0) x.median() x.median(0) x.nanmedian() x.mode(0) x.nonzero() x.count_nonzero()
x.count_nonzero(0) x.unique() x.flip(0) x.flip(1) x.flip(0,1) x.roll(1,0) x.roll(1,1) x.roll(1)
x.rot90() x.t() x.T x.transpose(0,1) x.permute(1,0) x.view(-1) x.reshape(-1) x.flatten()
x.reshape(2,-1) x.reshape(-1,2) x.view(1,-1) x.unsqueeze(0) x.unsqueeze(-1) x.squeeze()
x.unsqueeze(0).squeeze(0) x.expand(2,*x.shape) x.repeat(2,1) x.repeat(1,2)
x.repeat_interleave(2,0) x.tile(2) x.unflatten(0,(2,-1)) x.chunk(2) x.chunk(2,1) x.split(1)
x.split(2,1) x.split(3) x.tensor_split(2) x.unbind(0) x.unbind(1) x[0] x[-1] x[:1] x[1:] x[:,0]
x[:,1:] x[::2] x[:,::2] x[...,None] x[[0,1]] x[:,[0,1]] x[x>0] x.select(0,0) x.select(1,-1)
x.narrow(0,0,1) x.narrow(1,1,1) x.index_select(0,torch.tensor([0])) x.diagonal() x.diag()
x.trace() x.tril() x.triu() x.tril(1) x.triu(-1) F.pad(x,(1,1)) F.pad(x,(0,0,1,0))
F.pad(x,(1,0),value=3) torch.zeros_like(x) torch.ones_like(x) torch.full_like(x,3)
x.new_zeros(2,3) x.new_ones(x.shape) x.fill_(2) x.zero_() x.add_(1) x.mul_(2) x.neg_()
x.clamp_(min=0) x.masked_fill(x>1,0) x.masked_fill_(x>1,-1) torch.where(x>0,x,-x)
torch.where(x>0,x,0) x.cat([x]) torch.cat([x,x]) torch.cat([x,x],1) torch.stack([x,x])
torch.stack([x,x],1) F.gelu(x) F.silu(x) F.layer_norm(x,x.shape[-1:]) F.rms_norm(x,x.shape[-1:])
F.normalize(x) F.normalize(x,dim=0) F.one_hot(x.long().abs()) x.bincount() x.histc(4)
torch.bucketize(x,torch.tensor([0.,2.])) x.dist(x*2) x.numel() x.equal(x) x.allclose(x)
x.matmul(x.T) x@x.T x.T@x x.mm(x.t()) F.dropout(x,0.) F.softplus(x) F.leaky_relu(x) F.hardtanh(x)
F.glu(x) x.lerp(x*2,0.5) torch.linalg.det(x@x.T) x.logdet() x.cov() x.diff() x.diff(dim=0)
x.renorm(2,0,1) torch.cdist(x,x) x.logical_and(x) x.remainder(3) x.fmod(3) x.floor_divide(2) x%3
x//2 x.bitwise_not() x.mul(x).sum() x.nansum() x.nanmean() x.sum(dtype=torch.float64)
x.scatter(0,(x*0).long(),1) torch._foreach_norm([x]) torch._foreach_add([x],1)
torch._foreach_mul([x],2) torch._foreach_max([x]) torch.nn.utils.get_total_norm([x])
F.max_pool1d(x,2) F.avg_pool1d(x,2) F.interpolate(x[None],scale_factor=2) F.unfold(x[None,None],2)
""".split()  # noqa: SIM905 - a list of these would be ten times as long
BINARY = """
x+y x-y x*y x/y x//y x%y x**2+y x==y x>y x<=y torch.maximum(x,y) torch.minimum(x,y)
torch.where(x>y,x,y) torch.add(x,y,alpha=2) torch.cat([x,y]) torch.cat([x,y],1) torch.stack([x,y])
torch.stack([x,y],-1) x@y.T x.T@y torch.mm(x,y.t()) torch.addmm(x@y.T,x,y.T)
torch.addmm(x@y.T,x,y.T,beta=2,alpha=3) torch.outer(x.flatten(),y.flatten())
torch.dot(x.flatten(),y.flatten()) F.linear(x,y) F.linear(x,y,y[:,0])
torch.einsum('ij,kj->ik',x,y) torch.bmm(x[None],y.T[None])
torch.baddbmm((x@y.T)[None],x[None],y.T[None]) x.mul(y).sum() x.add_(y) x.mul_(y) x.copy_(y)
x.addcmul(x,y) x.addcdiv(x,y) torch.lerp(x,y,0.5) F.mse_loss(x,y) F.mse_loss(x,y,reduction='sum')
F.mse_loss(x,y,reduction='none') F.l1_loss(x,y) F.smooth_l1_loss(x,y) F.kl_div(x,y)
F.cosine_similarity(x,y) F.cross_entropy(x,y[:,0].long()%x.shape[1])
F.cross_entropy(x,y[:,0].long()%x.shape[1],reduction='sum')
F.cross_entropy(x,y[:,0].long()%x.shape[1],ignore_index=1)
F.cross_entropy(x,y[:,0].long()%x.shape[1],label_smoothing=0.5)
F.nll_loss(x,y[:,0].long()%x.shape[1]) F.binary_cross_entropy_with_logits(x,y)
F.embedding(y.long()%x.shape[0],x) F.embedding(y.long()%x.shape[0],x,padding_idx=0)
x.gather(0,(y.long()%x.shape[0])) x.gather(1,(y.long()%x.shape[1]))
x.scatter(0,y.long()%x.shape[0],1) x.scatter_add(0,y.long()%x.shape[0],x)
x.index_select(0,y.flatten()[:2].long()%x.shape[0])
x.index_add(0,y.flatten()[:1].long()%x.shape[0],x[:1])
x.index_put((y.flatten()[:1].long()%x.shape[0],),x[:1]) x[y[:,0].long()%x.shape[0]]
x.masked_fill(y>2,0) torch.where(y>2,x,0) x.equal(y) torch.allclose(x,y) x.logical_or(y)
x.logical_xor(y) torch.atan2(x,y) torch.hypot(x,y) torch.bucketize(x,torch.tensor([1.,2.]))+y
torch.cross(x[:,:3],y[:,:3],dim=1) torch.kron(x,y) F.layer_norm(x,x.shape[-1:],y[0],y[1])
F.scaled_dot_product_attention(x[None,None],y[None,None],x[None,None])
torch.searchsorted(x.sort(-1)[0],y) x.dist(y) torch._foreach_add([x],[y])
torch._foreach_mul([x],[y]) torch._foreach_norm([x,y]) torch.nn.utils.get_total_norm([x,y])
x.lerp(y,0.25) x.fmod(y) x.isclose(y) torch.tensordot(x,y,2) x.vdot(y) torch.block_diag(x,y)
""".split()  # noqa: SIM905 - likewise


# -- MLX -------------------------------------------------------------------------------------------

MLX_DTYPES = (
    *("float32", "float16", "bfloat16", "int32", "int64", "int16", "int8"),
    *("uint8", "uint16", "uint32", "uint64", "bool_", "complex64", "float64"),
)
MLX_LAYOUTS = ("contiguous", "strided", "columns", "transposed", "reversed", "expanded")
TRANSFORMS = ("plain", "gradient", "vmap", "vmap-columns", "compile")
MLX = ("all_sum", "all_max", "all_min", "all_gather", "send_recv", "sum_scatter")

# -- files -----------------------------------------------------------------------------------------

FILE_SHAPES = ("1", "2", "2x2", "3x4", "3", "2x3x2", "scalar", "0", "0x3", "65")
FILE_DTYPES = {
    "numpy": (
        *("float32", "float64", "float16", "int64", "int32", "int16", "int8"),
        *("uint8", "uint16", "uint32", "uint64", "bool", "complex64", "complex128"),
    ),
    "torch": TORCH_DTYPES,
    "mlx": MLX_DTYPES,
}
FILE_LAYOUTS = {
    "numpy": (
        *("contiguous", "fortran", "transposed", "strided", "columns", "reversed"),
        *("expanded", "big-endian", "read-only"),
    ),
    "torch": (*EXPANDED, "negated"),
    "mlx": MLX_LAYOUTS,
}
ROUND_TRIPS = """
numpy>numpy.save numpy>numpy.savez numpy>pickle numpy>safetensors.numpy.save
numpy>safetensors.numpy.save_file numpy>gguf.GGUFWriter numpy>torch.from_numpy
numpy>torch.from_dlpack numpy>mlx.array torch>torch.save torch>torch.load(mmap=True)
torch>torch.distributed.checkpoint torch>pickle torch>copy.deepcopy torch>safetensors.torch.save
torch>safetensors.torch.save_file torch>safetensors.get_slice
torch>huggingface_hub.save_torch_state_dict torch>numpy.array torch>numpy.from_dlpack
torch>mlx.array mlx>mlx.save mlx>mlx.savez mlx>mlx.save_safetensors mlx>mlx.save_gguf
mlx>safetensors.mlx.save mlx>safetensors.mlx.save_file mlx>numpy.array mlx>memoryview
mlx>numpy.from_dlpack mlx>torch.from_dlpack mlx>copy.deepcopy mlx>pickle
""".split()  # noqa: SIM905 - likewise

# -- all of them -----------------------------------------------------------------------------------


def _spaces() -> dict[str, dict[str, Sequence[str]]]:
    """Return the axes of every space."""
    spaces: dict[str, dict[str, Sequence[str]]] = {
        name: {**COMMON, **axes} for name, axes in COLLECTIVES.items()
    }
    spaces["mlx, sent"] = {
        "shape": (*SHAPES, "4000"),
        "dtype": MLX_DTYPES,
        "layout": MLX_LAYOUTS,
        "values": VALUES,
    }
    # Sending and receiving are evaluated in an order of ours, which a transformation has not.
    spaces["mlx"] = {**spaces["mlx, sent"], "transform": TRANSFORMS}
    for source, dtypes in FILE_DTYPES.items():
        layouts = FILE_LAYOUTS[source]
        spaces[f"{source} file"] = {"shape": FILE_SHAPES, "dtype": dtypes, "layout": layouts}
    for name, placements in (("dtensor", PLACEMENTS), ("dtensor on a mesh", ON_A_MESH)):
        spaces[name] = {
            "shape": DTENSOR_SHAPES,
            "dtype": DTENSOR_DTYPES,
            "placement": placements,
            "then": THEN,
            "gradient": ("no", "yes"),
        }
        spaces[f"{name}, of two"] = {**spaces[name], "other": placements}
    return spaces


SPACES: Final = _spaces()
USUAL: Final = {"shape": "3x4"}
OF_MESHES: Final = 4
"""World size of a mesh of two dimensions."""


def _operator(library: Library, name: str, space: str, usual: dict[str, str]) -> Operator:
    axes = {axis: list(values) for axis, values in SPACES[space].items()}
    return Operator(library=library, name=name, space=space, axes=axes, usual=usual)


def operators(library: Library, *, ranks: int) -> list[Operator]:
    """Return every operator of a library that a world of this size can try."""
    if library == "collectives":
        return [_operator(library, name, name, USUAL) for name in COLLECTIVES]
    if library == "mlx":
        sent = {"send_recv": "mlx, sent"}
        return [_operator(library, name, sent.get(name, "mlx"), USUAL) for name in MLX]
    if library == "files":
        return [
            _operator(library, name, f"{name.partition('>')[0]} file", USUAL)
            for name in ROUND_TRIPS
        ]
    space = "dtensor on a mesh" if ranks == OF_MESHES else "dtensor"
    two = f"{space}, of two"
    return [
        *(_operator(library, name, space, {}) for name in UNARY),
        *(_operator(library, name, two, {}) for name in BINARY),
    ]


RANKS: Final[Mapping[Library, tuple[int, ...]]] = {
    "collectives": (2, 3),
    "mlx": (2, 3),
    "files": (1,),
    "dtensors": (2, 3, OF_MESHES),
}
