"""Looking: which words a model attends to in one input, head by head, by the model's own weights.

    seen = look(heedful.load("runs/demo").loaded, "The small girl eats a red apple.")
    print(seen.text())                       # in a terminal; in a notebook, `seen` alone shows the picture
    Path("attention.svg").write_text(seen.svg())

Layers and heads are counted from 1. Cross-attention is read at the row that *predicts* each word: with the
target shifted right, the row that reads the word before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ...corpora import phrasebook
from ...errors import BadInput, NotFinite
from ...interop.loaded import Loaded
from ...models.base.shells import Decoder, EncoderDecoder, needs_tree
from ...parts.view import View
from ...parts.watch import Records, Watchable, watch
from ...tasks.alignment import links_of, token_links, word_of_token
from ...tasks.metrics import alignment_error_rate
from .drawing import Drawing, Pictured
from .heads import MEASURE, Head, choose, find_best, habits, information, sharpness
from .heat_maps import Panel, heat_map, small_multiples
from .inputs import MOST, InputTokens, axes, given, places_for, reading
from .layers import WHICH, attending_shells, inputs_of, kinds_of, mask_of, paths_of
from .shades import shades as shades_of
from .steps import Steps, find, steps_of

SHOWN = 12  # heads in a terminal's table
LONG = 70  # characters of a text in a title
NAMES = {  # of a kind of attention, in an encoder-decoder or elsewhere
    ("cross", True): "cross-attention",
    ("self", True): "the decoder's self-attention",
    ("encoder", True): "the encoder's self-attention",
    ("self", False): "self-attention",
    ("encoder", False): "self-attention",
}
BY = {  # measures of what comes from where (inside/attribute.py)
    "weight": "attention weight",
    "norm": "weight × norm of the projected value",
    "zeroing": "value zeroing",
    "gradient": "gradient × weight",
}


@dataclass(frozen=True)
class Look(Pictured):
    """The attention of one input, as `Model.look` finds it.

    Attributes:
        loaded: The model.
        words: The input as tokens.
        which: "cross", "self" or "encoder" attention.
        down: The queries as words, from top to bottom.
        across: The keys as words, from left to right.
        weights: Weights of all heads [H, T, S], by the path of their layer.
        heads: All heads of this kind of attention.
        chosen: The heads that pictures and tables show.
        best: The best head; `best_by` says by what.
        best_by: The measure of the best head: an alignment error rate, or bits.
        records: What was recorded in the attention layers.
        pair: The sentences with their reference alignment, where there is one.
        by: What the cells are: "weight", "norm", "zeroing" or "gradient".
        row: Where a word of the target is read: at the "prediction" of the word, or as "input".

    Example:
        >>> seen = heedful.load("runs/demo").look("The cat sleeps.", layer=1, head=1)
        >>> seen.which, seen.down, seen.across
        ('cross', ['Le', 'chat', 'dort', '.', '[EOS]'], ['The', 'cat', 'sleeps', '.'])
        >>> seen.chosen[0].weights_TS.shape, seen.error_rate(seen.best) is None
        (torch.Size([5, 4]), True)
        >>> seen.shares(seen.chosen[0]).sum(-1).round().tolist()
        [1.0, 1.0, 1.0, 1.0, 1.0]
        >>> seen.text().splitlines()[0].split()
        ['The', 'cat', 'sleeps', '.']
        >>> seen.steps("dort").word
        'dort'
    """

    loaded: Loaded = field(repr=False)
    words: InputTokens
    which: str
    down: list[str]
    across: list[str]
    weights: dict[str, Tensor] = field(repr=False)
    heads: list[Head] = field(repr=False)
    chosen: list[Head] = field(repr=False)
    best: Head = field(repr=False)
    best_by: str
    records: Records = field(repr=False)
    pair: phrasebook.Pair | None = None
    by: str = "weight"
    row: str = "prediction"

    def shares(self, head: Head) -> Tensor:
        """What the picture of a head draws.

        Args:
            head: The head.

        Returns:
            Weights [T, S]; of any other measure, each value's share in the positive sum of its row.
        """
        if self.by == "weight":
            return head.weights_TS
        positive_TS = head.weights_TS.clamp(min=0)
        return positive_TS / positive_TS.sum(-1, keepdim=True).clamp(min=1e-30)

    # Alignment

    def beside(self, pair: phrasebook.Pair | None) -> Look:
        """The same beside a reference alignment, if it is one of these sentences."""
        fits = pair is not None and self.which == "cross" and pair.target == self.words.translation
        return replace(self, pair=pair if fits else None)

    @cached_property
    def places(self) -> tuple[list[int], list[int]]:
        """Which word each token of the source and of the target belongs to."""
        read, written = self.loaded.tokenizer, self.loaded.target_tokenizer or self.loaded.tokenizer
        assert read is not None and written is not None
        return word_of_token(read, self.words.text), word_of_token(written, self.words.translation)

    def error_rate(self, head: Head) -> float | None:
        """The alignment error rate (AER) of a head.

        Args:
            head: The head.

        Returns:
            From 0 (the reference alignment) to 1; None where there is no reference.
        """
        if self.pair is None:
            return None
        return alignment_error_rate(links_of(self.shares(head), *self.places), set(self.pair.alignment))

    @property
    def marked(self) -> set[tuple[int, int]]:
        """Cells that the reference alignment links."""
        return set() if self.pair is None else token_links(set(self.pair.alignment), *self.places)

    # Pictures

    def picture(self) -> Drawing:
        """One head with all its words, or many as small multiples."""
        if len(self.chosen) == 1:
            head = self.chosen[0]
            rate = self.error_rate(head)
            notes = self.legend()
            if rate is not None:
                notes.append(
                    f"frames: the reference alignment; alignment error rate of this head: {rate:.2f}"
                )
            title = f"{self.title(self.full_name(head))}\n{self.sentence()}"
            weights, allowed = self.shares(head).tolist(), self.allowed(head.layer)
            return heat_map(
                weights, self.down, self.across, title, below=notes, allowed=allowed, marked=self.marked
            )
        panels = [Panel(head.name, self.shares(head).tolist(), head is self.best) for head in self.chosen]
        layers = len({head.layer for head in self.chosen})
        across = min(8, len(panels)) if layers in (1, len(panels)) else len(panels) // layers
        notes = [*self.legend(), f"frame: {self.best_by}"] if self.best in self.chosen else self.legend()
        return small_multiples(
            panels,
            across,
            self.down,
            self.across,
            f"{self.title(self.all_of())}\n{self.sentence()}",
            below=notes,
        )

    def title(self, what: str) -> str:
        measure = "" if self.by == "weight" else f", {BY[self.by]}"
        return f"{NAMES[self.which, self.is_pair]}: {what}{measure}"

    def all_of(self) -> str:
        """What several chosen heads are together."""
        first, layers = self.chosen[0], {head.layer for head in self.chosen}
        if len(layers) == 1:
            return f"layer {first.layer} of {len(self.weights)}, all {len(self.chosen)} heads"
        if first.head is None:
            return "the mean of each layer's heads" if first.together == "mean" else "every layer as a whole"
        if len(layers) == len(self.chosen):
            return f"head {first.head} of every layer"
        return f"{len(layers)} layers of {len(self.chosen) // len(layers)} heads"

    def full_name(self, head: Head) -> str:
        """A head among all of them."""
        layer, heads = f"layer {head.layer} of {len(self.weights)}", len(self.weights[head.path])
        every = f"{'mean of' if head.together == 'mean' else 'all'} {heads} heads"
        return f"{layer}, " + (every if head.head is None else f"head {head.head} of {heads}")

    def sentence(self) -> str:
        """The input in a line, and what was written."""
        texts = [self.words.text, self.words.translation] if self.is_pair else [self.words.text]
        lines = [" ".join(text.split()) for text in texts]
        return "  →  ".join(line if len(line) <= LONG else f"{line[: LONG - 1]}…" for line in lines)

    def legend(self) -> list[str]:
        """What rows and columns are."""
        legends = {
            "cross": "rows: words of the target; columns: the words of the source they attend to",
            "self": "rows: tokens; columns: the tokens they attend to",
            "encoder": "rows: words of the source; columns: the words of the source they attend to",
        }
        lines = [legends[self.which]]
        if self.row == "input":
            lines.append("each word's row is the one that reads it, not the one that predicts it")
        if self.by != "weight":
            lines.append(f"cells: {BY[self.by]}, as a share of the row's positive sum")
        return lines

    @property
    def is_pair(self) -> bool:
        return isinstance(self.loaded.model, EncoderDecoder)

    def allowed(self, layer: int) -> list[list[bool]]:
        """Which keys each query may attend to."""
        T, S = len(self.down), len(self.across)
        mask = mask_of(self.loaded.model, self.which, layer)
        return View(mask, T, S).allowed(1).expand(1, 1, T, S)[0, 0].tolist()

    # Words

    def text(self, width: int = 100) -> str:
        """Draw the attention for a terminal: one head as shades, several as a table with the best head.

        Args:
            width: Characters of a line.

        Returns:
            The lines.
        """
        if len(self.chosen) == 1:
            return self.shades(self.shown, width)
        heading = f"{self.shown.name}, {self.shown_by}:"
        return "\n".join([*self.overview(), "", heading, "", self.shades(self.shown, width)])

    @property
    def shown(self) -> Head:
        """The one that a terminal draws: the one that was chosen, or of several the best."""
        if len(self.chosen) == 1:
            return self.chosen[0]
        if self.best in self.chosen:
            return self.best
        return max(self.chosen, key=lambda head: information(self.shares(head)))

    @property
    def shown_by(self) -> str:
        """Why it was picked out of several."""
        if self.shown is self.best:
            return self.best_by
        return MEASURE if self.shown.head is not None else "the most informative layer"

    def shades(self, head: Head, width: int = 100) -> str:
        return shades_of(self.shares(head).tolist(), self.down, self.across, width, self.allowed(head.layer))

    def overview(self) -> list[str]:
        """A line for each head, the most informative first."""
        ranked = sorted(self.chosen, key=lambda head: -information(self.shares(head)))
        shares = [] if self.which == "cross" else list(habits(self.shares(ranked[0])))
        if all(not any(row[i + 1 :]) for i, row in enumerate(self.allowed(1))):
            shares = [name for name in shares if name != "one after"]  # later tokens are masked here
        rates = ["AER"] if self.pair is not None else []
        widths = [max(5, len(name)) for name in [*shares, *rates]]
        titles = zip([*shares, *rates], widths, strict=True)
        lines = ["layer  head   bits  sharp  " + "  ".join(f"{name:>{width}}" for name, width in titles)]
        for head in ranked[:SHOWN]:
            measured = habits(self.shares(head)) if shares else {}
            numbers = [measured[name] for name in shares]
            rate = self.error_rate(head)
            numbers += [] if rate is None else [rate]
            name = head.together if head.head is None else str(head.head)
            bits, sharp = information(self.shares(head)), sharpness(self.shares(head))
            first = f"{head.layer:>5}  {name:>4}  {bits:>5.2f}  {sharp:>5.2f}"
            cells = [f"{number:>{width}.2f}" for number, width in zip(numbers, widths, strict=True)]
            lines.append("  ".join([first, *cells]).rstrip())
        if len(ranked) > SHOWN:
            lines.append(f"and {len(ranked) - SHOWN} less informative heads; the picture and --json have all")
        lines.append("bits: mutual information between query position and attended key")
        lines.append(f"sharp: mean of each row's largest {'weight' if self.by == 'weight' else 'share'}")
        lines += ["other columns: share of the attention that goes there"] if shares else []
        lines += ["AER: alignment error rate; 0 is the reference alignment"] if rates else []
        return [line.rstrip() for line in lines]

    def steps(self, query: str | int) -> Steps:
        """Follow one query through the chosen head: scores, mask, weights and weighted values.

        Args:
            query: The word, or its number from 1.

        Returns:
            `Steps`.

        Raises:
            BadInput: There is no such word, or no single head.
        """
        head = self.chosen[0] if len(self.chosen) == 1 else self.best
        if head.head is None:
            raise BadInput("--query shows one head: give --head a number, or best")
        attention = self.loaded.model.get_submodule(head.path)
        assert isinstance(attention, Watchable)
        place = find(self.down, query, "; --target shows another translation" if self.is_pair else "")
        allowed_S = torch.tensor(self.allowed(head.layer)[place])
        which: dict[str, Any] = {
            "layer": head.layer,
            "head": head.head,
            "query": place + 1,
            "word": self.down[place],
        }
        return steps_of(self.records[head.path], attention, allowed_S, **which, keys=self.across)

    def as_json(self) -> dict[str, Any]:
        """All the numbers."""
        return {
            "architecture": self.loaded.architecture,
            "which": self.which,
            "by": self.by,
            "row": self.row if self.which == "cross" else None,
            "text": self.words.text,
            "translation": self.words.translation if self.is_pair else None,
            "down": self.down,
            "across": self.across,
            "best": {"layer": self.best.layer, "head": self.best.head, "by": self.best_by},
            "alignment": None if self.pair is None else {"gold": sorted(map(list, self.pair.alignment))},
            "heads": [self.head_json(head) for head in self.chosen],
        }

    def head_json(self, head: Head) -> dict[str, Any]:
        return {
            "layer": head.layer,
            "head": head.head,
            "path": head.path,
            "information": information(self.shares(head)),
            "sharpness": sharpness(self.shares(head)),
            "alignment_error_rate": self.error_rate(head),
            "weights": head.weights_TS.tolist(),
        }


def look(
    loaded: Loaded,
    text: str,
    *,
    target: str | None = None,
    which: str | None = None,
    layer: int | None = None,
    head: int | str | None = None,
    gold: Sequence[phrasebook.Pair] = (),
    most: int = MOST,
) -> Look:
    """The attention of a model in one input.

    target: the target of an encoder-decoder; by default its own greedy translation. which: "self", "cross" or
    "encoder" (within the source). layer: one of them, from 1. head: one of them, "mean", or "best". gold:
    sentences with reference alignments, to find the head that aligns best; without them, `information`
    decides. most: tokens of the text, and of the target; longer ones are refused.
    """
    model = loaded.model
    if needs_tree(model):
        gold = ()  # those sentences have no trees
    kinds = kinds_of(model) if inputs_of(model) is not None else ("self",)
    if not kinds:
        raise BadInput(f"this {loaded.architecture} has no attention to look at")
    which = kinds[0] if which is None else which
    if which not in kinds:
        raise BadInput(
            f"this {loaded.architecture} has no {which}-attention: look at {' or '.join(kinds)}"
            if which in WHICH
            else f'which is {", ".join(WHICH)}, not "{which}"'
        )
    words = given(loaded, text, target, most)
    records = run(model, words, ("q", "k", "v", "scores"), reading(loaded, text))
    paths = paths_of(model, which)
    weights = {path: records[path].weights[-1][0].float().cpu() for path in paths.values()}
    if not all(torch.isfinite(each).all() for each in weights.values()):
        raise NotFinite(
            "the attention of this model is not finite: `heedful doctor` names the weights that are not"
        )
    heads = [
        Head(number, i + 1, path, each)
        for number, path in paths.items()
        for i, each in enumerate(weights[path])
    ]
    within = heads if layer is None else [one for one in heads if one.layer == layer]
    if not within:
        raise BadInput(f"there is no layer {layer}: layers are counted from 1 to {len(paths)}")
    best, why = find_best(loaded, within, which, gold, layer)
    chosen = choose(within, head, best)
    down, across = axes(loaded, words, which)
    return Look(loaded, words, which, down, across, weights, heads, chosen, best, why, records)


@torch.no_grad()
def run(
    model: nn.Module, words: InputTokens, also: Sequence[str] = (), reader: nn.Module | None = None
) -> Records:
    """Everything the attentions of a model do with one input. reader: the model with the input's tree."""
    device = next(model.parameters()).device
    ids_1T = torch.tensor([words.ids], device=device)
    with watch(model, also) as records:
        if isinstance(model, EncoderDecoder):
            read_1T = torch.tensor([words.read], device=device)
            assert reader is None or isinstance(reader, EncoderDecoder)
            source = (reader or model).read(ids_1T, places_for(model, words.ids))
            model.decoder.hidden(read_1T, source=source)
        else:
            shell = next(iter(attending_shells(model).values()))
            shell.hidden(ids_1T) if isinstance(shell, Decoder) else shell(ids_1T)
    return records
