"""Attribution: where does an output come from? Four answers for every query and key of an attention.

seen = attribute(heedful.load("runs/demo").loaded, "The small girl eats a red apple.", by="norm")
print(seen.text())
seen.chosen[0].weights_TS                  # the values of one head [T, S]

weight    the attention weight a
norm      |a f(v)|: the weight times the norm of the value vector after the head's part of W_o; of a layer
          the norm of the sum over its heads (Kobayashi et al. 2020)
zeroing   the value vector of one key set to 0: the cosine distance between the block's output and its
          output without that value, in one head or in all heads of the layer (Mohebbi et al. 2023)
gradient  a ds/da: the weight times the derivative of the score s of what is predicted with respect to it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ..corpora import phrasebook
from ..errors import BadInput
from ..interop.loaded import Loaded
from ..models.base.shells import DecoderClassifier, EncoderDecoder, needs_tree
from ..parts.places import Lengths, Source
from ..parts.watch import Record, watch
from .forward import BlockCall, run_once, stack_of
from .look.attention import BY, Look, look
from .look.heads import Head
from .look.inputs import InputTokens, places_for, reading
from .look.layers import attending_shells
from .model_inputs import ModelInput

ROWS = ("prediction", "input")
AT_ONCE = 1 << 24  # numbers of one batch of copies
EXPLAINED = ("masked_lm", "tag", "classify")  # heads whose scores have a gradient worth showing

Tables = Callable[[Head], Tensor]  # of a head, or of all heads of a layer, the values [T, S]


def attribute(
    loaded: Loaded,
    text: str,
    *,
    by: str = "weight",
    target: str | None = None,
    which: str | None = None,
    layer: int | None = None,
    head: int | str | None = None,
    row: str = "prediction",
    gold: Sequence[phrasebook.Pair] = (),
) -> Look:
    """Where each output comes from, by one of four measures.

    by: "weight", "norm", "zeroing" or "gradient". row: of cross-attention, the row of a word is the one that
    predicts it, or the one that reads it ("input"). The other arguments are those of `look`; head="mean"
    gives each layer as a whole, and so does value zeroing by default.
    """
    if by not in BY:
        raise BadInput(f'by is {", ".join(BY)}, not "{by}"')
    if row not in ROWS:
        raise BadInput(f'row is {" or ".join(ROWS)}, not "{row}"')
    head = "mean" if by == "zeroing" and head is None else head  # one pass of a block for every key and head
    seen = look(loaded, text, target=target, which=which, layer=layer, head=head, gold=gold)
    check_shapes(seen)
    return at_row(by_measure(seen, by), row)


def check_shapes(seen: Look) -> None:
    """Refuse layers whose keys are not the tokens: what is attributed could not be named."""
    expected = len(seen.down), len(seen.across)
    for path, weights_HTS in seen.weights.items():
        if tuple(weights_HTS.shape[1:]) != expected:
            raise BadInput(
                f"{path} has {weights_HTS.shape[2]} keys, and the text {expected[1]} tokens: attributions "
                "are for layers whose keys are the tokens themselves"
            )


def by_measure(seen: Look, by: str) -> Look:
    """The same heads, with their values by another measure."""
    if by == "weight":
        return seen
    found: Tables = MEASURES[by](seen)
    together = "mean" if by == "gradient" else "all"
    chosen = [replace(head, weights_TS=found(head), together=together) for head in seen.chosen]
    places = [(head.layer, head.head) for head in seen.chosen]
    best = (seen.best.layer, seen.best.head)
    best_head = chosen[places.index(best)] if best in places else seen.best
    return replace(seen, chosen=chosen, heads=chosen, best=best_head, by=by)


def at_row(seen: Look, row: str) -> Look:
    """Read each word of a target where it is predicted, or one row further, where it is the input."""
    if row == "prediction":
        return seen
    if seen.which != "cross":
        raise BadInput(f"row is for cross-attention, and this is {seen.which}-attention: leave it out")
    if len(seen.down) < 2:
        raise BadInput("the target has one token, which is predicted and never read: give a longer one")
    moved = {id(head): replace(head, weights_TS=head.weights_TS[1:]) for head in (*seen.heads, *seen.chosen)}
    chosen, heads = ([moved[id(head)] for head in some] for some in (seen.chosen, seen.heads))
    best = moved.get(id(seen.best), seen.best)
    return replace(seen, chosen=chosen, heads=heads, best=best, down=seen.down[:-1], row=row)


def alignment_errors(
    loaded: Loaded,
    pairs: Sequence[phrasebook.Pair],
    *,
    by: str = "weight",
    row: str = "prediction",
    head: str | None = None,
) -> dict[tuple[int, int | None], float]:
    """The mean alignment error rate of layers or heads, over sentences whose alignment is known.

    Args:
        loaded: A translator's `loaded`.
        pairs: Sentences with their alignments, such as those of `heedful.corpora.phrasebook`.
        by: As in `Model.look`.
        row: As in `Model.look`.
        head: "mean" for each layer as a whole; None: every head on its own.

    Returns:
        {(layer, head): error rate}; the head is None for a whole layer.

    Example:
        >>> from heedful.corpora import phrasebook
        >>> pairs = [pair for _, pair in zip(range(3), phrasebook.pairs("test"))]
        >>> found = alignment_errors(heedful.load("runs/demo").loaded, pairs, head="mean")
        >>> sorted(found)
        [(1, None), (2, None), (3, None)]
    """
    if not pairs:
        raise BadInput("there are no sentences with reference alignments: only the phrasebook has them")
    rates: dict[tuple[int, int | None], list[float]] = {}
    for pair in pairs:
        how: dict[str, Any] = {"target": pair.target, "which": "cross", "by": by, "row": row, "head": head}
        seen = attribute(loaded, pair.source, **how).beside(pair)
        for one in seen.chosen:
            rate = seen.error_rate(one)
            assert rate is not None
            rates.setdefault((one.layer, one.head), []).append(rate)
    return {place: sum(some) / len(some) for place, some in rates.items()}


# Weight times value norm


def norms(seen: Look) -> Tables:
    """|a f(v)| of each head; of a layer, the norm of the sum over its heads."""
    known: dict[str, tuple[Tensor, Tensor]] = {}

    def found(head: Head) -> Tensor:
        if head.path not in known:
            attention = seen.loaded.model.get_submodule(head.path)
            known[head.path] = value_norms(seen.records[head.path], attention, needs_tree(seen.loaded.model))
        heads_HTS, layer_TS = known[head.path]
        return layer_TS if head.head is None else heads_HTS[head.head - 1]

    return found


@torch.no_grad()
def value_norms(record: Record, attention: Any, has_tree: bool = False) -> tuple[Tensor, Tensor]:
    """The norms of weighted, projected values: of every head [H, T, S], and of their sum [T, S]."""
    weights_HTS, v_HSL = record.weights[-1][0], record.v[-1][0]
    f_HSD = projected(attention, v_HSL)
    extra = added_values(attention, record.weights[-1], has_tree)
    heads, layers = [], []
    for t in range(weights_HTS.shape[1]):  # one query at a time: [H, T, S, D] would be large
        vectors_HSD = weights_HTS[:, t, :, None] * f_HSD
        if extra is not None:
            vectors_HSD = vectors_HSD + projected(attention, extra(t))
        heads.append(vectors_HSD.norm(dim=-1))
        layers.append(vectors_HSD.sum(0).norm(dim=-1))
    return torch.stack(heads, 1).float().cpu(), torch.stack(layers).float().cpu()


def projected(attention: Any, v_HSL: Tensor) -> Tensor:
    """Each head's vectors after its own part of W_o, without the bias [H, S, D]; as they are without W_o."""
    out = getattr(attention, "out", None)
    if out is None:  # the single attention of a recurrent decoder
        return v_HSL
    H, S, L = v_HSL.shape
    alone_HSHL = v_HSL.new_zeros(H, S, H, L)
    for h in range(H):
        alone_HSHL[h, :, h] = v_HSL[h]
    return out(alone_HSHL.flatten(2)) - out(v_HSL.new_zeros(1, 1, H * L))


def added_values(attention: Any, weights_BHTS: Tensor, has_tree: bool) -> Callable[[int], Tensor] | None:
    """Weighted vectors [H, S, L] that a position scheme adds to a query's values (Shaw et al. 2018)."""
    if not attention.position.uses_values:
        return None
    if has_tree:
        raise BadInput(
            "the values of this model depend on the tree: attribute by zeroing or gradient instead"
        )
    T, S = weights_BHTS.shape[2:]
    q_pos, k_pos = (torch.arange(n, device=weights_BHTS.device) for n in (T, S))
    each_SHTL = torch.stack(
        [
            attention.position.values(weights_BHTS * nn.functional.one_hot(k_pos[s], S), q_pos, k_pos)[0]
            for s in range(S)
        ]
    )
    return lambda t: each_SHTL[:, :, t].transpose(0, 1)


# Value zeroing


def zeroings(seen: Look) -> Tables:
    """The cosine distance that a block's output moves without one key's value."""
    model = seen.loaded.model
    shells = list(attending_shells(model))
    shell = shells[0] if seen.which == "encoder" else shells[-1]
    stack_of(seen.loaded, shell)
    given = ModelInput(seen.words, reading(seen.loaded, seen.words.text))
    calls = run_once(seen.loaded, given).calls[shell]
    place = {module: call for call in calls for module in call.block.modules()}

    def found(head: Head) -> Tensor:
        attention = model.get_submodule(head.path)
        weights_HTS = seen.weights[head.path]
        some = slice(None) if head.head is None else slice(head.head - 1, head.head)
        table_TS = value_zeroing(place[attention], attention, some, weights_HTS.shape[-1])
        return table_TS.masked_fill((weights_HTS[some] == 0).all(0), 0)  # what is masked changes nothing

    return found


@torch.no_grad()
def value_zeroing(call: BlockCall, attention: nn.Module, heads: slice, keys: int) -> Tensor:
    """1 - cos(block's output, its output with the value of one key set to 0 in some heads) [T, S].

    A value of 0 and a weight of 0 for its key give the same sum: the weights are changed, not the values.
    """
    before_TD = run_block(call, attention, lambda weights_BHTS: weights_BHTS, 1)[0]
    some = max(1, AT_ONCE // max(1, call.output_BTD.numel() * 8))
    columns = []
    for start in range(0, keys, some):
        chosen = range(start, min(keys, start + some))

        def without(weights_BHTS: Tensor, chosen: range = chosen) -> Tensor:
            weights_BHTS = weights_BHTS.clone()
            for b, s in enumerate(chosen):
                weights_BHTS[b, heads, :, s] = 0
            return weights_BHTS

        after_BTD = run_block(call, attention, without, len(chosen))
        columns.append(1 - torch.cosine_similarity(after_BTD.double(), before_TD.double(), dim=-1))
    return torch.cat(columns).T.clamp(min=0).float().cpu()


def run_block(
    call: BlockCall, attention: nn.Module, change: Callable[[Tensor], Tensor], copies: int
) -> Tensor:
    """The output of a block for copies of its input, with one attention's weights changed."""
    path = next(path for path, module in call.block.named_modules() if module is attention)

    def changed(at: str, weights_BHTS: Tensor) -> Tensor:
        return change(weights_BHTS) if at == path else weights_BHTS

    def spread(given: Any) -> Any:
        return given.expand(copies, *given.shape[1:]) if isinstance(given, Tensor) else given

    with watch(call.block, change=changed):
        return call.block(*map(spread, call.args))


# Gradient times weight


def gradients(seen: Look) -> Tables:
    """The weight times the derivative of the score of what is predicted."""
    paths = list(dict.fromkeys(head.path for head in seen.chosen))
    found = weight_gradients(seen.loaded, seen.words, seen.which, paths)
    tables = {path: found[path] * seen.weights[path] for path in paths}
    return lambda head: tables[head.path].mean(0) if head.head is None else tables[head.path][head.head - 1]


def weight_gradients(
    loaded: Loaded, words: InputTokens, which: str, paths: Sequence[str]
) -> dict[str, Tensor]:
    """{path: [H, T, S]}: the derivative of a score with respect to each weight.

    Row t has that of the score of what row t predicts. Where rows predict nothing of their own, it is that of
    the one score of the text (classifiers), or of all predictions together (the encoder of an
    encoder-decoder).
    """
    with torch.no_grad():
        scores = explained(loaded, output_of(loaded, words))
    by_row = scores.dim() == 3
    T = scores.shape[1] if by_row else 1
    wanted = torch.tensor(words.answers).to(scores.device) if words.answers else scores[0].argmax(-1)
    if not by_row or (which == "encoder" and isinstance(loaded.model, EncoderDecoder)):
        return {path: each[0] for path, each in derivative(loaded, words, paths, wanted, None).items()}
    some = max(1, AT_ONCE // scores.numel())
    found: dict[str, list[Tensor]] = {path: [] for path in paths}
    for start in range(0, T, some):
        rows = range(start, min(T, start + some))
        for path, each_BHTS in derivative(loaded, words, paths, wanted, rows).items():
            found[path] += [each_BHTS[b, :, t] for b, t in enumerate(rows)]
    return {path: torch.stack(rows, 1) for path, rows in found.items()}


def derivative(
    loaded: Loaded, words: InputTokens, paths: Sequence[str], wanted: Tensor, rows: range | None
) -> dict[str, Tensor]:
    """The derivative [B, H, T, S] of the score at one row, a copy of the input for each; or of all scores."""
    kept: dict[str, list[Tensor]] = {path: [] for path in paths}

    def keep(path: str, weights_BHTS: Tensor) -> Tensor:
        if not weights_BHTS.requires_grad:  # nothing below asks for gradients: begin here
            weights_BHTS = weights_BHTS.detach().requires_grad_()
        if path in kept:
            kept[path].append(weights_BHTS)
        return weights_BHTS

    with torch.inference_mode(False), torch.enable_grad(), watch(loaded.model, change=keep):
        scores = explained(loaded, output_of(loaded, words, 1 if rows is None else len(rows)))
        if rows is None:
            total = scores[0].gather(-1, wanted[..., None]).sum()
        else:
            total = torch.stack([scores[b, t, wanted[t]] for b, t in enumerate(rows)]).sum()
        calls = [each for path in paths for each in kept[path]]
        found = iter(torch.autograd.grad(total, calls, allow_unused=True))
    return {path: joined(kept[path], [next(found) for _ in kept[path]]) for path in paths}


def joined(calls: Sequence[Tensor], found: Sequence[Tensor | None]) -> Tensor:
    """The derivatives of an attention's last T queries, which a recurrent decoder makes one by one."""
    T = max(call.shape[2] for call in calls)
    used = [each for each in found if each is not None]
    rows = torch.cat(used, 2)[:, :, -T:] if used else torch.zeros_like(calls[-1])
    return rows.detach().float().cpu()


def output_of(loaded: Loaded, words: InputTokens, rows: int = 1) -> Any:
    """What the model says about an input: scores [B, T, V], or those of every head of an encoder.

    rows: copies of the input side by side; an encoder-decoder reads the source once for all of them.
    """
    model, reader = loaded.model, reading(loaded, words.text)
    device = next(model.parameters()).device
    ids_1S = torch.tensor([words.ids], device=device)
    if isinstance(model, EncoderDecoder):
        assert isinstance(reader, EncoderDecoder)
        source = reader.read(ids_1S, places_for(model, words.ids))
        if rows > 1:
            source = Source(source.vectors_BSD.expand(rows, -1, -1))
        return model.decode(source, torch.tensor([words.read] * rows, device=device))
    ids_BT = ids_1S.expand(rows, -1)
    if isinstance(model, DecoderClassifier):
        return model(ids_BT, Lengths(torch.full((rows,), len(words.ids), device=device)))
    return model(ids_BT)


def explained(loaded: Loaded, output: Tensor | dict[str, Tensor]) -> Tensor:
    """The scores whose derivative is taken: of tokens at every row [B, T, V], or of labels [B, labels]."""
    if isinstance(output, Tensor):
        return output
    for name in EXPLAINED:
        if name in output:
            return output[name]
    has = f"the heads {', '.join(output)}" if output else "no head"
    raise BadInput(
        f"this {loaded.architecture} has {has}, and none that predicts a token or a label: there is no score "
        "whose gradient could be taken"
    )


MEASURES: dict[str, Callable[[Look], Tables]] = {
    "norm": norms,
    "zeroing": zeroings,
    "gradient": gradients,
}
