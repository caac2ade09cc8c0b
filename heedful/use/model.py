"""A model and everything it can do: `heedful.load("runs/demo").translate("The small girl eats a red
apple.")`.

`load` reads a model and `save` writes it; `Model` holds what was loaded. Its abilities are functions of their
own files, listed in ABILITIES.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import nn

from ..data.images.files import read_image
from ..data.images.preprocessing import Preprocessing
from ..data.letters import SpelledVocab
from ..decode.options import DecodingOptions, options_from
from ..errors import BadInput
from ..fast.decoding import SOON, FastModel, for_decoding, has_attention_cache
from ..files import inside, naming, read_json
from ..interop.hf.generation_settings import as_options, refuse_unknown
from ..interop.hf.image_processor import PREPROCESSOR
from ..interop.hf.sentences import Sentences, UnreadSentences
from ..interop.loaded import IN_WORDS, Loaded, tokens_of
from ..interop.run.read import BORROWED
from ..interop.run_folder import refuse_stage
from ..models.base.shells import needs_tree
from ..tasks.recipe import from_json
from ..tasks.recipe.settings import Recipe
from . import (
    answer,
    beam_tree,
    caption,
    choose,
    classify,
    curves,
    embed,
    fill,
    generate,
    heads,
    lens,
    look,
    parse,
    score,
    spell,
    stream,
    summarize,
    tag,
    trace,
    translate,
)
from .classify import FolderClassifier, RunClassifier, classifier_of
from .results import Answer
from .reward import RewardReader
from .texts import Tokenized, listed
from .wording import ArticleWording, FolderWording, RunWording, Wording

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from ..tasks.choose import ChoiceReader
    from ..tasks.span import SpanReader
    from ..tasks.words import Vocabulary

WEIGHTS = {"cpu": ("fp32", "fp16", "int8"), "cuda": ("fp32", "int8", "fp8")}  # to write with, by device


class Ability(Protocol):
    """The file of an ability. A function of the same name does it."""

    def can(self, model: Model) -> bool:
        """Whether a model is able to."""


class WritingAbility(Ability, Protocol):
    """The file of an ability that writes texts."""

    def encode(self, model: Model, texts: list[str]) -> list[Tokenized]:
        """Texts with their tokens, and with what is wrong with them."""

    def write(
        self, model: Model, rows: Sequence[Tokenized], how: DecodingOptions, numbers: Sequence[int]
    ) -> list[Answer]:
        """The answers to texts; numbers: which texts these are, among all that belong to one seed."""


class Model:
    """A model with what belongs to it, and everything it can do. `heedful.load` makes one.

    A string in gives one result, a list gives a list. `can` names the methods that a model has a use for;
    the others refuse it in one sentence.

    Args:
        loaded: The network with its config, tokenizers and settings.
        folder: What messages call the model.
        own: Whether the folder is a run of heedful's own.
        weights: As in `load`.

    Example:
        >>> model = heedful.load("runs/demo")
        >>> model
        <heedful transformer from runs/demo: 178,752 parameters, can translate, stream, score, embed and look>
        >>> model.can
        ('translate', 'stream', 'score', 'embed', 'look')
        >>> model.generate("I am")  # doctest: +NORMALIZE_WHITESPACE
        Traceback (most recent call last):
        ...
        heedful.errors.BadInput: runs/demo is an encoder-decoder, which cannot generate;
         it can translate, stream, score, embed and look
    """

    def __init__(
        self,
        loaded: Loaded,
        folder: str = "the model",
        own: bool = False,
        weights: str = "fp32",
    ) -> None:
        """own: the folder is a run of heedful's own. weights: as in `load`."""
        self.loaded, self.folder, self.own, self.weights = loaded, folder, own, weights
        if weights != "fp32":
            check_weights(self, weights, self.device.type)

    # What it can do

    translate = translate.translate
    summarize = summarize.summarize
    caption = caption.caption
    chat_prompt = generate.chat_prompt
    generate = generate.generate
    stream = stream.stream
    beam_tree = beam_tree.beam_tree
    unknown_words = spell.unknown_words
    spell = spell.spell
    score = score.score
    fill = fill.fill
    classify = classify.classify
    choose = choose.choose
    answer = answer.answer
    tag = tag.tag
    parse = parse.parse
    embed = embed.embed
    look_at = look.look_at
    look = look.look
    trace = trace.trace
    rollout = lens.rollout
    lens = lens.lens
    heads = heads.heads
    curves = curves.curves

    @cached_property
    def can(self) -> tuple[str, ...]:
        """The methods that this model has a use for."""
        return tuple(name for name, ability in ABILITIES.items() if ability.can(self))

    def check_can(self, what: str) -> None:
        """Refuse a model that has no use for a method, and say what it can do.

        Args:
            what: The name of the method, such as "translate".

        Raises:
            BadInput: The model cannot do this.

        Example:
            >>> heedful.load("runs/demo").check_can("translate")
        """
        if not ABILITIES[what].can(self):
            refuse_stage(Path(self.folder), self.architecture, what)
            able = f"it can {listed(self.can)}"
            raise BadInput(f"{self.folder} is {IN_WORDS[self.kind]}, which cannot {what}; {able}")

    # What was loaded

    @property
    def architecture(self) -> str:
        """Name of the file in heedful/models that builds the network."""
        return self.loaded.architecture

    @property
    def config(self) -> Any:
        """Sizes and choices of the network: the config of its architecture."""
        return self.loaded.config

    @property
    def model(self) -> nn.Module:
        """The network itself, a `torch.nn.Module`."""
        return self.loaded.model

    @property
    def output_heads(self) -> Any:
        """The prediction heads of an encoder, by name; none of any other network."""
        return getattr(self.model, "heads", {})

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer of texts that the model reads; None if it reads pictures."""
        return self.loaded.tokenizer

    @property
    def target_tokenizer(self) -> Tokenizer | None:
        """The tokenizer of texts that the model writes, if that is another one."""
        return self.loaded.target_tokenizer

    @property
    def special(self) -> dict[str, int]:
        """Numbers of the tokens with a meaning: "pad", "bos", "eos", "decoder_start"."""
        return self.loaded.special

    @property
    def parameter_count(self) -> int:
        """Number of parameters, each counted once."""
        return sum(weight.numel() for weight in self.model.parameters())

    @property
    def device(self) -> torch.device:
        """The device that the network computes on."""
        return next(self.model.parameters()).device

    # What follows from it, made when it is first needed

    @cached_property
    def kind(self) -> type:
        """What sort of model it is: one of the types of `IN_WORDS`."""
        return self.loaded.kind

    @cached_property
    def recipe(self) -> Recipe | None:
        """What a run was trained for, and how; nothing is known of any other model."""
        return recipe_of(Path(self.folder)) if self.own else None

    @property
    def task(self) -> str:
        """What a run was trained for; "" for any other model."""
        return "" if self.recipe is None else self.recipe.task

    @cached_property
    def wording(self) -> Wording:
        """How texts become its numbers, and back."""
        if self.recipe is not None and self.task == "summarize":
            return ArticleWording(self.loaded, self.folder, self.recipe.data)
        own = self.own and not is_borrowed(Path(self.folder))
        return (RunWording if own else FolderWording)(self.loaded, self.folder)

    def decoding(self, command: str, given: Mapping[str, Any], beam: int | None = None) -> DecodingOptions:
        """The options of a command: those that were given, and otherwise what the folder's settings say.

        beam: a width that goes before that of the folder.
        """
        said, vocab = self.loaded.generation, tokens_of(self.config) or 0
        folder = None if said is None else as_options(said, vocab) | ({} if beam is None else {"beam": beam})
        how = options_from(command, given, folder)
        if said is not None and how.folder_settings == "use":
            refuse_unknown(said, self.folder, how.sample, (how.beam or 1) > 1)
        return how

    @cached_property
    def reads_trees(self) -> bool:
        """Whether it translates parsed texts only: its positions come from syntax."""
        return needs_tree(self.model)

    @cached_property
    def vocab(self) -> Vocabulary:
        """The vocabulary of a run that reads sentences word by word."""
        from ..tasks.words import vocab_in

        return vocab_in(Path(self.folder))

    @cached_property
    def spelled(self) -> SpelledVocab | None:
        """The same vocabulary, if the model reads letters; None of any other model."""
        letters = self.own and getattr(self.config, "input", "") == "characters"
        return self.vocab if letters and isinstance(self.vocab, SpelledVocab) else None

    @cached_property
    def preprocessing(self) -> Preprocessing:
        """How pictures are made ready for it."""
        if self.recipe is not None and self.recipe.data.image_size != self.config.image_size:
            raise BadInput(
                f"{self.folder} reads {self.config.image_size} pixels a side, and its recipe says "
                f"{self.recipe.data.image_size}: put back its own"
            )
        if self.loaded.preprocessing is None:
            raise BadInput(
                f"{self.folder} has no {PREPROCESSOR}, which says how pictures are made ready: put it there"
            )
        return self.loaded.preprocessing

    def read_picture(self, file: str) -> np.ndarray:
        """The picture of a file as the model reads it: pixels [H, W, C], 0 to 255."""
        return self.fit_picture(read_image(file, self.preprocessing.on_white), file)

    def fit_picture(self, pixels_HWC: np.ndarray, name: str) -> np.ndarray:
        """The same of a picture that was read. name: what an error calls it."""
        pixels_HWC, side = self.preprocessing.fit(pixels_HWC), self.config.image_size
        if pixels_HWC.shape[:2] != (side, side):
            height, width = pixels_HWC.shape[:2]
            raise BadInput(
                f"{name} becomes {height} x {width} pixels by the {PREPROCESSOR} of {self.folder}, and the "
                f"model reads {side} x {side}: crop the picture, or mend size and crop_size there"
            )
        return pixels_HWC

    @cached_property
    def classifier(self) -> RunClassifier | FolderClassifier | RewardReader:
        """How texts are read and scored for their labels."""
        return classifier_of(self)

    @cached_property
    def question_reader(self) -> SpanReader:
        """How questions and their contexts are read."""
        return answer.reader_of(self)

    @cached_property
    def choice_reader(self) -> ChoiceReader:
        """How texts and the ways to go on from them are read."""
        return choose.reader_of(self)

    @cached_property
    def sentences(self) -> Sentences | None:
        """How a folder of sentence-transformers turns texts into vectors; None of any other model."""
        found = self.loaded.sentences
        if isinstance(found, UnreadSentences):
            raise BadInput(found.why)
        return found

    @cached_property
    def sentence_reader(self) -> Tokenizer | None:
        """The tokenizer of such a folder."""
        return embed.sentence_reader(self)

    @cached_property
    def writing(self) -> FastModel:
        """The network as it writes, made ready at the first text."""
        network: Any = self.model
        return for_decoding(network, self.weights, soon=SOON)

    # How it looks

    def __repr__(self) -> str:
        able = listed(self.can) or "nothing"
        size = f"{self.parameter_count:,} parameters"
        return f"<heedful {self.architecture} from {self.folder}: {size}, can {able}>"

    def _repr_html_(self) -> str:
        """For notebooks: a small table."""
        tokenizers = [one for one in (self.tokenizer, self.target_tokenizer) if one is not None]
        sizes = " to ".join(f"{one.get_vocab_size():,}" for one in tokenizers)
        rows = {
            "model": self.folder,
            "architecture": f"{self.architecture}, {IN_WORDS[self.kind]}",
            "parameters": f"{self.parameter_count:,}",
            "vocabulary": sizes or "no tokenizer",
            "device": str(self.device),
            "can": ", ".join(self.can) or "nothing",
        }
        cells = "".join(f"<tr><th>{name}</th><td>{escape(row)}</td></tr>" for name, row in rows.items())
        return f"<table>{cells}</table>"


def is_borrowed(run: Path) -> bool:
    """Whether the vocabulary of a run came with a model that is not heedful's own."""
    return read_json(inside(run, "config.json")).get("vocabulary") == BORROWED


def recipe_of(run: Path) -> Recipe:
    """What a run was asked, without the facts that were noted beside it."""
    with naming(run / "recipe.json"):
        found = read_json(inside(run, "recipe.json"))
        found.pop("facts", None)
        return from_json(found)


def check_weights(model: Model, weights: str, device: str) -> None:
    """Refuse weights that are not known, and those that would do nothing for a model on such a device."""
    here = {"cpu": "a CPU", "cuda": "a GPU"}.get(device, f"a device of the type {device}")
    usable = WEIGHTS.get(device, ("fp32",))
    if weights not in usable:
        raise BadInput(f'the weights of {here} are {", ".join(usable)}, not "{weights}": give one of these')
    dtype = next(model.model.parameters()).dtype
    if device == "cpu" and dtype != torch.float32:
        raise BadInput(
            f'weights="{weights}" is for writing on a CPU from float32, and the model is {dtype}: '
            f"leave out one of them"
        )
    check_steps(model, weights)


def check_steps(model: Model, weights: str) -> None:
    """Refuse weights of steps for a model that has none, or none of attention."""
    if WRITERS.keys().isdisjoint(model.can):
        described = IN_WORDS[model.kind]
        raise BadInput(f'{model.folder} is {described}, which writes nothing: leave out weights="{weights}"')
    if not has_attention_cache(model.model):  # type: ignore[arg-type]
        raise BadInput(
            f'weights="{weights}" is for blocks of attention, and a {model.architecture} has none: '
            f"leave it out"
        )


WRITERS: dict[str, WritingAbility] = {
    "translate": translate,
    "summarize": summarize,
    "generate": generate,
    "caption": caption,
}
ABILITIES: dict[str, Ability] = {
    "translate": translate,
    "summarize": summarize,
    "caption": caption,
    "generate": generate,
    "stream": stream,
    "score": score,
    "fill": fill,
    "classify": classify,
    "choose": choose,
    "answer": answer,
    "tag": tag,
    "parse": parse,
    "embed": embed,
    "look": look,
}
