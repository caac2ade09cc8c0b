"""Parity: is what another library makes of a model the same model? Its outputs are compared with ours, input by input.

`Elsewhere` is all that is asked of the other library. `certify` gives both the same inputs, always the same ones, and its
`Certificate` says what was found: how far logits lie apart, whether the same words are written, whether texts have the
same numbers. It is written beside the weights as parity.json.
"""

from __future__ import annotations

import json
import math
import platform
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from .. import __version__
from ..decode.beam import BeamSettings, beam_search
from ..decode.greedy import greedy
from ..decode.step import Step, step_of
from ..files import flush, one_line
from ..models.base.heads import DecoderClassifier
from ..models.base.shells import Decoder, EncoderDecoder, WithHeads
from .hf.beside import tokenizer_text
from .hf.probes import corpus
from .load import Loaded

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PARITY = "parity.json"
SAME, DIFFERENT, UNCHECKED = "same", "different", "not checked"
WIDTH = 4  # of beam search
NEW = 16  # tokens to write
LONGEST = 48  # tokens of an input
READ, DRAWN, WRITTEN = (
    10,
    4,
    6,
)  # texts and random inputs that logits are compared of, and inputs that are answered
PICTURES = 3
SEED = 20170612


class Elsewhere(Protocol):
    """A model opened in another library. None where that library does not say.

    An attribute `computes` names the kind of numbers it computes with, if it is another than float32.
    Three methods more are used where there are any: `pictures(images_BCHW) -> list[Tensor]`, what `logits` would say of
    each picture; `batch(rows, targets) -> list[Tensor]`, `logits` of several texts that it pads; and `other_heads(ids) ->
    list[Tensor]`, what the heads after the first say.
    """

    def logits(self, ids: list[int], target: list[int] | None) -> Tensor | None:
        """Scores [T, V] in fp32 after each token of one text: of `ids` for a decoder; of `target`, which begins with the
        token that decoding starts with, for an encoder-decoder that reads `ids`. Of an encoder, what its first head says
        (pooling is none), or without a head its hidden states and, as a last row, what it pools; a head that says one
        thing of a whole text gives one row.
        Log-probabilities will do, if an attribute `says_log_probabilities` is True."""

    def greedy(self, ids: list[int], new: int) -> list[int] | None:
        """The likeliest continuation (or translation): at most `new` tokens, without the token that ends it."""

    def beam(self, ids: list[int], width: int, new: int) -> list[int] | None:
        """The same by beam search with no length normalization: the hypothesis of highest probability among those that
        ended, and those that have `new` tokens."""

    def tokens(self, text: str) -> list[int] | None:
        """The text by its own tokenizer, special tokens included as for a text to be read."""


# What is allowed


@dataclass(frozen=True)
class Bound:
    """How far apart two libraries may be and still have the same model, at one precision."""

    difference: float  # of logits, the largest: as a share of the largest logit
    argmax: float  # share of tokens after which both find the same one likeliest
    outputs: float  # share of greedy outputs, and of beam search's, that are the same


# fp32 differs by rounding only. Fewer bits change a few words of any model, and of a random one more than of a trained one.
BOUNDS = {
    "float32": Bound(1e-5, 1.0, 1.0),
    "float16": Bound(1e-2, 0.97, 0.5),
    "bfloat16": Bound(5e-2, 0.9, 0.0),
    "int8": Bound(0.1, 0.85, 0.0),
    "q8_0": Bound(0.1, 0.85, 0.0),
}


# What was found


@dataclass(frozen=True)
class Logits:
    compared: str  # which numbers: logits, hidden states, or a head's
    inputs: int
    numbers: int
    largest: float  # difference
    mean: float  # difference
    scale: float  # the largest of our numbers
    argmax: float | None  # share of agreement; None where the largest number means nothing

    @property
    def relative(self) -> float:
        return self.largest / self.scale if self.scale else self.largest


@dataclass(frozen=True)
class Outputs:
    inputs: int
    same: int
    ties: int  # others, between which our model sees no difference beyond rounding
    first_difference: dict[str, list[int]] | None = None

    @property
    def share(self) -> float:
        return (self.same + self.ties) / self.inputs


@dataclass(frozen=True)
class Tokens:
    texts: int
    same: int
    first_difference: dict[str, Any] | None = None


@dataclass(frozen=True)
class Certificate:
    """What a comparison found, and whether it is the same model."""

    verdict: str  # same, different, not checked
    format: str
    kind: str  # how the weights are stored: float32, int8, ...
    architecture: str
    versions: dict[str, str]
    faults: tuple[str, ...] = ()  # why it is different, or was not checked
    logits: Logits | None = None
    greedy: Outputs | None = None
    beam: Outputs | None = None
    tokenizer: Tokens | None = None
    tolerance: Bound | None = None
    more: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Everything, as parity.json has it."""
        found = asdict(self)
        more = found.pop("more")
        if self.logits is not None:
            found["logits"]["relative"] = self.logits.relative
        for name, outputs in (("greedy", self.greedy), ("beam", self.beam)):
            if outputs is not None:
                found[name]["new_tokens"] = NEW
        if self.beam is not None:
            found["beam"]["width"] = WIDTH
        return finite(found | {"faults": list(self.faults)} | more)

    def told(self) -> list[str]:
        """The same in lines, for people."""
        lines = []
        if self.logits is not None:
            a = "" if self.logits.argmax is None else f", the same likeliest in {self.logits.argmax:.2%}"
            lines.append(
                f"{self.logits.compared}: largest difference {self.logits.largest:.2g} "
                f"({self.logits.relative:.1g} of their scale), mean {self.logits.mean:.2g}{a}"
            )
        for name, outputs in (("greedy", self.greedy), (f"beam {WIDTH}", self.beam)):
            if outputs is not None:
                tied = f", {outputs.ties} tied" if outputs.ties else ""
                lines.append(f"{name}: {outputs.same} of {outputs.inputs} outputs the same{tied}")
        if self.tokenizer is not None:
            lines.append(f"tokenizer: {self.tokenizer.same} of {self.tokenizer.texts} texts the same")
        elif lines:
            lines.append("tokenizer: not compared, since the one side or the other has none")
        return lines


def finite(node: Any) -> Any:
    """The same with null in place of what is no finite number, for which JSON has no word."""
    if isinstance(node, dict):
        return {key: finite(value) for key, value in node.items()}
    return None if isinstance(node, float) and not math.isfinite(node) else node


def write(certificate: Certificate, folder: Path) -> None:
    """As parity.json of a folder: aside, and renamed."""
    text = json.dumps(certificate.as_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    aside = folder / f".{PARITY}.tmp"
    aside.write_text(text, encoding="utf-8")
    flush(aside)
    aside.replace(folder / PARITY)


def unchecked(loaded: Loaded, format: str, kind: str, why: str, packages: Sequence[str] = ()) -> Certificate:
    return Certificate(UNCHECKED, format, kind, loaded.architecture, versions(packages), (why,))


def versions(packages: Sequence[str]) -> dict[str, str]:
    """{library: version} of heedful, of what it runs on, and of the packages that are installed."""
    found = {"heedful": __version__, "python": platform.python_version(), "torch": torch.__version__}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


# Our side


class Here:
    """Our own model, asked as another library's is."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded, self.model = loaded, loaded.model
        self.ends = loaded.special.get("eos")
        self.start = loaded.special.get("decoder_start", loaded.special.get("bos", 0))

    @property
    def writes(self) -> bool:
        return isinstance(self.model, Decoder | EncoderDecoder)

    @property
    def sees_pictures(self) -> bool:
        return not hasattr(self.loaded.config, "vocab")

    @property
    def compared(self) -> str:
        """What `logits` gives."""
        if isinstance(self.model, WithHeads):
            return first_head(self.model) or HIDDEN
        return "logits"

    @torch.no_grad()
    def logits(self, ids: list[int], target: list[int] | None) -> Tensor:
        ids_1T = torch.tensor([ids])
        if isinstance(self.model, EncoderDecoder):
            return self.model(ids_1T, torch.tensor([target]))[0].float()
        if isinstance(self.model, DecoderClassifier):
            return self.model(ids_1T, torch.tensor([len(ids)])).float()
        if isinstance(self.model, WithHeads):
            return self.read(ids_1T)[0].float()
        return self.model(ids_1T)[0].float()

    def pictures(self, images_BCHW: Tensor) -> Tensor:
        with torch.no_grad():
            return self.read(images_BCHW).float()

    @torch.no_grad()
    def other_heads(self, ids: list[int]) -> list[Tensor]:
        """What heads after the first say of a text."""
        if not isinstance(self.model, WithHeads):
            return []
        said = self.model(torch.tensor([ids]))
        names = [name for name in said if name not in NO_SCORES and name != first_head(self.model)]
        return [said[name][0].float() if said[name].ndim == 3 else said[name].float() for name in names]

    def read(self, given: Tensor) -> Tensor:
        """What the first head says, [B, T, ...]; a head that says one thing of the whole has T = 1."""
        assert isinstance(self.model, WithHeads)
        name = first_head(self.model)
        if name is not None:
            found = self.model(given)[name]
            return found if found.ndim == 3 else found[:, None]
        hidden_BTD, heads = self.model.encoder(given), self.model.heads
        if "pooled" not in heads:
            return hidden_BTD
        return torch.cat([hidden_BTD, heads["pooled"](hidden_BTD, self.model.encoder.inputs)[:, None]], 1)

    def step(self, ids: list[int]) -> tuple[Step, Tensor]:
        if isinstance(self.model, EncoderDecoder):
            return step_of(self.model, torch.tensor([ids])), torch.tensor([[self.start]])
        assert isinstance(self.model, Decoder)
        return step_of(self.model), torch.tensor([ids])

    @torch.no_grad()
    def greedy(self, ids: list[int], new: int) -> list[int] | None:
        if not self.writes:
            return None
        step, prompt_1T = self.step(ids)
        return greedy(step, prompt_1T, longest=new, eos=self.ends)[0].words

    def beam(self, ids: list[int], width: int, new: int) -> list[int] | None:
        if not self.writes:
            return None
        step, prompt_1T = self.step(ids)
        settings = BeamSettings(width, 1, "power", 0.0, stopping="exact")
        return beam_search(step, prompt_1T, longest=new, eos=self.ends, settings=settings)[0][0].words

    def tokens(self, text: str) -> list[int] | None:
        return None if self.loaded.tokenizer is None else self.reader.encode(text).ids

    @cached_property
    def reader(self) -> Tokenizer:
        """The tokenizer as it is saved, with what it puts around texts."""
        from tokenizers import Tokenizer

        ours: Any = self.loaded.tokenizer
        if not isinstance(ours, Tokenizer):
            return ours  # Marian's is saved as it came
        made = Tokenizer.from_str(tokenizer_text(ours, self.model, self.loaded.special))
        made.encode_special_tokens = ours.encode_special_tokens and not isinstance(self.model, WithHeads)
        return made

    def surprise(self, ids: list[int], written: list[int], ended: bool) -> Tensor:
        """- log P of each token that was written, the end included if it was."""
        tokens = [*written, *([self.ends] if ended and self.ends is not None else [])]
        if isinstance(self.model, EncoderDecoder):
            scores_TV = self.logits(ids, [self.start, *tokens][: len(tokens)])
        else:
            scores_TV = self.logits([*ids, *tokens][:-1], None)[len(ids) - 1 :]
        return -scores_TV.double().log_softmax(-1)[torch.arange(len(tokens)), torch.tensor(tokens)]


def each_text(found: Tensor, lengths_B: Tensor, pooled_BD: Tensor | None = None) -> list[Tensor]:
    """Of a padded batch, what was said of each text: a row for every real token, or one for the whole; and what was
    pooled after them."""
    if found.ndim == 2:
        return list(found[:, None].float())
    rows = [row[:n].float() for row, n in zip(found, lengths_B.tolist(), strict=True)]
    if pooled_BD is None:
        return rows
    return [torch.cat([row, one[None].float()]) for row, one in zip(rows, pooled_BD, strict=True)]


def padded(rows: Sequence[list[int]], pad: int = 0) -> tuple[Tensor, Tensor]:
    """Rows as one tensor, padded at their ends; and how long each is."""
    longest = max(map(len, rows))
    tokens_BT = torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows])
    return tokens_BT, torch.tensor([len(row) for row in rows])


def real(tokens_BT: Tensor, lengths_B: Tensor) -> Tensor:
    """1 where a token is real, 0 in padding."""
    return (torch.arange(tokens_BT.shape[1]) < lengths_B[:, None]).long()


HIDDEN = "hidden states"
NO_SCORES = ("pooled", "class_token")  # vectors, on the way to a head


def first_head(model: WithHeads) -> str | None:
    """The head to compare; None if there are only hidden states."""
    return next((name for name in model.heads if name not in NO_SCORES), None)


# The inputs


def longest_of(model: nn.Module, config: Any) -> int:
    """How many tokens a model can read at least."""
    shells = [getattr(model, name) for name in ("encoder", "decoder") if hasattr(model, name)] or [model]
    tables = [shell.inputs.position.longest for shell in shells]
    return min([size for size in (*tables, getattr(config, "context", None)) if size] or [2 * LONGEST])


def inputs_for(here: Here) -> tuple[list[list[int]], int]:
    """What both are given to read, and how many tokens fit after it: texts where there is a tokenizer, and random tokens."""
    longest = longest_of(here.model, here.loaded.config)
    new = max(1, min(NEW, longest // 2))
    room = max(1, min(LONGEST, longest if isinstance(here.model, EncoderDecoder) else longest - new))
    dice = random.Random(SEED)
    read = [ids[:room] for text in corpus() if (ids := here.tokens(text) or [])]
    read = [ids for n, ids in enumerate(read) if len(ids) > 1 and ids not in read[:n]]
    some = dice.sample(read, min(READ, len(read)))
    free = [n for n in range(here.loaded.config.vocab) if n not in here.loaded.special.values()] or [0]
    drawn = [dice.choices(free, k=min(room, length)) for length in (1, 7, 23, room)[:DRAWN]]
    return drawn + some, new


# The comparison


def certify(
    ours: Loaded,
    theirs: Elsewhere,
    *,
    format: str,
    kind: str = "float32",
    packages: Sequence[str] = (),
    bound: Bound | None = None,
    progress: Callable[[str], None] = lambda told: None,
) -> Certificate:
    """Ask both the same, and say whether they are the same model. packages: the libraries whose versions to note."""
    here, bound = Here(ours), bound or BOUNDS.get(kind, BOUNDS["int8"])
    found: dict[str, Any] = {}
    if here.sees_pictures:
        found["logits"] = compare_pictures(here, theirs, bound)
    else:
        inputs, new = inputs_for(here)
        found["logits"] = compare_logits(here, theirs, inputs, new, bound, progress)
        if here.writes:
            slack = bound.difference * (found["logits"].scale if found["logits"] else 1.0)
            for name in ("greedy", "beam"):
                some = inputs[:WRITTEN]
                found[name] = compare_outputs(name, here, theirs, some, new, slack, progress)
        found["tokenizer"] = compare_tokens(here, theirs, progress)
    faults = faults_of(found, bound)
    nothing = all(each is None for each in found.values())
    verdict = UNCHECKED if nothing else DIFFERENT if faults else SAME
    told = ("the other library says nothing that could be compared",) if nothing else faults
    return Certificate(
        verdict, format, kind, ours.architecture, versions(packages), told, **found, tolerance=bound
    )


def faults_of(found: dict[str, Any], bound: Bound) -> tuple[str, ...]:
    """What lies outside the bounds, each in a sentence."""
    faults = []
    logits: Logits | None = found.get("logits")
    if logits is not None and not logits.relative <= bound.difference:  # nor if it is no number
        faults.append(
            f"{logits.compared} differ by {logits.relative:.2g} of their scale, where {bound.difference:g} is allowed"
        )
    if logits is not None and logits.argmax is not None and logits.argmax < bound.argmax:
        faults.append(
            f"the likeliest is the same in {logits.argmax:.2%} only, where {bound.argmax:.0%} is asked"
        )
    for name in ("greedy", "beam"):
        outputs: Outputs | None = found.get(name)
        if outputs is not None and outputs.share < bound.outputs:
            told = f"{outputs.same + outputs.ties} of {outputs.inputs}"
            faults.append(f"{name} gives the same in {told} only, where {bound.outputs:.0%} is asked")
    tokens: Tokens | None = found.get("tokenizer")
    if tokens is not None and tokens.same < tokens.texts:
        faults.append(f"the tokenizers agree about {tokens.same} of {tokens.texts} texts only")
    return tuple(faults)


class Differences:
    """Differences added up, input by input."""

    def __init__(self, log_probabilities: bool, slack: float) -> None:
        self.log_probabilities, self.slack = log_probabilities, slack
        self.inputs = self.numbers = self.rows = 0
        self.largest = self.total = self.scale = self.agreed = 0.0

    def add(self, ours_TV: Tensor, theirs_TV: Tensor, hidden: bool = False) -> None:
        if hidden and len(theirs_TV) == len(ours_TV) + 1:  # a pooling that the folder has no weights for
            theirs_TV = theirs_TV[:-1]
        if ours_TV.shape != theirs_TV.shape:
            self.largest, theirs_TV = math.inf, torch.full_like(ours_TV, torch.nan)
        if self.log_probabilities:
            ours_TV, theirs_TV = ours_TV.log_softmax(-1), theirs_TV.log_softmax(-1)
        off_TV = (ours_TV.double() - theirs_TV.double()).abs()
        self.inputs, self.numbers = self.inputs + 1, self.numbers + off_TV.numel()
        largest = float(off_TV.max())
        self.largest = max(self.largest, math.inf if math.isnan(largest) else largest)
        self.total += float(off_TV.sum())
        self.scale = max(self.scale, float(ours_TV.abs().max()))
        theirs_T = theirs_TV.argmax(-1, keepdim=True)
        behind_T = ours_TV.amax(-1) - ours_TV.gather(-1, theirs_T)[..., 0]
        self.agreed += float(
            (behind_T <= 2 * self.slack * self.scale).sum()
        )  # equals are as good as each other
        self.rows += len(behind_T)

    def logits(self, compared: str) -> Logits:
        share = None if compared == HIDDEN else self.agreed / self.rows
        mean = self.total / self.numbers
        return Logits(compared, self.inputs, self.numbers, self.largest, mean, self.scale, share)


def compare_logits(
    here: Here,
    theirs: Elsewhere,
    inputs: list[list[int]],
    new: int,
    bound: Bound,
    progress: Callable[[str], None],
) -> Logits | None:
    """Numbers of every input, as far as the other library says them."""
    apart = Differences(getattr(theirs, "says_log_probabilities", False), bound.difference)
    for number, ids in enumerate(inputs, 1):
        progress(f"comparing {here.compared}: input {number} of {len(inputs)}")
        target = target_for(here, ids, new)
        found = theirs.logits(ids, target)
        if found is None:
            return None
        apart.add(here.logits(ids, target), found, here.compared == HIDDEN)
    compare_together(apart, here, theirs, inputs[1:4], new)
    others: Callable[[list[int]], list[Tensor]] = getattr(theirs, "other_heads", lambda ids: [])
    for ids in inputs[1:4]:  # a library may leave out heads that the config does not name
        for ours_TV, found in zip(here.other_heads(ids), others(ids), strict=False):
            apart.add(ours_TV, found)
    return apart.logits(here.compared)


def compare_together(
    apart: Differences, here: Here, theirs: Elsewhere, inputs: list[list[int]], new: int
) -> None:
    """The same of a few inputs of unequal length in one batch: padding must change nothing."""
    together = getattr(theirs, "batch", None)
    if together is not None:
        targets = [target_for(here, ids, new) for ids in inputs]
        for ids, target, found in zip(inputs, targets, together(inputs, targets), strict=True):
            apart.add(here.logits(ids, target), found, here.compared == HIDDEN)


def target_for(here: Here, ids: list[int], new: int) -> list[int] | None:
    """What an encoder-decoder is to have written: what it writes itself, and another token now and then."""
    if not isinstance(here.model, EncoderDecoder):
        return None
    dice = random.Random(f"{SEED} {ids}")
    rows = here.model.decoder.inputs.tokens.weight.shape[0]
    written = here.greedy(ids, new - 1) if new > 1 else []
    return [here.start, *(dice.randrange(rows) if dice.random() < 0.3 else token for token in written or [])]


def compare_pictures(here: Here, theirs: Elsewhere, bound: Bound) -> Logits | None:
    c, sees = here.loaded.config, getattr(theirs, "pictures", None)
    made = torch.Generator().manual_seed(SEED)
    images_BCHW = torch.randn(PICTURES, c.channels, c.image, c.image, generator=made)
    if sees is None or (found := sees(images_BCHW)) is None:
        return None
    apart = Differences(False, bound.difference)
    for a_TV, b_TV in zip(here.pictures(images_BCHW), found, strict=True):
        apart.add(a_TV, b_TV, here.compared == HIDDEN)
    return apart.logits(here.compared)


def compare_outputs(
    name: str,
    here: Here,
    theirs: Elsewhere,
    inputs: list[list[int]],
    new: int,
    slack: float,
    progress: Callable[[str], None],
) -> Outputs | None:
    """What both write after each input, by greedy or beam search."""
    same = ties = 0
    first: dict[str, list[int]] | None = None
    for number, ids in enumerate(inputs, 1):
        progress(f"comparing {name}: input {number} of {len(inputs)}")
        found = theirs.greedy(ids, new) if name == "greedy" else theirs.beam(ids, WIDTH, new)
        if found is None:
            return None
        expected = here.greedy(ids, new) if name == "greedy" else here.beam(ids, WIDTH, new)
        assert expected is not None
        if found == expected:
            same += 1
        elif is_tie(here, ids, expected, found, new, slack, by_token=name == "greedy"):
            ties += 1
        elif first is None:
            first = {"input": ids, "heedful": expected, "other": found}
    return Outputs(len(inputs), same, ties, first)


def is_tie(
    here: Here, ids: list[int], ours: list[int], theirs: list[int], new: int, slack: float, by_token: bool
) -> bool:
    """Whether our model prefers its own output to theirs by no more than rounding: at the first token in which they
    differ, or (of whole outputs) in all."""
    a, b = (here.surprise(ids, row, len(row) < new) for row in (ours, theirs))
    if not by_token:
        return bool(b.sum() - a.sum() <= 2 * slack * max(len(a), len(b)))
    at = next(
        (n for n, (x, y) in enumerate(zip(ours, theirs, strict=False)) if x != y), min(len(ours), len(theirs))
    )
    return at < len(a) and at < len(b) and bool(b[at] - a[at] <= 2 * slack)


def compare_tokens(here: Here, theirs: Elsewhere, progress: Callable[[str], None]) -> Tokens | None:
    """The numbers of every text of the corpus."""
    if here.loaded.tokenizer is None:
        return None
    progress("comparing tokenizers")
    texts, same = corpus(), 0
    first: dict[str, Any] | None = None
    for text in texts:
        found = theirs.tokens(text)
        if found is None:
            return None
        expected = here.tokens(text)
        same += found == expected
        if found != expected and first is None:
            first = {"text": one_line(text), "heedful": expected, "other": found}
    return Tokens(len(texts), same, first)
