"""The doctor: checks that a model is sound, each with its number, what the number must be, and what to do if it is not.

One function a check; the table of them is at the bottom. A check that does not apply to a model says why. A warning
is worth knowing; a failure means that the model, its files or the code that runs it is wrong.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..data import pieces
from ..data.files import Report
from ..data.store import Store
from ..data.tensor_files import is_finite
from ..data.vocab import no_panic
from ..decode.greedy import greedy
from ..decode.step import step_of
from ..errors import BadInput, NotFinite
from ..files import one_line
from ..interop.loaded import Loaded
from ..models import family
from ..models.base.shells import Decoder, Encoder, EncoderDecoder
from ..models.elmo import ElmoConfig
from ..models.vit import PatchInputs
from ..parts.before.characters import LETTERS
from ..parts.cache import Cache
from ..parts.embeddings import Inputs
from ..parts.masks import Mask
from ..parts.positions.base import Tree
from ..parts.view import View, right_padded
from ..parts.watch import watch
from ..tasks import (
    caption,
    choose,
    classify,
    elmo,
    image_classify,
    lm,
    lm_data,
    mlm,
    parse,
    span,
    summarize,
    tag,
    task,
    translate,
)
from ..tasks.evaluation import Asked
from ..tasks.origin import FROM, find_origin, vocab_of, vocabulary
from ..tasks.recipe.settings import Range, Recipe
from .look import attention as looking

if TYPE_CHECKING:
    from tokenizers import Tokenizer

OK, WARN, FAIL = "ok", "warn", "fail"
ROUNDING = (
    1e-4  # of the size of the numbers compared: fp32 differs by a hundredth of that, a fault by much more
)
NEAR_LN_V = 1.0  # nats
IDLE = 0.99  # of a head's attention in one place, or of the entropy of looking everywhere alike
TWINS = 0.005  # of their attention in which two heads differ
UNUSED = 0.1  # of a vocabulary
LARGEST = 300_000_000  # parameters of a model that is built a second time
T, S, B = 9, 11, 3  # tokens to write and to read, and rows
ROWS = 64  # of held-out data
SEEDS = Range(0, 2**63 - 1)


@dataclass(frozen=True)
class Finding:
    """What a check found."""

    verdict: str  # ok, warn or fail
    number: float | None  # None: it is not finite
    told: str  # the number in words
    limit: str  # what it must be
    remedy: str
    name: str = ""  # as in the table of checks


class NotApplicable(Exception):
    """A check has nothing to check in this model, and says why."""


class Patient:
    """A model to be examined, and things to try it with."""

    def __init__(
        self, loaded: Loaded, folder: Path | None = None, recipe: Recipe | None = None, seed: int = 0
    ) -> None:
        self.loaded, self.folder, self.recipe = loaded, folder, recipe
        self.model: nn.Module = chained(loaded.model.eval())
        self.shells = looking.shells_of(self.model)
        self.device = next(self.model.parameters()).device
        self.random = torch.Generator().manual_seed(seed)

    @property
    def reader(self) -> Encoder | Decoder:
        """What reads the text: the encoder, or a decoder alone."""
        return next(iter(self.shells.values()))

    @property
    def decoder(self) -> Decoder | None:
        shell = list(self.shells.values())[-1]
        return shell if isinstance(shell, Decoder) else None

    @property
    def is_pair(self) -> bool:
        return isinstance(self.model, EncoderDecoder)

    @property
    def reads_text(self) -> bool:
        return hasattr(self.loaded.config, "vocab") and not isinstance(self.reader.inputs, PatchInputs)

    def tokens(self, shell: Encoder | Decoder, rows: int, length: int) -> Tensor:
        """Random tokens, as many as its positions allow."""
        longest, c = shell.inputs.position.longest, self.loaded.config
        size = shell.inputs.tokens.weight.shape[0] if isinstance(shell.inputs, Inputs) else c.vocab
        shape = rows, length if longest is None else min(length, longest)
        tokens_BT = torch.randint(size, shape, generator=self.random).to(self.device)
        if not isinstance(c, ElmoConfig) or c.input != "characters":
            return tokens_BT
        letters_BTC = torch.randint(LETTERS, (*shape, c.letters), generator=self.random).to(self.device)
        return torch.cat([tokens_BT[..., None], letters_BTC], -1)

    def inputs(self, rows: int = B) -> Tensor:
        """Something to read: random tokens, or images."""
        if self.reads_text:
            return self.tokens(self.reader, rows, S if self.is_pair else T)
        c = self.loaded.config
        return torch.randn(rows, c.channels, c.image, c.image, generator=self.random).to(self.device)

    def targets(self, rows: int = B) -> Tensor:
        """Tokens that a decoder reads."""
        assert self.decoder is not None
        return self.tokens(self.decoder, rows, T)

    def outputs(
        self,
        read: Tensor,
        written: Tensor | None = None,
        read_lengths: Tensor | None = None,
        written_lengths: Tensor | None = None,
    ) -> Tensor:
        """Scores [B, T, V] of a decoder; vectors [B, T, D] of an encoder."""
        if isinstance(self.model, EncoderDecoder):
            assert written is not None
            return self.model(read, written, read_lengths, written_lengths)
        return self.reader(read, read_lengths)


def chained(model: nn.Module) -> nn.Module:
    """The model; if it reads sentences with their trees, a chain (each word on the one before) is the tree of any text."""
    encoder = getattr(model, "encoder", None)
    if getattr(encoder, "needs_tree", False):
        assert isinstance(encoder, Encoder)
        encoder.register_forward_pre_hook(with_chains, with_kwargs=True)
    return model


def with_chains(encoder: Encoder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
    if kwargs.get("positions") is not None:
        return None
    tokens_BT, *lengths = args
    length = tokens_BT.shape[1]
    index_T = torch.arange(length, device=tokens_BT.device)
    given = lengths[0] if lengths and lengths[0] is not None else index_T.new_full((len(tokens_BT),), length)
    heads_BW = (index_T - 1).expand(len(tokens_BT), length)
    return (tokens_BT,), {**kwargs, "positions": Tree(right_padded(given, length), heads_BW)}


def apart(found: Tensor, expected: Tensor) -> float:
    """The largest difference, measured by the size of what is expected."""
    size = expected.square().mean().sqrt().clamp(min=1e-12)
    return float((found - expected).abs().max() / size) if found.numel() else 0.0


def compared(difference: float, remedy: str) -> Finding:
    """A finding on two computations that must agree but for rounding."""
    verdict = OK if difference <= ROUNDING else FAIL  # not a number is no agreement
    told = f"differs by {short(difference)}" if math.isfinite(difference) else "not a number"
    return Finding(verdict, finite(difference), told, f"≤ {ROUNDING:.0e}", remedy)


def finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def short(number: float) -> str:
    return f"{number:.1e}" if number else "0"


# Weights


def finite_weights(p: Patient) -> Finding:
    """Every weight is a number."""
    bad = {name: weight for name, weight in p.model.named_parameters() if not is_finite(weight.detach())}
    total = sum(weight.numel() for weight in p.model.parameters())
    count = sum(int((~torch.isfinite(weight)).sum()) for weight in bad.values())
    told = f"{count:,} of {total:,} are not" + (f", the first in {next(iter(bad))}" if bad else "")
    remedy = "the training went off, or the file is damaged: go back to a checkpoint, with a lower train.rate or train.clip"
    return Finding(FAIL if bad else OK, float(count), told, "0", remedy)


# What a model must not depend on


def no_leak(p: Patient) -> Finding:
    """d scores_t / d embedding_s is exactly 0 for every later token s > t."""
    if p.decoder is None:
        raise NotApplicable("an encoder sees both ways")
    tokens_1T = p.targets(1)
    embedded: list[Tensor] = []

    def keep(module: nn.Module, given: Any, out: Tensor) -> Tensor:
        embedded.append(out.detach().requires_grad_())
        return embedded[-1]

    source: dict[str, Tensor] = {}
    if isinstance(p.model, EncoderDecoder):
        with torch.no_grad():
            source = {"source_BSD": p.model.encoder(p.inputs(1))}
    hook = p.decoder.inputs.register_forward_hook(keep)
    try:
        with torch.enable_grad():
            scores_TV = p.decoder(tokens_1T, **source)[0]
            mixed_T = scores_TV @ torch.randn(scores_TV.shape[1], generator=p.random).to(scores_TV)
            rows = [torch.autograd.grad(score, embedded[-1], retain_graph=True)[0] for score in mixed_T]
    finally:
        hook.remove()
    seen_TT = torch.cat(rows).abs().amax(-1).cpu()
    future = float(seen_TT.triu(1).max())
    past = float(seen_TT.tril(-1).max()) if len(seen_TT) > 1 else 1.0
    told = f"largest gradient from a later token {short(future)}" if math.isfinite(future) else "not a number"
    verdict = FAIL if future != 0 else WARN if past == 0 else OK
    remedy = "a mask lets the future through: look at the masks of the decoder"
    if verdict == WARN:
        told, remedy = "no gradient from any other token at all", "the model uses nothing of what came before"
    return Finding(verdict, finite(future), told, "exactly 0", remedy)


@torch.no_grad()
def padding(p: Patient) -> Finding:
    """Rows of unequal length together give what each gives alone."""
    if not p.reads_text:
        raise NotApplicable("images are all of one size")
    read = p.inputs()
    lengths = unequal(read.shape[1]).to(p.device)
    written = p.targets() if p.is_pair else None
    written_lengths = None if written is None else unequal(written.shape[1]).flip(0).to(p.device)
    together = p.outputs(read, written, lengths, written_lengths)
    ends = lengths if written_lengths is None else written_lengths
    worst = 0.0
    for b in range(B):
        row = None if written is None else written[b : b + 1, : ends[b]]
        alone = p.outputs(read[b : b + 1, : lengths[b]], row)
        worst = worse(worst, apart(together[b, : ends[b]], alone[0]))
    return compared(
        worst, "padding is attended to or counted: look at how lengths become positions and masks"
    )


def unequal(length: int) -> Tensor:
    return torch.tensor([length, max(1, length // 2), 1])


def worse(a: float, b: float) -> float:
    """The larger of two differences; not a number is the worst."""
    return math.nan if math.isnan(a) or math.isnan(b) else max(a, b)


@torch.no_grad()
def batch(p: Patient) -> Finding:
    """Rows of equal length together give what each gives alone."""
    read, written = p.inputs(), p.targets() if p.is_pair else None
    together = p.outputs(read, written)
    alone = [p.outputs(read[b : b + 1], None if written is None else written[b : b + 1]) for b in range(B)]
    remedy = "rows of a batch are mixed up: look for a sum or a norm over the wrong axis"
    return compared(apart(together, torch.cat(alone)), remedy)


@torch.no_grad()
def cache(p: Patient) -> Finding:
    """Decoding step by step with remembered keys and values gives what computing all at once gives."""
    if p.decoder is None:
        raise NotApplicable("an encoder decodes nothing")
    written_BT = p.targets()
    length = written_BT.shape[1]
    source: dict[str, Tensor] = {}
    if isinstance(p.model, EncoderDecoder):
        source = {"source_BSD": p.model.encoder(p.inputs())}
    whole = p.decoder(written_BT, **source)
    pieces = [min(2, length), *[1] * max(0, length - 2)]
    caches: list[Cache] = [p.decoder.growing_cache(), p.decoder.static_cache(B, length)]
    worst = 0.0
    for kind in caches:
        parts = [p.decoder(piece, cache=kind, **source) for piece in written_BT.split(pieces, dim=1)]
        worst = worse(worst, apart(torch.cat(parts, dim=1), whole))
    return compared(worst, "the cache forgets, repeats or misplaces keys: look at the positions it hands out")


# The tokenizer

SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "Où est l'école où Zoë étudiait déjà ?",
    "Größe, Ærøskøbing, çağ, žluťoučký kůň",
    "МОСКВА и Ελλάδα",
    "東京は日本の首都です。我是学生。",
    "🙂 👩‍👩‍👧 and a naïve café",
    "two  spaces,\ttabs,\nlines and a space at the end ",
    "x_y = 1,234.56 == 'a'  # isn't it?",
)
UNKNOWN = ("[UNK]", "<unk>", "<UNK>")


def forms(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def without_accents(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))


# What a tokenizer may be made to ignore.
IGNORED: dict[str, Callable[[str], str]] = {
    "white space": lambda text: "".join(text.split()),
    "capital letters": str.lower,
    "accents": without_accents,
    "forms of characters": forms,
}


def round_trip(p: Patient) -> Finding:
    """Texts become tokens and the same texts again, but for what the tokenizer ignores or does not know."""
    tokenizers = [t for t in (p.loaded.tokenizer, p.loaded.target_tokenizer) if t is not None]
    if not tokenizers:
        raise NotApplicable(
            "there is no tokenizer in the folder" if p.reads_text else "images are not tokenized"
        )
    exact = unknown = total = 0
    changed: list[tuple[str, str]] = []
    ignored: Counter[str] = Counter()
    for tokenizer in tokenizers:
        for text in (*SENTENCES, *own_texts(p, tokenizer)):
            back, knows_all = there_and_back(tokenizer, text)
            reasons = excuse(text, back)
            total += 1
            exact += back == text
            unknown += not knows_all
            if knows_all and reasons is None:
                changed.append((text, back))
            elif knows_all and reasons:
                ignored.update(reasons)
    told = [f"{exact} of {total} texts exactly"]
    told += [f"{n} but for {reason}" for reason, n in ignored.items()]
    told += [f"{unknown} have unknown tokens"] if unknown else []
    told += ["{!r} comes back as {!r}".format(*map(one_line, changed[0]))] if changed else []
    remedy = "what the model reads is not what was written: check the tokenizer's decoder, and that it is this model's"
    return Finding(
        FAIL if changed else OK, float(len(changed)), "; ".join(told), "0 changed otherwise", remedy
    )


def own_texts(p: Patient, tokenizer: Tokenizer) -> list[str]:
    """Texts that a vocabulary surely knows: words of its own in a row."""
    special = {number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    tokens = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    said = pieces.said(repr(tokenizer.decoder), [token for token, _ in tokens])
    words = [
        n
        for (_, n), text in zip(tokens, said, strict=True)
        if n not in special and text[1:].isalpha() and text[0] == " "
    ]
    if not words:
        return []
    picks = torch.randint(len(words), (3, 12), generator=p.random).tolist()
    with no_panic("token numbers cannot be turned into text"):
        return [tokenizer.decode([words[i] for i in row]) for row in picks]


def there_and_back(tokenizer: Tokenizer, text: str) -> tuple[str, bool]:
    """A text that was tokenized, and whether every part of it was known."""
    with no_panic("a text cannot be tokenized"):
        encoding = tokenizer.encode(text, add_special_tokens=False)
        back = tokenizer.decode(encoding.ids, skip_special_tokens=False)
    unknown = {tokenizer.token_to_id(token) for token in UNKNOWN}
    return back, unknown.isdisjoint(encoding.ids)


def excuse(text: str, back: str) -> tuple[str, ...] | None:
    """The fewest things one has to ignore for two texts to be the same; None if that is not enough."""
    for count in range(len(IGNORED) + 1):
        for names in combinations(IGNORED, count):
            a, b = text, back
            for name in names:
                a, b = IGNORED[name](a), IGNORED[name](b)
            if a == b:
                return names
    return None


def used_vocabulary(p: Patient) -> Finding:
    """The model's table has few rows that no token uses."""
    if p.loaded.tokenizer is None:
        raise NotApplicable("there is no tokenizer to compare with")
    tokenizer = p.loaded.target_tokenizer or p.loaded.tokenizer
    shell = p.decoder or p.reader
    if not isinstance(shell.inputs, Inputs):
        raise NotApplicable("words are read letter by letter, and no table has one for each")
    rows = shell.inputs.tokens.weight.shape[0]
    unused = rows - tokenizer.get_vocab_size()
    told = f"{unused:,} of {rows:,} rows have no token"
    remedy = "is this the model's own tokenizer? If so, its table is larger than it need be"
    verdict = WARN if unused > UNUSED * rows else OK
    return Finding(verdict, float(unused), told, f"≤ {UNUSED:.0%}", remedy)


# A fresh model


def first_loss(p: Patient) -> Finding:
    """A new model of these sizes guesses: its loss is near ln V."""
    if sum(weight.numel() for weight in p.model.parameters()) > LARGEST:
        raise NotApplicable(f"a second model of more than {LARGEST:,} parameters would take too much memory")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**31, (), generator=p.random)))
        fresh = chained(family(p.loaded.architecture).build(p.loaded.config).to(p.device).eval())
    with torch.no_grad():
        scores_NV, what = guesses(p, fresh)
    V = scores_NV.shape[-1]
    targets_N = torch.randint(V, scores_NV.shape[:-1], generator=p.random).to(p.device)
    loss = float(F.cross_entropy(scores_NV.float(), targets_N))
    off = loss - math.log(V)
    told = f"{loss:.2f} {what}, ln {V} is {math.log(V):.2f}"
    remedy = "weights start too large or too small: look at the initialization of this architecture"
    return Finding(OK if abs(off) <= NEAR_LN_V else FAIL, finite(off), told, f"± {NEAR_LN_V:g}", remedy)


def guesses(p: Patient, fresh: nn.Module) -> tuple[Tensor, str]:
    """Scores [N, V] of a fresh model for random inputs, and of what."""
    if isinstance(fresh, EncoderDecoder):
        return fresh(p.inputs(8), p.targets(8)).flatten(0, 1), "of the next token"
    if isinstance(fresh, Decoder):
        return fresh(p.targets(8)).flatten(0, 1), "of the next token"
    out = fresh(p.inputs(32))
    if "neighbors" in out:
        return torch.cat(out["neighbors"].flatten(0, 1).chunk(2, -1)), "of a neighbor"
    if "masked_lm" in out:
        return out["masked_lm"].flatten(0, 1), "of a blank"
    for name in ("classify", "classify_mean", "tag", "arcs"):
        if name in out and out[name].shape[-1] > 1:
            what = "of a head" if name == "arcs" else "of a label"
            return (out[name].flatten(0, 1) if name in ("tag", "arcs") else out[name]), what
    raise NotApplicable("no head of this model chooses among tokens or labels")


# Heads


@dataclass
class HeadStates:
    """Heads that do nothing, by name."""

    total: int
    dead: list[str]  # all queries look at one place
    uniform: list[str]  # everyone looks everywhere alike
    twins: list[str]  # pairs of one layer that do the same


@torch.no_grad()
def heads(p: Patient) -> Finding:
    """Heads look at different places for different queries, and differ from each other."""
    if p.reads_text and not looking.kinds_of(p.model):
        raise NotApplicable("a model without attention has no heads")
    found, finite = HeadStates(0, [], [], []), True
    inputs = list(texts_for_heads(p))
    traces = [attention_of(p, *each) for each in inputs]
    for which in looking.kinds_of(p.model):
        if which == "encoder" and not p.is_pair:
            continue  # the same as self
        for layer, path in looking.paths_of(p.model, which).items():
            weights_NHTS = torch.stack([trace[path] for trace in traces])
            finite = finite and bool(torch.isfinite(weights_NHTS).all())
            judge_layer(found, weights_NHTS, looking.mask_of(p.model, which, layer), f"{which} {layer}")
    idle = len(found.dead) + len(found.uniform) + len(found.twins)
    told = [f"{idle} of {found.total} idle"]
    told += [f"all look at one place: {some(found.dead)}"] if found.dead else []
    told += [f"look everywhere alike: {some(found.uniform)}"] if found.uniform else []
    told += [f"do the same: {some(found.twins)}"] if found.twins else []
    remedy = (
        "in a fresh model this is normal; in a trained one these heads could be cut: heedful look shows them"
    )
    if not finite:
        return Finding(FAIL, None, "attention is not a number", "0", "see whether the weights are finite")
    return Finding(WARN if idle else OK, float(idle), "; ".join(told), "0", remedy)


def judge_layer(found: HeadStates, weights_NHTS: Tensor, mask: Mask, where: str) -> None:
    """Note the idle heads of a layer. Queries that see fewer than three keys have little choice, and do not count."""
    length, keys = weights_NHTS.shape[-2:]
    allowed_TS = View(mask, length, keys).allowed(1).expand(1, 1, length, keys)[0, 0]
    choice_T = allowed_TS.sum(-1)
    free = choice_T >= 3
    found.total += weights_NHTS.shape[1]
    if not free.any():
        return
    weights_NHTS = weights_NHTS[:, :, free].double()
    place_H = weights_NHTS.mean((0, 2)).amax(-1)
    spread_H = (looking.entropy(weights_NHTS) / choice_T[free].log2()).mean((0, 2))
    names = [f"{where}.{h + 1}" for h in range(len(place_H))]
    idle = set()
    for h, name in enumerate(names):
        if place_H[h] >= IDLE or spread_H[h] >= IDLE:
            idle.add(h)
            (found.dead if place_H[h] >= IDLE else found.uniform).append(name)
    for a, b in combinations(sorted(set(range(len(names))) - idle), 2):
        if (weights_NHTS[:, a] - weights_NHTS[:, b]).abs().sum(-1).mean() / 2 < TWINS:
            found.twins.append(f"{names[a]} and {names[b]}")


def some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def texts_for_heads(p: Patient, count: int = 6) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Several inputs of one length: texts that the tokenizer knows, or random tokens."""
    rows = p.inputs(count) if not p.reads_text else read_texts(p, count)
    for row in rows:
        read = row[None]
        yield read, written_for(p, read) if p.is_pair else None


def read_texts(p: Patient, count: int) -> Tensor:
    """Token numbers of texts, cut to the length of the shortest."""
    tokenizer = p.loaded.tokenizer
    longest = p.reader.inputs.position.longest or 1 << 30
    if tokenizer is not None:
        texts = [pair.source for pair in looking.practice(p.folder)] if p.folder else []
        texts = [text for text in texts if len(text.split()) >= 8] or list(PROSE)
        known = all(there_and_back(tokenizer, text)[1] for text in texts[:count])
        ids = [looking.tokens_of(p.loaded, text) for text in texts[:count]]
        if known and len(ids) > 1:
            length = min(longest, *map(len, ids))
            return torch.tensor([row[:length] for row in ids], device=p.device)
    return p.tokens(p.reader, count, 12)


PROSE = (
    "The old man who lived by the sea had three daughters and a boat.",
    "When it rains in the mountains, the river rises within a few hours.",
    "She asked him twice whether he had seen the letter on the table.",
    "Most of the houses in this street were built before the great war.",
    "If you want to learn how to cook, start with eggs and patience.",
    "Nobody knew why the train stopped in the middle of the forest.",
)


def written_for(p: Patient, read_1S: Tensor) -> Tensor:
    """What the model itself writes, as its decoder reads it: always of the same length."""
    try:
        start, _ = looking.ends_of(p.loaded)
    except BadInput:
        return p.targets(1)
    start_11 = torch.tensor([[start]], device=p.device)
    step = step_of(p.model, read_1S)  # type: ignore[arg-type]
    try:
        written = greedy(step, start_11, longest=T - 1)[0].tokens
    except NotFinite:
        return p.targets(1)
    return torch.tensor([[start, *written]], device=p.device)


def attention_of(p: Patient, read: Tensor, written: Tensor | None) -> dict[str, Tensor]:
    with watch(p.model) as trace:
        p.outputs(read, written)
    return {path: weights[0].float().cpu() for path, weights in trace.weights().items()}


# What was learned


def held_out(p: Patient) -> Finding:
    """The loss on the run's own held-out data is below that of guessing by frequency."""
    if p.recipe is None or p.folder is None:
        raise NotApplicable("only a run knows its held-out data")
    asked = Asked(p.folder, p.recipe)
    try:
        with torch.no_grad():
            loss, guessing = HELD_OUT[p.recipe.task](p, asked)
    except (BadInput, OSError) as error:
        raise NotApplicable(one_line(f"the held-out data cannot be read: {error}")) from None
    off = loss - guessing
    told = f"held-out loss {loss:.3f}, by frequency {guessing:.3f}"
    remedy = "the model has learned nothing yet: give it more --steps, or another train.rate (heedful train --find-rate)"
    return Finding(OK if off < 0 else FAIL, finite(off), told, "below", remedy)


def translation_loss(p: Patient, asked: Asked) -> tuple[float, float]:
    d = asked.recipe.data
    vocab = translate.vocabs_of(asked.run, asked.recipe)
    pairs = list(islice(translate.pairs_of(asked.recipe, "valid", Report(d.bad_lines)), ROWS))
    if not pairs:
        raise BadInput("there is no pair of sentences")
    made = translate.numbers(vocab, translate.short_enough(vocab, pairs, d.longest))
    loss = translate.loss_of(p.model, made.to(p.device))  # type: ignore[arg-type]
    learned = Store.mapped(asked.run / "data")
    return float(loss.surprise) / loss.count, translate.by_frequency(learned, [made], vocab)


def next_token_loss(p: Patient, asked: Asked) -> tuple[float, float]:
    if asked.recipe.model.architecture == "elmo":
        return elmo.held_out_loss(p.model, asked)  # type: ignore[arg-type]
    vocab = vocab_of(asked.run, asked.recipe)
    stream, size, _ = lm_data.held_out_text(asked, vocab, 2)
    context = lm.context_of(p.model, asked.recipe, stream)  # type: ignore[arg-type]
    rows = lm.ROWS[asked.recipe.data.pack](stream, context, vocab.eos)
    loss = lm.evaluate(p.model, rows, size / rows.tokens, ROWS // 4, 4)["loss"]  # type: ignore[arg-type]
    return loss, by_frequency(asked, stream, vocab)


def blank_loss(p: Patient, asked: Asked) -> tuple[float, float]:
    recipe, vocab = asked.recipe, vocab_of(asked.run, asked.recipe)
    pairs = recipe.data.pairs
    room = mlm.room_of(mlm.context_of(p.model, recipe), pairs)  # type: ignore[arg-type]
    stream, _, _ = lm_data.held_out_text(asked, vocab, 3 * room if pairs else 1)
    made = mlm.held_out_batches(stream, room, pairs, mlm.marks_of(vocab), recipe.train.seed, ROWS // 4)
    return mlm.evaluate(p.model, made)["loss"], by_frequency(asked, stream, vocab)  # type: ignore[arg-type]


def by_frequency(asked: Asked, stream: np.ndarray, vocab: Any) -> float:
    found = lm_data.frequencies(asked, stream, vocab)
    if not found:
        raise BadInput("the text that was learned from is gone")
    return found["loss"][1]


def label_loss(p: Patient, asked: Asked) -> tuple[float, float]:
    recipe, run = asked.recipe, asked.run
    for name in (classify.LABELS, FROM) if recipe.train.from_folder else (classify.LABELS,):
        if not (run / name).is_file():
            raise BadInput(f"{run / name} is missing")
    labels, counts = classify.read_labels(recipe, run)
    origin = find_origin(recipe.train.from_folder, run) if recipe.train.from_folder else None
    vocab = vocabulary(run, origin) if origin else asked.vocab()
    config, kind = classify.model_of(recipe, vocab, origin, len(labels))
    rows = task.spread(classify.held_out_rows(recipe, labels, Report(recipe.data.bad_lines)), ROWS)
    room = classify.room_of(recipe.data, config.context, vocab)
    made = kind.collate(vocab, kind.layout, room, classify.encoded(vocab, rows), [row.number for row in rows])
    _, _, loss = classify.judged(p.model, kind, [made])
    return loss, classify.surprise_of(counts, rows)


HELD_OUT: dict[str, Callable[[Patient, Asked], tuple[float, float]]] = {
    "translate": translation_loss,
    "lm": next_token_loss,
    "mlm": blank_loss,
    "classify": label_loss,
    "tag": lambda p, asked: tag.held_out_loss(p.model, asked, ROWS),  # type: ignore[arg-type]
    "parse": lambda p, asked: parse.held_out_loss(p.model, asked, ROWS),  # type: ignore[arg-type]
    "span": lambda p, asked: span.held_out_loss(p.model, asked, ROWS),  # type: ignore[arg-type]
    "choose": lambda p, asked: choose.held_out_loss(p.model, asked, ROWS),
    "summarize": lambda p, asked: summarize.held_out_loss(p.model, asked, ROWS),
    "image-classify": lambda p, asked: image_classify.held_out_loss(p.model, asked, ROWS),
    "caption": lambda p, asked: caption.held_out_loss(p.model, asked, ROWS),  # type: ignore[arg-type]
}


# The table of checks, in the order in which they are made.
CHECKS: dict[str, Callable[[Patient], Finding]] = {
    "weights are finite": finite_weights,
    "no leak from the future": no_leak,
    "padding changes nothing": padding,
    "a batch equals its rows": batch,
    "cached equals uncached": cache,
    "texts come back": round_trip,
    "the vocabulary is used": used_vocabulary,
    "first loss near ln V": first_loss,
    "heads do something": heads,
    "better than guessing": held_out,
}


def examine(
    loaded: Loaded, folder: Path | None = None, recipe: Recipe | None = None, seed: int = 0
) -> Iterator[Finding | tuple[str, str]]:
    """Make every check in turn: a finding, or (which check, why it does not apply)."""
    patient = Patient(loaded, folder, recipe, seed)
    for name, check in CHECKS.items():
        try:
            yield replace(check(patient), name=name)
        except NotApplicable as why:
            yield name, str(why)
