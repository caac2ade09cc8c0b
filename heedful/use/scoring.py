"""Scoring: what a model makes of texts without writing any: how likely they are, words for blanks, labels, vectors.

Texts of like length are done together; the results come in the order of the texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from ..data.letters import SpelledVocab
from ..decode.prompts import pad
from ..errors import BadInput, NotFinite
from ..files import inside, naming, read_json
from ..parts.view import right_padded
from ..tasks.evaluation import MOST_TOKENS, by_length
from ..tasks.recipe import from_json
from ..tasks.recipe.settings import Recipe
from .pooling import poolings_of
from .results import Filled, Guess, Label, Scored
from .wording import MASK, encoded, refuse_long
from .writing import check_number

if TYPE_CHECKING:
    from ..models.base.shells import Decoder
    from ..tasks.classify import Kind, TextBatch
    from ..tasks.task import Words
    from .model import Model

SLICE = 256  # tokens scored at once: a vocabulary is wide
T = TypeVar("T")
Row = list[int]


def in_batches(rows: Sequence[Row], batch: int, do: Callable[[list[int]], Sequence[T]]) -> list[T]:
    """Results in the order of the rows, from a function of the numbers of some that are alike in length."""
    check_number("batch", batch)
    found: dict[int, T] = {}
    with torch.no_grad():
        for some in by_length([len(row) for row in rows], batch, MOST_TOKENS):
            found.update(zip(some, do(some), strict=True))
    return [found[i] for i in range(len(rows))]


def finite(found: Tensor, model: Model) -> Tensor:
    """The same numbers, if they are numbers."""
    if not torch.isfinite(found).all():
        raise NotFinite(
            f"{model.folder} gives what is not a number: heedful doctor says which of its weights"
        )
    return found


# What may be asked


def rows_of(model: Model, texts: list[str], what: str) -> list[Row]:
    """What the model is given of each text for a purpose."""
    words = model.wording
    if what == "embed" and model.sentences is not None:
        before = model.sentences.prompt
        return [row.ids for row in encoded(model.sentence_reader, [before + text for text in texts], True)]
    if what == "fill":
        return [words.blanked(text) for text in texts]
    if model.kind == "an encoder-decoder":
        return words.source(texts)
    if model.kind == "an encoder":
        return words.sentence(texts)
    if model.kind == "a classifier":
        return classifier_rows(model, texts)
    rows = words.prompt(texts)
    if what == "score" and words.begin is not None:
        return [row if row[:1] == [words.begin] else [words.begin, *row] for row in rows]
    return rows


def table_of(model: Any) -> int | None:
    """The longest row that a network's table of positions has room for."""
    return getattr(model, "encoder", getattr(model, "decoder", model)).inputs.position.longest


def fault(model: Model, text: str, row: Row, what: str) -> str | None:
    """Why a text cannot be used, if it cannot."""
    table, least = table_of(model.model), 2 if what == "score" and model.kind == "a decoder" else 1
    least = 0 if what in ("translate", "summarize") else least  # nothing is answered by nothing
    if what == "fill" and MASK not in text:
        return f"has no {MASK} to fill in"
    if len(row) < least:
        return "is empty" if not row else "has one token, and nothing to judge it by"
    if table is not None and what != "generate" and len(row) > table:
        return f"has {len(row):,} tokens, and the model reads at most {table:,}: cut it"
    return None


def faults(model: Model, texts: list[str], what: str) -> list[str | None]:
    """The same of every text. Most translators read texts of any length, and runs that classify cut theirs."""
    if what == "answer":  # long texts are read in windows
        return [None] * len(texts)
    endless = what in ("translate", "summarize") and table_of(model.model) is None
    if endless or (what == "classify" and model.own):
        return [None] * len(texts)
    if what in ("tag", "parse"):
        from .syntax import fault_in_words

        return [fault_in_words(text) for text in texts]
    return [
        fault(model, text, row, what) for text, row in zip(texts, rows_of(model, texts, what), strict=True)
    ]


def checked(model: Model, texts: list[str], what: str) -> list[Row]:
    """What the model is given of each text; the first that cannot be used is refused."""
    rows = rows_of(model, texts, what)
    for place, (text, row) in enumerate(zip(texts, rows, strict=True), 1):
        if found := fault(model, text, row, what):
            raise BadInput(f"text {place} {found}")
    return rows


# How likely


def scored_texts(model: Model, texts: list[str], batch: int) -> list[Scored]:
    """Each token of a text, given those before it."""
    rows = checked(model, texts, "score")

    def do(some: list[int]) -> Sequence[list[float]]:
        fed_BT, lengths_B = pad([rows[i][:-1] for i in some], model.device)
        hidden_BTD = model.model.hidden(fed_BT, lengths_B)  # type: ignore[operator]
        return surprises(model.model, hidden_BTD, [rows[i][1:] for i in some])  # type: ignore[arg-type]

    found, names = in_batches(rows, batch, do), model.wording.names
    return [Scored(names(row[1:]), each, names(row[:1])) for row, each in zip(rows, found, strict=True)]


def scored_pairs(model: Model, sources: list[str], targets: list[str], batch: int) -> list[Scored]:
    """Each token of a target and its end, given its source and the tokens before it."""
    rows, words, network = checked(model, sources, "score"), model.wording, model.model
    answers = [[*row, *words.ends[:1]] for row in words.target(targets)]
    for place, row in enumerate(answers, 1):
        if not row:
            raise BadInput(f"target {place} is empty")

    def do(some: list[int]) -> Sequence[list[float]]:
        source_BS, source_lengths_B = pad([rows[i] for i in some], model.device)
        fed_BT, _ = pad([[words.start, *answers[i][:-1]] for i in some], model.device)
        reader = model.reading(network, [sources[i] for i in some])
        memory_BSD = reader.encoder(source_BS, source_lengths_B)
        positions = right_padded(source_lengths_B, source_BS.shape[1])
        hidden_BTD = network.decoder.hidden(fed_BT, source_BSD=memory_BSD, source_positions=positions)  # type: ignore[operator,union-attr]
        return surprises(network.decoder, hidden_BTD, [answers[i] for i in some])  # type: ignore[arg-type]

    found = in_batches([[*a, *b] for a, b in zip(rows, answers, strict=True)], batch, do)
    return [
        Scored(words.names(row), each, words.names([words.start]))
        for row, each in zip(answers, found, strict=True)
    ]


def surprises(decoder: Decoder, hidden_BTD: Tensor, answers: list[Row]) -> list[list[float]]:
    """log p of each row's answers, from the vectors that predict them."""
    sizes = [len(row) for row in answers]
    hidden_ND = torch.cat([hidden_TD[:size] for hidden_TD, size in zip(hidden_BTD, sizes, strict=True)])
    answers_N = torch.tensor([token for row in answers for token in row], device=hidden_ND.device)
    log_p: list[float] = []
    for some_ND, right_N in zip(hidden_ND.split(SLICE), answers_N.split(SLICE), strict=True):
        scores_NV = decoder.head(some_ND[None], decoder.inputs.tokens)[0].float()
        log_p += scores_NV.log_softmax(-1).gather(1, right_N[:, None])[:, 0].tolist()
    rest = iter(log_p)
    return [[next(rest) for _ in range(size)] for size in sizes]


# Blanks


def filled(model: Model, texts: list[str], top: int, batch: int) -> list[Filled]:
    """A word for every blank, and the next best."""
    check_number("top", top)
    rows, network = checked(model, texts, "fill"), model.model
    mask = model.wording.mask

    def do(some: list[int]) -> Sequence[list[list[tuple[int, float]]]]:
        tokens_BT, lengths_B = pad([rows[i] for i in some], model.device)
        hidden_BTD = network.encoder(tokens_BT, lengths_B)  # type: ignore[operator]
        found = []
        for hidden_TD, i in zip(hidden_BTD, some, strict=True):
            places = [place for place, token in enumerate(rows[i]) if token == mask]
            scores_NV = network.heads["masked_lm"](hidden_TD[places], network.encoder.inputs)  # type: ignore[index,operator,union-attr]
            best = finite(scores_NV.float(), model).softmax(-1).topk(min(top, scores_NV.shape[-1]))
            pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            found.append([list(zip(*pair, strict=True)) for pair in pairs])
        return found

    guesses = in_batches(rows, batch, do)
    return [put_in(model, text, some) for text, some in zip(texts, guesses, strict=True)]


def put_in(model: Model, text: str, guesses: list[list[tuple[int, float]]]) -> Filled:
    """A text with the best words in its blanks."""
    pieces = text.split(MASK)
    blanks = []
    for before, some in zip(pieces, guesses, strict=False):
        spaced = model.wording.carries_spaces and before.endswith(" ")  # then the blank took the space along
        words = [(model.wording.word(number), p) for number, p in some]
        blanks.append([Guess(word.removeprefix(" ") if spaced else word, p) for word, p in words])
    best = [some[0].word.removeprefix("##") for some in blanks]
    whole = "".join(part for pair in zip(pieces, [*best, ""], strict=True) for part in pair)
    return Filled(whole, blanks)


# Labels


def labeled(model: Model, firsts: list[str], seconds: list[str], batch: int) -> list[Label]:
    """The labels of texts, or of pairs of them."""
    classifier = RunClassifier.of(model) if model.own else TheirClassifier(model)
    classifier.check(seconds)
    rows, scores_of = classifier.rows(firsts, seconds)
    found = in_batches(rows, batch, lambda some: finite(scores_of(some).float(), model).softmax(-1).tolist())
    return [label(classifier.labels, each) for each in found]


def label(labels: Sequence[str], probabilities: Sequence[float]) -> Label:
    by_share = sorted(zip(labels, probabilities, strict=True), key=lambda pair: -pair[1])
    return Label(by_share[0][0], dict(by_share))


@dataclass(frozen=True)
class RunClassifier:
    """A run that was trained to classify: it reads texts as they were read in training."""

    model: Model
    recipe: Recipe
    labels: list[str]
    vocab: Words
    kind: Kind
    make: Callable[..., TextBatch]

    @classmethod
    def of(cls, model: Model) -> RunClassifier:
        from ..data.vocab import read_vocab
        from ..tasks import classify
        from ..tasks.origin import FROM, find_origin, vocabulary

        run, recipe = Path(model.folder), recipe_of(Path(model.folder))
        for name in (classify.LABELS, FROM) if recipe.train.from_folder else (classify.LABELS,):
            inside(run, name)  # what is missing would be made again
        labels, _ = classify.read_labels(recipe, run)
        origin = find_origin(recipe.train.from_folder, run) if recipe.train.from_folder else None
        vocab = vocabulary(run, origin) if origin else read_vocab(run / "tokenizer.json")
        config, kind = classify.model_of(recipe, vocab, origin, len(labels))
        room = classify.room_of(recipe.data, config.context, vocab)
        return cls(model, recipe, labels, vocab, kind, partial(kind.collate, vocab, kind.layout, room))

    def check(self, seconds: list[str]) -> None:
        pairs = bool(self.recipe.data.pair_column)
        if pairs and not all(seconds):
            raise BadInput(
                f"{self.model.folder} was trained on pairs of texts: give each text its second one"
            )
        if not pairs and any(seconds):
            raise BadInput(f"{self.model.folder} was trained on single texts: leave out the second ones")

    def rows(self, firsts: list[str], seconds: list[str]) -> tuple[list[Row], Callable[[list[int]], Tensor]]:
        """Rows to be put in batches, and what gives the scores [B, labels] of some of them."""
        from ..tasks import classify

        refuse_long(list(zip(firsts, seconds, strict=True)))
        texts = [classify.TextRow(0, a, b, "") for a, b in zip(firsts, seconds, strict=True)]
        pairs = classify.encoded(self.vocab, texts)

        def scores(some: list[int]) -> Tensor:
            batch = self.make([pairs[i] for i in some], [0] * len(some))
            return classify.guesses(self.model.model, self.kind, batch)

        return [[*a, *b] for a, b in pairs], scores


class TheirClassifier:
    """A Hugging Face folder with a head for labels, which its config names."""

    def __init__(self, model: Model) -> None:
        self.model = model
        network: Any = model.model
        count = network.linear.out_features if model.kind == "a classifier" else model.config.labels
        self.labels = model.loaded.labels or [str(number) for number in range(count)]

    def check(self, seconds: list[str]) -> None:
        known = getattr(self.model.config, "segments", None)  # None: it tells none apart, and minds none
        if any(seconds) and known and max(self.model.wording.reads.encode("a", "a").type_ids) >= known:
            raise BadInput(f"{self.model.folder} knows one segment only: it cannot read pairs")

    def rows(self, firsts: list[str], seconds: list[str]) -> tuple[list[Row], Callable[[list[int]], Tensor]]:
        network: Any = self.model.model
        texts = [(a, b) if b else a for a, b in zip(firsts, seconds, strict=True)]
        read = list(encoded(self.model.wording.reads, texts, True))
        for place, one in enumerate(read, 1):
            if found := fault(self.model, "", one.ids, "classify"):
                raise BadInput(f"text {place} {found}")

        def scores(some: list[int]) -> Tensor:
            tokens_BT, lengths_B = pad([read[i].ids for i in some], self.model.device)
            if self.model.kind == "a classifier":
                return network(tokens_BT, lengths_B)
            segments_BT, _ = pad([read[i].type_ids for i in some], self.model.device)
            hidden_BTD = network.encoder(tokens_BT, lengths_B, segments_BT)
            return network.heads["classify"](hidden_BTD, network.encoder.inputs)

        return [one.ids for one in read], scores


def recipe_of(run: Path) -> Recipe:
    """What a run was asked, without the facts that were noted beside it."""
    with naming(run / "recipe.json"):
        found = read_json(inside(run, "recipe.json"))
        found.pop("facts", None)
        return from_json(found)


def classifier_rows(model: Model, texts: list[str]) -> list[Row]:
    """What a decoder that classifies reads: a text between its two ends."""
    from ..tasks import choose
    from ..tasks.classify import decoder_row

    if not model.own:
        return model.wording.source(texts)
    run, chooses = Path(model.folder), model.task == "choose"
    vocab = choose.reader(run, recipe_of(run))[0] if chooses else RunClassifier.of(model).vocab
    return [decoder_row(vocab, ids, [])[0].tolist() for ids in vocab.encode_batch(texts)]


# Vectors


def embedded(
    model: Model, texts: list[str], pooling: str | None, normalize: bool | None, batch: int
) -> Tensor:
    """[N, D] in fp32, on the CPU. What is not said is done as the folder says."""
    vocab = vocabulary_of(model)
    rows = checked(model, texts, "embed") if vocab is None else sentences(vocab, texts)
    network: Any = model.model
    reader = {"an encoder-decoder": "encoder", "an encoder": "encoder", "a classifier": "decoder"}
    refuse_without_trees(model)
    part = getattr(network, reader[model.kind]) if model.kind in reader else network
    read = part.hidden if hasattr(part, "hidden") else part
    pools = poolings_of(pooling, model.sentences, last=model.kind == "a classifier")

    def do(some: list[int]) -> Sequence[Tensor]:
        tokens_BT, lengths_B = pad([rows[i] for i in some], model.device)
        given = tokens_BT if vocab is None else vocab.tokens(tokens_BT.cpu()).to(model.device)
        hidden_BTD = read(given, lengths_B).float()
        return list(finite(torch.cat([pool(hidden_BTD, lengths_B) for pool in pools], -1), model).cpu())

    found = in_batches(rows, batch, do)
    vectors_ND = torch.stack(found) if found else torch.empty(0, len(pools) * model.config.width)
    said = model.sentences is not None and model.sentences.normalize
    unit = said if normalize is None else normalize
    return torch.nn.functional.normalize(vectors_ND, dim=-1) if unit else vectors_ND


def vocabulary_of(model: Model) -> SpelledVocab | None:
    """The vocabulary of a model that reads letters."""
    if not model.own or getattr(model.config, "input", "") != "characters":
        return None
    from ..tasks.words import vocab_in

    found = vocab_in(Path(model.folder))
    return found if isinstance(found, SpelledVocab) else None


def sentences(vocab: SpelledVocab, texts: list[str]) -> list[Row]:
    """[CLS] text [SEP] in numbers."""
    return [[vocab.cls, *row, vocab.sep] for row in vocab.encode_batch(texts)]


def refuse_without_trees(model: Model) -> None:
    """A vector is asked for by a text alone, and some encoders read texts with their trees only."""
    if model.needs_trees:
        raise BadInput(f"{model.folder} reads sentences with their trees, which vectors are not made of yet")
