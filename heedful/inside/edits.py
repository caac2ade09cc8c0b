"""Edits: change what a model does inside, for as long as a `with` block lasts, in one thread.

    with edit(loaded, ["zero:cross.3.2", "force:cross.2.1:5>2"]):
        model.translate("The small girl eats a red apple.")

Edits work on the model's own modules, together with `watch` and `trace`; the fast paths are not taken
meanwhile. edit_spellings.py has all edits and their spellings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..errors import BadInput
from ..interop.loaded import Loaded
from ..models.base.shells import WithHeads, shells_of
from ..parts.before.lookup import Lookup
from ..parts.embeddings import Inputs
from ..parts.positions.base import index_of
from ..parts.view import View
from ..parts.watch import EDITORS, eagerly
from .edit_spellings import (
    DropSublayer,
    Edit,
    ForceHead,
    HeadChoice,
    MaskToken,
    MeanHead,
    Patch,
    RemovePositions,
    ScaleHead,
    StreamPlace,
    UniformHead,
    ZeroHead,
    parsed,
)
from .hooks import Hook, hooked
from .look.layers import kinds_of, mask_of, paths_of
from .model_inputs import forward, input_of
from .no_positions import without_positions
from .stacks import stacks_of
from .sublayer import ORDERS, residual_of

if TYPE_CHECKING:
    from .trace import Trace

HeadMeans = Mapping[tuple[str, int], Tensor]  # {(kind, layer): the mean output of its heads, joined}
Change = Callable[[View, Tensor], Tensor]
MASKS = ("[MASK]", "<mask>")
UNKNOWNS = ("[UNK]", "<unk>", "<|unk|>", "<|endoftext|>")  # GPT-2's only special token serves as both


@contextmanager
def edit(
    model: Any,
    edits: Sequence[Edit | str],
    *,
    traces: Mapping[str, Trace] | None = None,
    means: HeadMeans | None = None,
) -> Iterator[None]:
    """Change a model within a `with` block, in this thread.

    The file heedful/inside/edit_spellings.py has all edits and their spellings.

    Args:
        model: What `heedful.load` gives, a `Loaded`, or the network itself.
        edits: Records or spellings, such as "zero:cross.3.2" or "drop:decoder.1.cross".
        traces: The traces that patches name.
        means: What `head_means` gives, for "mean" edits.

    Raises:
        BadInput: An edit does not fit the model.

    Example:
        >>> model = heedful.load("runs/demo")
        >>> with edit(model, ["zero:cross.1.1", "zero:cross.1.2"]):
        ...     changed = model.translate("My aunts are curious.")
    """
    session = EditSession(model, parsed(edits), traces or {}, means)
    EDITORS.set((*EDITORS.get(), session))
    try:
        with hooked(session.hooks), without_positions(session.positionless), eagerly():
            yield
    finally:
        EDITORS.set(tuple(one for one in EDITORS.get() if one is not session))


class EditSession:
    """The edits of one `with` block, checked against the model: hooks, and changes of weights."""

    def __init__(
        self,
        model: Any,
        edits: Sequence[Edit],
        traces: Mapping[str, Trace],
        means: HeadMeans | None,
    ) -> None:
        found = getattr(model, "loaded", model)
        self.loaded = found if isinstance(found, Loaded) else None
        self.network: nn.Module = found.model if isinstance(found, Loaded) else found
        self.name = found.architecture if isinstance(found, Loaded) else type(found).__name__
        self.traces, self.means = traces, means
        self.hooks: list[Hook] = []
        self.changes: dict[nn.Module, list[Change]] = {}
        self.views: dict[nn.Module, View] = {}  # of the call under way, by attention
        self.positionless: list[nn.Module] = []
        for one in edits:
            ADDERS[type(one)](self, one)

    # As an editor of weights (parts/watch.py)

    def edits(self, layer: nn.Module) -> bool:
        return layer in self.changes

    def edited(self, layer: nn.Module, view: View, weights_BHTS: Tensor) -> Tensor:
        for change in self.changes[layer]:
            weights_BHTS = change(view, weights_BHTS)
        return weights_BHTS

    # What there is in the model

    def kind(self, which: str, spelling: str) -> str:
        """A kind of attention that the model has; an encoder alone has one, under two names."""
        kinds = kinds_of(self.network) if shells_of(self.network) else ()
        if not kinds:
            raise BadInput(f"{spelling}: this {self.name} has no attention to edit")
        if which not in kinds:
            has = " and ".join(kinds)
            raise BadInput(f"{spelling}: this {self.name} has {has}-attention, and no {which}-attention")
        return "self" if which == "encoder" and isinstance(self.network, WithHeads) else which

    def attentions(self, heads: HeadChoice, spelling: str) -> list[tuple[int, Any]]:
        """(layer, attention) of the layers that are chosen."""
        paths = paths_of(self.network, self.kind(heads.which, spelling))
        if heads.layer is not None and heads.layer not in paths:
            raise BadInput(f"{spelling}: there is no layer {heads.layer}; there are {len(paths)}")
        found: list[tuple[int, Any]] = [
            (n, self.network.get_submodule(path)) for n, path in paths.items() if heads.layer in (None, n)
        ]
        for _, attention in found:
            if heads.head is not None and heads.head > attention.heads:
                raise BadInput(f"{spelling}: there is no head {heads.head}; there are {attention.heads}")
        return found

    def block(self, shell: str, layer: int, spelling: str) -> Any:
        """A block of a shell, from 1."""
        stacks = stacks_of(self.network)
        if shell not in stacks:
            has = " and ".join(stacks) or "no blocks of attention"
            raise BadInput(f"{spelling}: this {self.name} has no {shell} of blocks; it has {has}")
        blocks = stacks[shell].blocks
        if layer > len(blocks):
            raise BadInput(f"{spelling}: there is no block {layer}; the {shell} has {len(blocks)}")
        return blocks[layer - 1]

    def source(self, patch: Patch) -> Trace:
        """The trace that a patch names."""
        if patch.trace not in self.traces:
            raise BadInput(f'{patch.spelling}: there is no trace "{patch.trace}": give it in `traces`')
        return self.traces[patch.trace]

    # Head outputs

    def replace_outputs(self, heads: HeadChoice, spelling: str, value: Callable[[int], Tensor]) -> None:
        """Set the outputs of heads. value: of a layer's joined heads, [H L] or a single number."""
        for layer, attention in self.attentions(heads, spelling):
            vector = value(layer)
            if isinstance(attention, Lookup):

                def after(_: Any, y: Tensor, v: Tensor = vector) -> Tensor:
                    return torch.zeros_like(y) + v.to(y)

                self.hooks.append(Hook(attention, None, after))
                continue
            columns = columns_of(attention, heads.head)

            def before(args: Any, v: Tensor = vector, columns: slice = columns) -> tuple[Any, ...]:
                x = args[0].clone()
                x[..., columns] = v.to(x) if v.ndim == 0 else v[columns].to(x)
                return (x, *args[1:])

            self.hooks.append(Hook(attention.out, before))

    def add_zero(self, one: ZeroHead) -> None:
        self.replace_outputs(one.heads, one.spelling, lambda layer: torch.zeros(()))

    def add_mean(self, one: MeanHead) -> None:
        means, which = self.means, self.kind(one.heads.which, one.spelling)
        if means is None:
            raise BadInput(
                f"{one.spelling}: a mean is taken over sentences: give `means`, as head_means computes them"
            )
        self.replace_outputs(one.heads, one.spelling, lambda layer: means[which, layer])

    # Weights

    def change_weights(self, heads: HeadChoice, spelling: str, change: Change) -> None:
        """Change the weights of the heads that are chosen. change: of all heads of a layer."""
        for _, attention in self.attentions(heads, spelling):
            rows = slice(None) if heads.head is None else slice(heads.head - 1, heads.head)

            def some(view: View, weights_BHTS: Tensor, rows: slice = rows) -> Tensor:
                changed_BHTS = weights_BHTS.clone()
                changed_BHTS[:, rows] = change(view, weights_BHTS)[:, rows]
                return changed_BHTS

            self.changes.setdefault(attention, []).append(some)

    def add_uniform(self, one: UniformHead) -> None:
        self.change_weights(one.heads, one.spelling, uniform)

    def add_scale(self, one: ScaleHead) -> None:
        self.change_weights(one.heads, one.spelling, lambda view, weights: sharpened(weights, one.factor))

    def add_force(self, one: ForceHead) -> None:
        heads, longest = one.heads, max(one.query, one.key)
        for layer, attention in self.attentions(heads, one.spelling):
            if isinstance(attention, Lookup):
                raise BadInput(f"{one.spelling}: a {self.name} has no blocks of attention: use zero or scale")
            which = self.kind(heads.which, one.spelling)
            mask = View(mask_of(self.network, which, layer), longest, longest).allowed(attention.heads)
            allowed_HTS = mask.expand(1, attention.heads, longest, longest)[0]
            rows = slice(None) if heads.head is None else slice(heads.head - 1, heads.head)
            if which != "cross" and not allowed_HTS[rows, one.query - 1, one.key - 1].all():
                raise BadInput(f"{one.spelling}: query {one.query} may not see key {one.key}: it is masked")
        self.change_weights(heads, one.spelling, lambda view, weights: forced(view, weights, one))

    # Streams and sublayers

    def add_patch(self, one: Patch) -> None:
        seen = self.source(one)
        if isinstance(one.place, StreamPlace):
            return self.patch_stream(one, one.place, seen)
        for layer, attention in self.attentions(one.place, one.spelling):
            if isinstance(attention, Lookup):
                raise BadInput(f"{one.spelling}: a {self.name} has no blocks of attention: use zero or scale")
            columns = columns_of(attention, one.place.head)
            vectors_TX = seen.sublayer(one.place.which, layer).heads_TX
            check_position(one, len(vectors_TX))

            def keep_view(args: Any, layer: nn.Module = attention) -> None:
                self.views[layer] = args[1]

            def before(
                args: Any, attention: Any = attention, v: Tensor = vectors_TX, c: slice = columns
            ) -> Any:
                x = args[0].clone()
                x[..., c] = put(x[..., c], self.views[attention], v[:, c], one)
                return (x, *args[1:])

            path = paths_of(self.network, self.kind(one.place.which, one.spelling))[layer]
            residual: Any = residual_of(self.network, path, self.name)
            self.hooks += [Hook(residual.layer, keep_view), Hook(attention.out, before)]

    def patch_stream(self, one: Patch, place: StreamPlace, seen: Trace) -> None:
        vectors_TD = seen.stream(place.shell, place.layer)
        block = self.block(place.shell, max(place.layer, 1), one.spelling)
        check_position(one, len(vectors_TD))

        def before(args: Any) -> Any:
            return (put(args[0], args[1], vectors_TD, one), *args[1:])

        def after(args: Any, y: Tensor) -> Tensor:
            return put(y, args[1], vectors_TD, one)

        self.hooks.append(Hook(block, before) if place.layer == 0 else Hook(block, None, after))

    def add_drop(self, one: DropSublayer) -> None:
        name = {"self": "attention"}.get(one.sublayer, one.sublayer)
        residual = getattr(self.block(one.shell, one.layer, one.spelling), name, None)
        if residual is None:
            raise BadInput(f"{one.spelling}: block {one.layer} of the {one.shell} has no {one.sublayer}")
        if type(residual) not in ORDERS:
            raise BadInput(
                f"{one.spelling}: a {type(residual).__name__} adds to no stream: it cannot be dropped"
            )
        self.hooks.append(Hook(residual.dropout, None, lambda _, y: torch.zeros_like(y)))

    # Inputs

    def add_mask(self, one: MaskToken) -> None:
        number = mask_id(self.loaded, one.spelling)
        inputs: Any = next(iter(shells_of(self.network).values())).inputs

        def before(args: Any) -> tuple[Any, ...]:
            tokens_BT, positions = args[:2]
            here = index_of(positions) == one.token - 1
            return (torch.where(here, number, tokens_BT), *args[1:])

        self.hooks.append(Hook(inputs, before))

    def add_no_positions(self, one: RemovePositions) -> None:
        self.positionless.append(self.network)


ADDERS: dict[type, Callable[[EditSession, Any], None]] = {
    ZeroHead: EditSession.add_zero,
    MeanHead: EditSession.add_mean,
    UniformHead: EditSession.add_uniform,
    ForceHead: EditSession.add_force,
    ScaleHead: EditSession.add_scale,
    Patch: EditSession.add_patch,
    DropSublayer: EditSession.add_drop,
    MaskToken: EditSession.add_mask,
    RemovePositions: EditSession.add_no_positions,
}


def columns_of(attention: Any, head: int | None) -> slice:
    """Where the output of a head stands among those of all, joined."""
    width = attention.value_width
    return slice(None) if head is None else slice((head - 1) * width, head * width)


def uniform(view: View, weights_BHTS: Tensor) -> Tensor:
    """The same weight for all keys that a query may attend to."""
    allowed = view.allowed(weights_BHTS.shape[1]).to(weights_BHTS.dtype)
    return (allowed / allowed.sum(-1, keepdim=True).clamp(min=1)).expand_as(weights_BHTS)


def sharpened(weights_BHTS: Tensor, factor: float) -> Tensor:
    """softmax(factor * score) from softmax(score): each weight to that power, and rows sum to 1 again."""
    logs_BHTS = weights_BHTS.double().log() * factor
    changed_BHTS = logs_BHTS.softmax(-1).nan_to_num(0.0)  # a row that attends to nothing stays so
    return changed_BHTS.to(weights_BHTS.dtype)


def forced(view: View, weights_BHTS: Tensor, one: ForceHead) -> Tensor:
    """One query attends to one key only; by positions, so that it holds in padded rows and with a cache."""
    query_BT, key_BS = (
        torch.atleast_2d(index_of(positions)) == number - 1
        for positions, number in ((view.q_pos, one.query), (view.k_pos, one.key))
    )
    here_B1TS = (query_BT[:, :, None] & key_BS.any(-1)[:, None, None])[:, None]
    return torch.where(here_B1TS, key_BS[:, None, None].to(weights_BHTS.dtype), weights_BHTS)


def check_position(one: Patch, T: int) -> None:
    if one.position is not None and one.position > T:
        raise BadInput(f"{one.spelling}: that trace has {T} positions, and no position {one.position}")


def put(x_BTD: Tensor, view: View, vectors_TD: Tensor, one: Patch) -> Tensor:
    """Vectors of another trace at the positions of this call that it has, or at one of them only."""
    if vectors_TD.shape[1] != x_BTD.shape[2]:
        widths = f"{vectors_TD.shape[1]} numbers, and those of this model {x_BTD.shape[2]}"
        raise BadInput(f"{one.spelling}: the vectors of that trace have {widths}")
    index_BT = torch.atleast_2d(index_of(view.q_pos)).expand(len(x_BTD), -1)
    here_BT = (index_BT >= 0) & (index_BT < len(vectors_TD))
    if one.position is not None:
        here_BT = here_BT & (index_BT == one.position - 1)
    found_BTD = vectors_TD.to(x_BTD)[index_BT.clamp(0, len(vectors_TD) - 1)]
    return torch.where(here_BT[..., None], found_BTD, x_BTD)


def mask_id(loaded: Loaded | None, spelling: str) -> int:
    """The token that stands for one that is hidden."""
    if loaded is None:
        raise BadInput(f"{spelling}: a network alone has no tokenizer: give what heedful.load gives")
    inputs = next(iter(shells_of(loaded.model).values())).inputs
    if not isinstance(inputs, Inputs):
        raise BadInput(f"{spelling}: this {loaded.architecture} reads images, which have no tokens to mask")
    heads: Any = getattr(loaded.model, "heads", {})
    names = (*MASKS, *UNKNOWNS) if "masked_lm" in heads else UNKNOWNS
    numbers = [loaded.tokenizer.token_to_id(name) for name in names] if loaded.tokenizer else []
    found = next((number for number in numbers if number is not None), None)
    if found is None or found >= len(inputs.tokens.weight):
        raise BadInput(f"{spelling}: the vocabulary of this {loaded.architecture} has no unknown token")
    return found


# Means


def head_means(
    loaded: Loaded, texts: Sequence[str], targets: Sequence[str | None] | None = None, most: int = 1024
) -> HeadMeans:
    """The mean output of every head over all tokens of some texts, for "mean" edits.

    Args:
        loaded: `model.loaded`.
        texts: The texts.
        targets: For an encoder-decoder, what it writes, instead of its own translations.
        most: Tokens of a text.

    Returns:
        {(kind, layer): the mean output of its heads, joined}.

    Example:
        >>> means = head_means(heedful.load("runs/lm").loaded, ["The old king"])
        >>> sorted(means)[0]
        ('self', 1)
    """
    if not texts:
        raise BadInput("a mean is taken over texts: give at least one")
    sums: dict[tuple[str, int], Tensor] = {}
    counts: dict[tuple[str, int], int] = {}

    def add(key: tuple[str, int], x_BTX: Tensor) -> None:
        rows_RX = x_BTX.flatten(0, -2).double()
        sums[key] = sums.get(key, 0) + rows_RX.sum(0)
        counts[key] = counts.get(key, 0) + len(rows_RX)

    for text, target in zip(texts, targets or [None] * len(texts), strict=True):
        given = input_of(loaded, text, target, most)
        hooks = []
        for which in kinds_of(loaded.model):
            for layer, path in paths_of(loaded.model, which).items():
                attention: Any = loaded.model.get_submodule(path)

                def before(args: Any, key: tuple[str, int] = (which, layer)) -> None:
                    add(key, args[0])

                def after(_: Any, y: Tensor, key: tuple[str, int] = (which, layer)) -> None:
                    add(key, y)

                looks_up = isinstance(attention, Lookup)
                hooks.append(Hook(attention, None, after) if looks_up else Hook(attention.out, before))
        with hooked(hooks):
            forward(loaded.model, given)
    return {key: (total / counts[key]).float() for key, total in sums.items()}
