"""Decoder of transformers as a pipeline: each rank has some of its layers, in order, and hands on
the hidden state.

What lies beside the layers belongs to the ends. Embeddings, and a norm over them, are the first
stage's, other norms and the head the last one's; what has no parameters (rotary positions) every
stage has. A decoder with something else beside its layers is refused, because nobody said where it
belongs.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from . import checkpoint
from .handover import Handover

# What a layer calls its place in the cache; the second is GPT-Neo's.
PLACES = ("layer_idx", "layer_id")
# Where a stage's model remembers the path of its layers: by their number other lists may be taken
# for them.
KNOWN = "_path_of_layers"
DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class Stage:
    """Stage that one rank is in a pipeline of `size` ranks.

    Attributes:
        first: number of its first layer in the whole model.
        altered: what a defect makes of each message that it gets.
    """

    def __init__(self, handover: Handover, *, rank: int, size: int) -> None:
        self._handover = handover
        self._rank = rank
        self._size = size
        self.first = 0
        self._end = 0
        self.altered: Callable[[Tensor], Tensor] | None = None
        self._received: Tensor | None = None
        self._has_run = False  # its first layer, in this step
        self._left: Tensor | None = None
        self._like = torch.zeros(0)
        self._prefix = ""
        self._vocabulary = 0

    @property
    def is_first(self) -> bool:
        return self._rank == 0

    @property
    def is_last(self) -> bool:
        return self._rank == self._size - 1

    def load(self, folder: str, config: Any, *, dtype: torch.dtype) -> Any:
        """Return the model with this rank's layers alone, whose forward pass takes and gives hidden
        states.

        Raises:
            ValueError: fewer layers than ranks, or parts that no rule gives to a stage.
        """
        import transformers

        auto: Any = transformers.AutoModelForCausalLM  # whose functions have no types
        text = config.get_text_config()
        self._vocabulary = text.vocab_size
        number = text.num_hidden_layers
        if number < self._size:
            raise ValueError(
                f"{number} layers cannot be split over {self._size} ranks; use fewer ranks"
            )
        self.first, self._end = share(number, size=self._size, rank=self._rank)
        with torch.device("meta"):
            skeleton = auto.from_config(config, dtype=dtype)
        path = path_of_layers(skeleton)
        many = len(skeleton.get_submodule(path))
        if many != number:
            raise ValueError(
                f"{type(skeleton).__name__} has {many} layers, but num_hidden_layers of its"
                f" configuration is {number}, so hf-pipeline cannot split it"
            )
        self._prefix = f"{path}."
        foreign = [
            part for part, owner in parts_beside(skeleton, path).items() if not self._has(owner)
        ]
        base = skeleton.base_model_prefix
        state = read(folder, skip=lambda name: self._is_foreign(name, foreign, base=base))
        # transformers' own loader renames and stacks what checkpoints name otherwise. What is
        # missing, the other ranks' layers, it fills with numbers; they are removed below.
        model, loading = type(skeleton).from_pretrained(
            None, config=config, state_dict=state, dtype=dtype, output_loading_info=True
        )
        demand_whole(loading, missing=lambda name: not self._is_foreign(name, foreign))
        for part in foreign:
            is_embedding = isinstance(model.get_submodule(part), nn.Embedding)
            _replace(model, part, Gap(text.hidden_size, dtype) if is_embedding else Through(dtype))
        self._cut(model, path)
        self._like = torch.zeros(1, 0, text.hidden_size, dtype=dtype)
        return model

    def _cut(self, model: Any, path: str) -> None:
        """Leave this stage's layers alone in a model, as its only ones."""
        layers = list(layers_of(model))
        kept = nn.ModuleList(layers[self.first : self._end])
        _replace(model, path, kept)
        setattr(model, KNOWN, path)
        for module, place in product(kept.modules(), PLACES):
            if isinstance(number := getattr(module, place, None), int):
                setattr(module, place, number - self.first)
        # The cache, and the masks of layers that differ, are made from the configuration.
        holder, _, name = path.rpartition(".")
        text = model.config.get_text_config()
        cut_by_number(
            model.get_submodule(holder), name, text, kept=(self.first, self._end), of=len(layers)
        )
        text.num_hidden_layers = len(kept)
        kept[0].register_forward_pre_hook(self._enter, with_kwargs=True)
        kept[-1].register_forward_hook(self._leave)

    def _has(self, owner: str) -> bool:
        return (self.is_first and owner != "last") or (self.is_last and owner != "first")

    def _is_foreign(self, name: str, foreign: Sequence[str], *, base: str = "") -> bool:
        """Return whether a tensor is of another stage's layers, or of a part that this one has not.

        A checkpoint may name it without the base.
        """
        for full in (name, f"{base}.{name}"):
            if match := re.match(re.escape(self._prefix) + r"(\d+)\.", full):
                return not self.first <= int(match[1]) < self._end
            if any(full.startswith(f"{part}.") for part in foreign):
                return True
        return False

    def original(self, name: str) -> str:
        """Return the name in the whole model of a parameter of this stage."""
        match = re.match(re.escape(self._prefix) + r"(\d+)(\..*)", name)
        return f"{self._prefix}{int(match[1]) + self.first}{match[2]}" if match else name

    def begin(self) -> None:
        """Begin a prompt."""
        self._handover.begin(vocabulary=self._vocabulary)

    def receive(self, *, tokens: int) -> None:
        """Take the hidden state `[1, tokens, width]` of the stage before."""
        self._has_run = False
        if not self.is_first:
            self._received = self._like.new_empty(1, tokens, self._like.shape[2])
            self._handover.receive(self._received)
            if self.altered is not None:
                self._received = self.altered(self._received)

    def _enter(self, _module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if self._has_run:
            raise ValueError(
                f"the decoder runs layer {self.first} more than once in a step, so hf-pipeline"
                " cannot split it"
            )
        self._has_run = True
        if self._received is None:
            return None
        if given:
            return (self._received, *given[1:]), named
        return given, {**named, "hidden_states": self._received}

    def _leave(self, _module: nn.Module, _given: Any, output: Any) -> None:
        self._left = output[0] if isinstance(output, tuple) else output

    def send(self) -> None:
        """Hand the hidden state to the next stage."""
        if not self.is_last:
            assert self._left is not None
            self._handover.send(self._left)

    def agree(self, token: int | None) -> int:
        """Return the token that the last stage chose, on every rank."""
        return self._handover.agree(token)


class Gap(nn.Module):
    """Stands where the first stage has an embedding: zeros of its shape, which the hidden state
    takes the place of.
    """

    def __init__(self, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        self._width = width
        self._dtype = dtype
        # Llama 4 asks the weight where it lies; in no checkpoint, and of no rank's share.
        self.register_buffer("weight", torch.zeros(0, width, dtype=dtype), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        return torch.zeros(*ids.shape, self._width, dtype=self._dtype)


class Through(nn.Identity):
    """Stands where another stage has a norm or the head: what comes in goes out."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        # Zaya asks the dtype of its last norm's weight; in no checkpoint, and of no rank's share.
        self.register_buffer("weight", torch.zeros(0, dtype=dtype), persistent=False)


def demand_whole(loading: Any, *, missing: Callable[[str], bool] = lambda _name: True) -> None:
    """Demand that the checkpoint had every tensor, and none that nothing took: transformers only
    logs it.

    Args:
        loading: what `from_pretrained` says of it.
        missing: whether a tensor that the checkpoint lacks should be there.

    Raises:
        ValueError: it lacks some, or holds others.
    """
    lacks = sorted(name for name in loading["missing_keys"] if missing(name))
    if lacks:
        raise ValueError(
            f"the checkpoint lacks {len(lacks)} tensor{'s' * (len(lacks) != 1)}, such as"
            f" {lacks[0]}; use all of its files"
        )
    if others := sorted(loading["unexpected_keys"]):
        raise ValueError(
            f"the checkpoint contains {len(others)} tensor{'s' * (len(others) != 1)} that the model"
            " does not have, such as"
            f" {others[0]}"
        )


def share(layers: int, *, size: int, rank: int) -> tuple[int, int]:
    """Return the first and last (exclusive) layer of a rank: as even as can be, the first ranks
    have the more.
    """
    least, more = divmod(layers, size)
    begin = rank * least + min(rank, more)
    return begin, begin + least + (rank < more)


def path_of_layers(model: Any) -> str:
    """Return where the layers of a decoder are: the only list with as many modules with parameters
    as it has layers.

    Of none or several it is the one that the decoder calls its layers.

    Raises:
        ValueError: no rule says which.
    """
    if hasattr(model, KNOWN):
        return str(getattr(model, KNOWN))
    number = model.config.get_text_config().num_hidden_layers
    lists = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList)
        and name.count(".") <= 2
        # Granite has a list of rotary embeddings, one for each base.
        and all(any(True for _ in layer.parameters()) for layer in module)
    }
    paths = [name for name, module in lists.items() if len(module) == number]
    if len(paths) != 1 and (layers := _called_layers(model)) is not None:
        # A tower beside the decoder may have as many, and LongCat counts two for each.
        paths = [name for name, module in lists.items() if module is layers]
    if len(paths) != 1:
        raise ValueError(
            f"{type(model).__name__} has {len(paths)} lists of {number} layers, and no rule"
            " selects the list to split"
        )
    return str(paths[0])


def _called_layers(model: Any) -> nn.ModuleList | None:
    """Return what the decoder of a model, as its library tells which that is, calls its layers."""
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else None
    layers = getattr(decoder, "layers", None)
    return layers if isinstance(layers, nn.ModuleList) and decoder is not model else None


def is_tied(model: Any) -> bool:
    """Return whether embedding and head are one matrix, whatever the configurations of the whole
    and of its text say.
    """
    entrance = getattr(model.get_input_embeddings(), "weight", None)
    head = getattr(model.get_output_embeddings(), "weight", None)
    return entrance is not None and head is entrance


def layers_of(model: Any) -> Any:
    """Return the layers of a decoder."""
    return model.get_submodule(path_of_layers(model))


def parts_beside(model: Any, path: str) -> dict[str, str]:
    """Each module with parameters beside the layers, and whose it is: `first`, `last`, or `tied`
    (first and last).

    Raises:
        ValueError: a part that is neither an embedding nor a norm nor the head.
    """
    head = model.get_output_embeddings()
    entrance = model.get_input_embeddings()
    tied = is_tied(model)
    holder = path.rpartition(".")[0]
    owners: dict[str, str] = {}
    before = True  # so far: modules stand in the order in which they are made
    for name, module in model.get_submodule(holder).named_children():
        full = f"{holder}.{name}"
        before = before and full != path
        if full == path or not list(module.parameters()):
            continue
        if (
            isinstance(module, nn.Embedding)
            and len(inspect.signature(module.forward).parameters) == 1
        ):
            owners[full] = "tied" if module is entrance and tied else "first"
        elif "norm" in type(module).__name__.lower() and before == ("embed" in name):
            owners[full] = "first" if before else "last"  # BLOOM has one over its embeddings
        else:
            raise ValueError(
                f"{type(model).__name__} has {full} ({type(module).__name__}) outside its layers,"
                " and hf-pipeline does not know which stage it belongs to"
            )
    for name, module in model.named_children():
        if module is head:
            owners[name] = "last"
    return owners


def read(folder: str, *, skip: Callable[[str], bool]) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint but for those that are skipped, by name.

    Of the others no byte is read.

    Raises:
        ValueError: as `checkpoint.stored`, or a dtype that is not a float's.
    """
    tensors: dict[str, Tensor] = {}
    for name, tensor in checkpoint.stored(folder).items():
        if skip(name):
            continue
        if tensor.dtype not in DTYPES:
            raise ValueError(
                f"{name} has the dtype {tensor.dtype}, but hf-pipeline supports only"
                f" {', '.join(DTYPES)}"
            )
        data = torch.frombuffer(tensor.read(), dtype=torch.uint8)
        tensors[name] = data.view(DTYPES[tensor.dtype]).reshape(tensor.shape)
    return tensors


def local(tensor: Any) -> Tensor:
    """Return what this rank holds of a parameter: a DTensor's own part, which shares its memory."""
    part: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part.detach()


def _replace(model: Any, path: str, module: nn.Module) -> None:
    holder, _, name = path.rpartition(".")
    setattr(model.get_submodule(holder) if holder else model, name, module)


TYPES = "layer_types"
"""What caches and masks are made of, whether or not a loop asks it."""
OWN = "self"
CONFIGURED = "self.config"
COMPARED = "compared"
"""What a loop does with a number: it indexes a list of the decoder, one of its configuration, or
compares it.
"""


def cut_by_number(holder: Any, layers: str, text: Any, *, kept: tuple[int, int], of: int) -> None:
    """Cut what is found by the number of a layer: lists with one for each, of the configuration or
    of the decoder.

    A stage has some of the layers, and its loop counts them from 0. What the loop does with their
    numbers is read from its source.

    Args:
        holder: the module that has the layers and calls them one after the other.
        layers: its attribute that holds them.
        text: the configuration of the text model.
        kept: the first layer that is kept, and the first behind it that is not.
        of: how many the whole model has.

    Raises:
        ValueError: the loop does something else with the number of a layer, or a list cannot be
            cut.
    """
    begin, end = kept
    lists = [(text, TYPES)]
    for use, name in found_by_number(type(holder).forward, layers):
        if use == COMPARED and isinstance(getattr(holder, name), int):
            setattr(holder, name, getattr(holder, name) - begin)
        elif use in (OWN, CONFIGURED):
            lists.append((holder if use == OWN else holder.config, name))
        else:
            raise ValueError(
                f"{type(holder).__name__} uses the indices of its layers ({name}), but each stage"
                " counts its layers from 0, so hf-pipeline cannot split it"
            )
    for place, name in lists:
        whole = getattr(place, name, None)
        if not isinstance(whole, list | tuple) or len(whole) != of:
            continue  # as a second name of what was cut
        try:
            setattr(place, name, whole[begin:end])
        except AttributeError:
            if all(kind == whole[0] for kind in whole):
                continue  # worked out from the number of layers, which the stage has its own of
            raise ValueError(
                f"{type(place).__name__} does not let {name} be set to that of one stage's layers,"
                " so hf-pipeline cannot split the model"
            ) from None


def found_by_number(forward: Any, layers: str) -> Iterator[tuple[str, str]]:
    """Yield what a loop over the layers uses their number for, and on what.

    `OWN` and `CONFIGURED` are lists of the decoder and its configuration that it indexes,
    `COMPARED` a number of the decoder, each with its name; anything else is an empty word with the
    expression. What is found in arguments that nobody gives here (states of images) is left out.
    Some of the layers, taken by their numbers (Dory runs those in the middle several times), are
    such an expression too.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(forward))))
    except OSError:
        return
    given = {argument.arg for argument in ast.walk(tree) if isinstance(argument, ast.arg)} - {
        "self"
    }
    for part in ast.walk(tree):
        if (
            isinstance(part, ast.Subscript)
            and ast.unparse(part.value) == f"self.{layers}"
            and not _is_of_all(part.slice)
        ):
            yield "", ast.unparse(part)
    for loop in ast.walk(tree):
        number = _number(loop, layers) if isinstance(loop, ast.For) else ""
        if isinstance(loop, ast.For) and number:
            for line in loop.body:
                for node, around in _uses(line, line, number):
                    names = {name.id for name in ast.walk(around) if isinstance(name, ast.Name)}
                    if around is line or not names & given:
                        yield _use(node, around)


def _is_of_all(index: ast.expr) -> bool:
    """Return whether layers are taken from the first on, up to a number that is configured."""
    return (
        isinstance(index, ast.Slice)
        and index.lower is None
        and index.step is None
        and isinstance(index.upper, ast.Attribute)
        and ast.unparse(index.upper.value) == CONFIGURED
    )


def _use(node: ast.AST, around: ast.AST) -> tuple[str, str]:
    """Return what the number is for, in the index or the comparison that it stands in."""
    if (
        isinstance(around, ast.Subscript)
        and around.slice is node
        and isinstance(around.value, ast.Attribute)
    ):
        if (owner := ast.unparse(around.value.value)) in (OWN, CONFIGURED):
            return owner, around.value.attr
    elif isinstance(around, ast.Compare) and around.left is node and len(around.comparators) == 1:
        other = around.comparators[0]
        if isinstance(other, ast.Attribute) and ast.unparse(other.value) == OWN:
            return COMPARED, other.attr
    return "", ast.unparse(around).partition("\n")[0]


def _number(loop: ast.For, layers: str) -> str:
    """Return what a loop over the layers calls their number.

    Empty where it does not count, or is over something else.
    """
    target = loop.target
    call = loop.iter
    if not isinstance(call, ast.Call) or ast.unparse(call.func) != "enumerate":
        return ""
    is_theirs = any(ast.unparse(node) == f"self.{layers}" for node in ast.walk(call))
    first = target.elts[0] if isinstance(target, ast.Tuple) else None
    return first.id if is_theirs and isinstance(first, ast.Name) else ""


def _uses(node: ast.AST, around: ast.AST, number: str) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Each use of a number below a node, with the smallest index or comparison that it stands
    in.
    """
    if isinstance(node, ast.Name) and node.id == number:
        yield node, around
    inner = node if isinstance(node, ast.Subscript | ast.Compare) else around
    for child in ast.iter_child_nodes(node):
        yield from _uses(child, inner, number)
