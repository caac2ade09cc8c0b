"""Looking: which words a model attends to in one input, head by head, by the model's own numbers.

    seen = look(heedful.load("runs/demo").loaded, "The small girl eats a red apple.")
    print(seen.text())                       # in a terminal; in a notebook, `seen` alone shows the picture
    Path("attention.svg").write_text(seen.svg())

Layers and heads are counted from 1. Cross-attention is read at the row that *predicts* each word: with the target
shifted right, the row that reads the word before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ...corpora import phrasebook
from ...data.pieces import labels
from ...data.vocab import SPECIALS, Vocab, no_panic
from ...decode.filters import forbidden
from ...decode.greedy import greedy
from ...decode.step import step_of
from ...errors import BadInput, NotFinite
from ...files import inside, naming, read_json
from ...interop.loaded import Loaded
from ...models.base.classifying import is_taught_here
from ...models.base.heads import DecoderClassifier
from ...models.base.shells import Decoder, Encoder, EncoderDecoder, WithHeads
from ...parts.embeddings import Inputs
from ...parts.masks import Mask, full
from ...parts.view import View
from ...parts.watch import Trace, Watchable, watch
from ...tasks.alignment import error_rates, links_of, token_links, word_of_token
from ...tasks.metrics import alignment_error_rate
from ...tasks.translate_data import SeparateVocabs
from . import pictures
from .pictures import Panel, Picture
from .steps import Steps, find, steps_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MOST = 256  # tokens: a picture of more cannot be read
SHOWN = 12  # heads in a terminal's table
LONG = 70  # characters of a text in a title
TRIED = 40  # sentences with gold alignments, to find the head that aligns best
TRIED_SEED = 7
WHICH = ("self", "cross", "encoder")


# One input, as the model gets it.


@dataclass(frozen=True)
class Given:
    """The tokens of one input. Of an encoder-decoder also what the decoder reads, and what each of it predicts."""

    text: str
    ids: list[int]
    read: list[int] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    translation: str = ""


def given(loaded: Loaded, text: str, target: str | None = None) -> Given:
    """A text as tokens; of an encoder-decoder with its target, or with what the model itself writes."""
    model, ids = loaded.model, tokens_of(loaded, text)
    refuse_size(len(ids), "the text")
    if not isinstance(model, EncoderDecoder):
        if target is not None:
            raise BadInput(
                f"--target is what an encoder-decoder writes, and this {loaded.architecture} is none: leave it out"
            )
        return Given(text, ids)
    start, eos = ends_of(loaded)
    written = loaded.target_tokenizer or loaded.tokenizer
    if target is None:
        answers = own_translation(loaded, ids, start, eos)
    else:
        answers = [*encode(written, target, False, rows_of(model.decoder)), eos]
    refuse_size(len(answers), "the target" if target is not None else "the translation")
    words = answers[:-1] if answers and answers[-1] == eos else answers
    said = target if target is not None else decode(written, words)
    return Given(text, ids, [start, *answers[:-1]], answers, said)


def tokens_of(loaded: Loaded, text: str) -> list[int]:
    """What the model reads of a text, special tokens included."""
    tokenizer, model = loaded.tokenizer, loaded.model
    embedding = inputs_of(model)
    if hasattr(loaded.config, "vocab") and not kinds_of(model):
        raise BadInput(f"there is no attention to look at in a {loaded.architecture}: it came before")
    if embedding is None:
        raise BadInput(f"a {loaded.architecture} reads images: look reads text")
    own = tokenizer is not None and is_own(tokenizer)
    ids = encode(tokenizer, text, not own, embedding.tokens.weight.shape[0])
    if tokenizer is None:
        return ids
    if not own:
        return finished(loaded, tokenizer, ids)
    if isinstance(model, WithHeads):
        return [Vocab.cls, *ids, Vocab.sep]
    return [Vocab.bos, *ids, Vocab.eos] if isinstance(model, DecoderClassifier) else ids


def is_own(tokenizer: Tokenizer) -> bool:
    """A vocabulary that heedful learned: tasks add its special tokens, and are not to find them there already."""
    return all(tokenizer.token_to_id(token) == number for number, token in enumerate(SPECIALS))


def finished(loaded: Loaded, tokenizer: Tokenizer, ids: list[int]) -> list[int]:
    """Special tokens that a published tokenizer leaves to the model's code."""
    eos = loaded.special.get("eos")
    if isinstance(loaded.model, EncoderDecoder) and eos is not None and ids[-1:] != [eos]:
        return [*ids, eos]
    end = tokenizer.token_to_id("<|endoftext|>")  # GPT-2's only one, at both ends of a text to classify
    if is_taught_here(loaded.model) and end is not None:
        return [end, *ids, end]
    return ids


def encode(tokenizer: Tokenizer | None, text: str, special: bool, rows: int) -> list[int]:
    """Token numbers. A model without a tokenizer is given the numbers themselves."""
    if tokenizer is not None:
        with no_panic("the text cannot be tokenized"):
            return list(tokenizer.encode(text, add_special_tokens=special).ids)
    words = text.split()
    if not words or not all(word.isascii() and word.isdigit() and int(word) < rows for word in words):
        raise BadInput(
            f'this model has no tokenizer: give token numbers from 0 to {rows - 1}, such as "5 3 8"'
        )
    return [int(word) for word in words]


def decode(tokenizer: Tokenizer | None, ids: Sequence[int]) -> str:
    if tokenizer is None:
        return " ".join(map(str, ids))
    with no_panic("token numbers cannot be turned into text"):
        return tokenizer.decode(list(ids), skip_special_tokens=True)


def refuse_size(count: int, what: str) -> None:
    if not count:
        raise BadInput(f"{what} has no tokens: there is nothing to look at")
    if count > MOST:
        raise BadInput(f"{what} has {count} tokens, and a picture shows at most {MOST}: give a shorter one")


def ends_of(loaded: Loaded) -> tuple[int, int]:
    """The tokens that a target begins and ends with."""
    start = loaded.special.get("decoder_start", loaded.special.get("bos"))
    eos = loaded.special.get("eos")
    if start is None or eos is None:
        raise BadInput(
            "this model does not say which tokens begin and end a target: its config.json needs a "
            "decoder_start_token_id and an eos_token_id"
        )
    return start, eos


@torch.no_grad()
def own_translation(loaded: Loaded, ids: list[int], start: int, eos: int) -> list[int]:
    """The tokens that the model writes, always taking the likeliest; the end of sentence included, if it comes."""
    device = next(loaded.model.parameters()).device
    source_1S, start_11 = (torch.tensor([row], device=device) for row in (ids, [start]))
    padded = loaded.architecture == "transformer" and start == loaded.special.get("pad")
    never = [forbidden([start])] if padded else []  # Marian begins with its padding, and never writes it
    step = step_of(loaded.model, source_1S)  # type: ignore[arg-type]
    longest = min(2 * len(ids) + 20, MOST)
    return greedy(step, start_11, longest=longest, eos=eos, filters=never)[0].tokens


# The parts of a model that attend.


def shells_of(model: nn.Module) -> dict[str, Encoder | Decoder]:
    """{where its attentions are: the shell}, for any model that heedful loads."""
    if isinstance(model, EncoderDecoder):
        return {"encoder": model.encoder, "decoder": model.decoder}
    if isinstance(model, DecoderClassifier):
        return {"decoder": model.decoder}
    if isinstance(model, WithHeads):
        return {"encoder": model.encoder}
    if isinstance(model, Decoder):
        return {"": model}
    raise BadInput(f"there is no attention to look at in a {type(model).__name__}")


def inputs_of(model: nn.Module) -> Inputs | None:
    """What turns tokens into vectors; None if the model reads something else (images)."""
    inputs = next(iter(shells_of(model).values())).inputs
    return inputs if isinstance(inputs, Inputs) else None


def rows_of(decoder: Decoder) -> int:
    """How many tokens a decoder knows."""
    return decoder.inputs.tokens.weight.shape[0]


@torch.no_grad()
def run(model: nn.Module, words: Given, also: Sequence[str] = ()) -> Trace:
    """Everything the attentions of a model do with one input."""
    device = next(model.parameters()).device
    ids_1T = torch.tensor([words.ids], device=device)
    with watch(model, also) as trace:
        if isinstance(model, EncoderDecoder):
            read_1T = torch.tensor([words.read], device=device)
            model.decoder.hidden(read_1T, source=model.read(ids_1T))
        else:
            shell = next(iter(shells_of(model).values()))
            shell.hidden(ids_1T) if isinstance(shell, Decoder) else shell(ids_1T)
    return trace


def paths_of(model: nn.Module, which: str) -> dict[int, str]:
    """{layer, from 1: the path of its attention} of one kind."""
    shells = shells_of(model)
    pair = isinstance(model, EncoderDecoder)
    place = "encoder" if which == "encoder" and pair else list(shells)[-1]
    start = f"{place}." if place else ""
    stack = shells[place].get_submodule("stack")
    watched = [path for path, m in stack.named_modules() if isinstance(m, Watchable)]
    found = [path for path in watched if ("cross" in path.split(".")) == (which == "cross")]
    return {i + 1: f"{start}stack.{path}" for i, path in enumerate(found)}


def kinds_of(model: nn.Module) -> tuple[str, ...]:
    """The kinds of attention that a model has; the first is what is looked at unless said otherwise."""
    if isinstance(model, EncoderDecoder):
        return tuple(which for which in ("cross", "self", "encoder") if paths_of(model, which))
    if isinstance(model, WithHeads) and paths_of(model, "self"):  # an encoder alone: both are the same
        return "self", "encoder"
    return ("self",) if paths_of(model, "self") else ()


def mask_of(model: nn.Module, which: str, layer: int) -> Mask:
    """Who may look at whom in one layer."""
    if which == "cross":
        return full()
    shells = shells_of(model)
    shell = shells["encoder"] if which == "encoder" else list(shells.values())[-1]
    return shell.masks[(layer - 1) % len(shell.masks)]


# Heads, and what can be said of them.


@dataclass(frozen=True, eq=False)
class Head:
    """The attention of one head, or the mean of a layer's."""

    layer: int  # from 1
    head: int | None  # from 1; None: the mean of all
    path: str
    weights_TS: Tensor

    @property
    def name(self) -> str:
        return f"layer {self.layer}, " + ("mean of its heads" if self.head is None else f"head {self.head}")


def information(weights_TS: Tensor) -> float:
    """How much a head's gaze tells of who is looking, in bits: H(mean row) - mean of H(row).

    0 for a head that looks everywhere alike, and for one that all look at the same place with; log2 T for one
    with which every query looks at a key of its own. This is the measure of "best" where no gold alignment exists.
    """
    weights_TS = weights_TS.double()
    return float(entropy(weights_TS.mean(0)) - entropy(weights_TS).mean())


def entropy(weights: Tensor) -> Tensor:
    """In bits, over the last axis."""
    return -(weights * weights.clamp(min=1e-30).log2()).sum(-1)


def sharpness(weights_TS: Tensor) -> float:
    """The mean of each query's largest weight: 1 if every one looks at a single key."""
    return float(weights_TS.max(-1).values.mean())


def habits(weights_TS: Tensor) -> dict[str, float]:
    """Shares of self-attention that go to the query itself, to its neighbors and to the first token."""
    return {
        "itself": float(weights_TS.diagonal().mean()),
        "one before": float(weights_TS.diagonal(-1).mean()) if len(weights_TS) > 1 else 0.0,
        "one after": float(weights_TS.diagonal(1).mean()) if len(weights_TS) > 1 else 0.0,
        "the first": float(weights_TS[1:, 0].mean()) if len(weights_TS) > 1 else 1.0,
    }


# The look.


@dataclass(frozen=True)
class Look:
    """The attention of one input. `down` are the queries and `across` the keys, as people read them.

    `chosen` are the heads that were asked for, `heads` all of this kind of attention, and `weights` the same as
    tensors [H, T, S] by module path. `svg`, `png` and `text` draw what was chosen.
    """

    loaded: Loaded = field(repr=False)
    words: Given
    which: str  # self, cross or encoder
    down: list[str]
    across: list[str]
    weights: dict[str, Tensor] = field(repr=False)
    heads: list[Head] = field(repr=False)
    chosen: list[Head] = field(repr=False)
    best: Head = field(repr=False)
    best_by: str  # what made it the best
    trace: Trace = field(repr=False)
    pair: phrasebook.Pair | None = None  # with the gold alignment of these very sentences

    # Alignment

    def beside(self, pair: phrasebook.Pair | None) -> Look:
        """The same beside a gold alignment, if it is one of these sentences."""
        fits = pair is not None and self.which == "cross" and pair.target == self.words.translation
        return replace(self, pair=pair if fits else None)

    @cached_property
    def places(self) -> tuple[list[int], list[int]]:
        """Which word each token of the source and of the target belongs to."""
        read, written = self.loaded.tokenizer, self.loaded.target_tokenizer or self.loaded.tokenizer
        assert read is not None and written is not None
        return word_of_token(read, self.words.text), word_of_token(written, self.words.translation)

    def error_rate(self, head: Head) -> float | None:
        """The alignment error of one head (AER); None where no gold alignment exists."""
        if self.pair is None:
            return None
        return alignment_error_rate(links_of(head.weights_TS, *self.places), set(self.pair.alignment))

    @property
    def marked(self) -> set[tuple[int, int]]:
        """Cells that the gold alignment links."""
        return set() if self.pair is None else token_links(set(self.pair.alignment), *self.places)

    # Pictures

    def picture(self) -> Picture:
        """One head with all its words, or many as small multiples."""
        if len(self.chosen) == 1:
            head = self.chosen[0]
            rate = self.error_rate(head)
            told = self.legend()
            if rate is not None:
                told.append(f"frames: the gold alignment, from which this one's error rate is {rate:.2f}")
            return pictures.map_of(
                head.weights_TS.tolist(), self.down, self.across, f"{self.title(self.full_name(head))}\n{self.sentence()}",
                below=told, allowed=self.allowed(head.layer), marked=self.marked,
            )  # fmt: skip
        panels = [Panel(head.name, head.weights_TS.tolist(), head is self.best) for head in self.chosen]
        layers = len({head.layer for head in self.chosen})
        across = min(8, len(panels)) if layers in (1, len(panels)) else len(panels) // layers
        told = [*self.legend(), f"frame: {self.best_by}"] if self.best in self.chosen else self.legend()
        return pictures.small_multiples(
            panels,
            across,
            self.down,
            self.across,
            f"{self.title(self.all_of())}\n{self.sentence()}",
            below=told,
        )

    def svg(self) -> str:
        """The picture as the text of an SVG file."""
        return self.picture().svg()

    def png(self) -> bytes:
        """The picture as a PNG file; needs Pillow."""
        return self.picture().png()

    def _repr_html_(self) -> str:
        return self.svg()

    def title(self, what: str) -> str:
        return f"{NAMES[self.which, self.is_pair]}: {what}"

    def all_of(self) -> str:
        """What several chosen heads are together."""
        first, layers = self.chosen[0], {head.layer for head in self.chosen}
        if len(layers) == 1:
            return f"layer {first.layer} of {len(self.weights)}, all {len(self.chosen)} heads"
        if first.head is None:
            return "the mean of each layer's heads"
        if len(layers) == len(self.chosen):
            return f"head {first.head} of every layer"
        return f"{len(layers)} layers of {len(self.chosen) // len(layers)} heads"

    def full_name(self, head: Head) -> str:
        """A head among all of them."""
        layer, heads = f"layer {head.layer} of {len(self.weights)}", len(self.weights[head.path])
        return f"{layer}, " + (
            f"mean of {heads} heads" if head.head is None else f"head {head.head} of {heads}"
        )

    def sentence(self) -> str:
        """The input in a line, and what was written."""
        told = [self.words.text, self.words.translation] if self.is_pair else [self.words.text]
        lines = [" ".join(text.split()) for text in told]
        return "  →  ".join(line if len(line) <= LONG else f"{line[: LONG - 1]}…" for line in lines)

    def legend(self) -> list[str]:
        """What rows and columns are."""
        told = {
            "cross": "each row is a word being written, and shows which words of the source it looks at",
            "self": "each row is a token, and shows which tokens it looks at",
            "encoder": "each row is a word of the source, and shows which words of the source it looks at",
        }[self.which]
        return [told]

    @property
    def is_pair(self) -> bool:
        return isinstance(self.loaded.model, EncoderDecoder)

    def allowed(self, layer: int) -> list[list[bool]]:
        """Which keys each query may look at."""
        T, S = len(self.down), len(self.across)
        mask = mask_of(self.loaded.model, self.which, layer)
        return View(mask, T, S).allowed(1).expand(1, 1, T, S)[0, 0].tolist()

    # Words

    def text(self, width: int = 100) -> str:
        """For a terminal: the head that was chosen as shades; of several, a table of them and the best one."""
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
        return max(self.chosen, key=lambda head: information(head.weights_TS))

    @property
    def shown_by(self) -> str:
        """Why it was picked out of several."""
        if self.shown is self.best:
            return self.best_by
        return MEASURE if self.shown.head is not None else "the mean that tells most of who is looking"

    def shades(self, head: Head, width: int = 100) -> str:
        return pictures.shades(
            head.weights_TS.tolist(), self.down, self.across, width, self.allowed(head.layer)
        )

    def overview(self) -> list[str]:
        """A line for each head, the most telling first."""
        ranked = sorted(self.chosen, key=lambda head: -information(head.weights_TS))
        shares = [] if self.which == "cross" else list(habits(ranked[0].weights_TS))
        if all(not any(row[i + 1 :]) for i, row in enumerate(self.allowed(1))):
            shares = [name for name in shares if name != "one after"]  # nobody looks ahead here
        rates = ["AER"] if self.pair is not None else []
        widths = [max(5, len(name)) for name in [*shares, *rates]]
        titles = zip([*shares, *rates], widths, strict=True)
        lines = ["layer  head   bits  sharp  " + "  ".join(f"{name:>{width}}" for name, width in titles)]
        for head in ranked[:SHOWN]:
            measured = habits(head.weights_TS)
            numbers = [measured[name] for name in shares]
            rate = self.error_rate(head)
            numbers += [] if rate is None else [rate]
            name = "mean" if head.head is None else str(head.head)
            first = f"{head.layer:>5}  {name:>4}  {information(head.weights_TS):>5.2f}  {sharpness(head.weights_TS):>5.2f}"
            cells = [f"{number:>{width}.2f}" for number, width in zip(numbers, widths, strict=True)]
            lines.append("  ".join([first, *cells]).rstrip())
        if len(ranked) > SHOWN:
            lines.append(f"and {len(ranked) - SHOWN} more, which say less: the picture has all, and --json")
        told = "bits: how much a head's gaze tells of who is looking; sharp: the mean of each row's largest weight"
        told += "; then where it goes" if shares else ""
        lines += [told, "AER: its alignment error rate; 0 is the gold alignment"] if rates else [told]
        return [line.rstrip() for line in lines]

    def steps(self, query: str | int) -> Steps:
        """Scores, mask, weights and weighted values of one query, by the head that was chosen or the best of them."""
        head = self.chosen[0] if len(self.chosen) == 1 else self.best
        if head.head is None:
            raise BadInput("--query follows one head: give --head a number, or best")
        attention = self.loaded.model.get_submodule(head.path)
        assert isinstance(attention, Watchable)
        place = find(self.down, query)
        allowed_S = torch.tensor(self.allowed(head.layer)[place])
        return steps_of(
            self.trace[head.path], attention, allowed_S,
            layer=head.layer, head=head.head, query=place + 1, word=self.down[place], keys=self.across,
        )  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        """All the numbers."""
        return {
            "architecture": self.loaded.architecture,
            "which": self.which,
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
            "information": information(head.weights_TS),
            "sharpness": sharpness(head.weights_TS),
            "alignment_error_rate": self.error_rate(head),
            "weights": head.weights_TS.tolist(),
        }


NAMES = {  # of a kind of attention, in an encoder-decoder or elsewhere
    ("cross", True): "cross-attention",
    ("self", True): "the decoder's self-attention",
    ("encoder", True): "the encoder's self-attention",
    ("self", False): "self-attention",
    ("encoder", False): "self-attention",
}
MEASURE = "the head whose gaze tells most of who is looking"


def look(
    loaded: Loaded,
    text: str,
    *,
    target: str | None = None,
    which: str | None = None,
    layer: int | None = None,
    head: int | str | None = None,
    gold: Sequence[phrasebook.Pair] = (),
) -> Look:
    """The attention of a model in one input.

    target: what an encoder-decoder writes; by default its own greedy translation. which: "self", "cross" or
    "encoder" (the source's own). layer: one of them, from 1. head: one of them, "mean", or "best". gold: sentences
    with gold alignments, to find the head that aligns best; without them the best is by `information`.
    """
    model = loaded.model
    if getattr(getattr(model, "encoder", None), "needs_tree", False):
        raise BadInput("this model reads sentences with their trees, and a text alone has none to look at")
    kinds = kinds_of(model) if inputs_of(model) is not None else ("self",)
    if not kinds:
        raise BadInput(f"there is no attention to look at in a {loaded.architecture}: it came before")
    which = kinds[0] if which is None else which
    if which not in kinds:
        raise BadInput(
            f"this {loaded.architecture} has no {which}-attention: look at {' or '.join(kinds)}"
            if which in WHICH
            else f'which is {", ".join(WHICH)}, not "{which}"'
        )
    words = given(loaded, text, target)
    trace = run(model, words, ("q", "k", "v", "scores"))
    paths = paths_of(model, which)
    weights = {path: trace[path].weights[-1][0].float().cpu() for path in paths.values()}
    if not all(torch.isfinite(each).all() for each in weights.values()):
        raise NotFinite(
            "the attention of this model is not a number: heedful doctor says which of its weights"
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
    return Look(loaded, words, which, down, across, weights, heads, chosen, best, why, trace)


def choose(heads: list[Head], head: int | str | None, best: Head) -> list[Head]:
    """The heads that were asked for."""
    if head is None:
        return heads
    if head == "best":
        return [best]
    if head == "mean":
        layers = {one.layer: one.path for one in heads}
        return [
            Head(n, None, path, torch.stack([h.weights_TS for h in heads if h.layer == n]).mean(0))
            for n, path in layers.items()
        ]
    found = [one for one in heads if one.head == head]
    if not found:
        most = max(one.head or 0 for one in heads)
        raise BadInput(f'there is no head {head}: give a number from 1 to {most}, "mean" or "best"')
    return found


def find_best(
    loaded: Loaded, heads: list[Head], which: str, gold: Sequence[phrasebook.Pair], layer: int | None
) -> tuple[Head, str]:
    """The head that aligns best in sentences whose alignment is known; else the one whose gaze tells most."""
    where = "" if layer is None else f" of layer {layer}"
    if which != "cross" or not gold or loaded.tokenizer is None or not is_own(loaded.tokenizer):
        return max(heads, key=lambda head: information(head.weights_TS)), f"{MEASURE}{where}"
    rates = error_rates(loaded.model, vocabs_of(loaded), gold)  # type: ignore[arg-type]
    numbers = [(n, i + 1) for n, size in heads_by_layer(loaded.model).items() for i in range(size)]
    of_head: dict[Any, float] = dict(zip(numbers, rates.tolist(), strict=True))
    best = min(heads, key=lambda head: of_head[head.layer, head.head])
    rate = of_head[best.layer, best.head]
    return best, f"the head that aligns best{where} (error rate {rate:.2f} over {len(gold)} other sentences)"


def heads_by_layer(model: nn.Module) -> dict[int, int]:
    """{layer: how many heads its cross-attention has}."""
    return {n: model.get_submodule(path).heads for n, path in paths_of(model, "cross").items()}  # type: ignore[misc]


def vocabs_of(loaded: Loaded) -> Vocab | SeparateVocabs:
    """The vocabularies of a translator that heedful trained."""
    assert loaded.tokenizer is not None
    read = Vocab.from_json(loaded.tokenizer.to_str())
    if loaded.target_tokenizer is None:
        return read
    return SeparateVocabs(read, Vocab.from_json(loaded.target_tokenizer.to_str()))


def axes(loaded: Loaded, words: Given, which: str) -> tuple[list[str], list[str]]:
    """The words of queries and of keys. Cross-attention is of the word being written, not of the one before it."""
    source = labels(loaded.tokenizer, words.ids)
    written = loaded.target_tokenizer or loaded.tokenizer
    if which == "cross":
        return labels(written, words.answers), source
    if which == "self" and words.read:
        read = labels(written, words.read)
        return read, read
    return source, source


def practice(folder: Path) -> list[phrasebook.Pair]:
    """Sentences with gold alignments for the run in a folder, if there are any: it must have learned the phrasebook."""
    if not (folder / "recipe.json").is_file():
        return []
    with naming(folder / "recipe.json"):
        data = read_json(inside(folder, "recipe.json")).get("data")
    if not isinstance(data, dict) or data.get("corpus") != "phrasebook":
        return []
    return list(islice(phrasebook.pairs(TRIED_SEED), TRIED))
