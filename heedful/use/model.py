"""A model and everything it can do: `heedful.load("runs/demo").translate("The small girl eats a red
apple.")`.

`load` reads a model and `save` writes it; `Model` holds what was loaded. Its abilities are functions of their
own files, listed in ABILITIES. A string in gives one result, a list gives a list. In the examples, runs/toy
and its like are tiny models that know a few sentences by heart, as the tests train them
(tests/helpers/small_runs.py): what they answer is no measure of anything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import torch
from torch import nn

from ..data.images.files import read_image
from ..data.images.preprocessing import Preprocessing
from ..data.letters import SpelledVocab
from ..decode.options import DecodingOptions, options_from
from ..errors import BadInput
from ..fast.decoding import FastModel, for_decoding, has_attention_cache
from ..files import inside, naming, read_json, replacing_folder
from ..interop.formats import load as read
from ..interop.hf.generation_settings import as_options, refuse_unknown
from ..interop.hf.image_processor import PREPROCESSOR
from ..interop.hf.sentences import Sentences, UnreadSentences
from ..interop.hf.write import write
from ..interop.loaded import IN_WORDS, Loaded, tokens_of
from ..interop.peft.write import write as write_adapter
from ..interop.quantize import quantize_weights
from ..interop.run.read import BORROWED
from ..interop.run_folder import is_run, refuse_stage
from ..models.base.shells import needs_tree
from ..tasks.recipe import from_json
from ..tasks.recipe.settings import Recipe
from ..train.device import find_device
from . import (
    answer,
    beam_tree,
    caption,
    choose,
    classify,
    embed,
    fill,
    generate,
    heads,
    look,
    parse,
    score,
    stream,
    summarize,
    tag,
    trace,
    translate,
)
from .classify import FolderClassifier, RunClassifier, classifier_of
from .results import Answer
from .texts import Tokenized, listed
from .wording import ArticleWording, FolderWording, RunWording, Wording, tokenize

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from ..tasks.choose import ChoiceReader
    from ..tasks.span import SpanReader
    from ..tasks.words import Vocabulary

WEIGHTS = ("fp32", "fp16", "int8")


def load(
    folder: str | os.PathLike[str],
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    weights: Literal["fp32", "fp16", "int8"] = "fp32",
    base: str | os.PathLike[str] | None = None,
    quantize: Literal["int8"] | None = None,
) -> Model:
    """The model of a folder, ready for use: a run of heedful's own, or a Hugging Face folder.

    device: "cpu", "cuda", or "auto" for the GPU if there is one. dtype: torch.float32 unless said. weights:
    what `translate`, `generate` and `stream` read on a CPU; fewer bits are read sooner, and "int8" may change
    a word. base: of a folder that holds only adapters (PEFT's), the model that they stand beside, if it is
    not where they say. quantize: round the weights of all blocks to 8 bits, through torchao, on any
    device.

    >>> model = load("runs/toy")
    >>> model.translate("i am a student")
    'je suis étudiant'
    """
    how = find_device(device), torch.float32 if dtype is None else dtype
    found = read(folder, *how, base)
    if quantize is not None:
        if weights != "fp32":
            raise BadInput("`weights` and `quantize` are two ways to round weights: give one of them")
        quantize_weights(found.model, quantize)
    return Model(found, os.fspath(folder), own=is_run(Path(folder)), weights=weights, quantize=quantize)


def save(
    model: Model | Loaded,
    folder: str | os.PathLike[str],
    kind: Literal["float32", "bfloat16", "float16"] = "float32",
) -> None:
    """Write a model as a Hugging Face folder: config.json, model.safetensors, tokenizer.json.

    kind: how weights are stored. A folder of bfloat16 or float16 has half the size.
    """
    if isinstance(model, Model) and model.quantize:
        raise BadInput(
            f"{model.folder} was loaded with rounded weights, which are not saved: load it without `quantize`"
        )
    write(model.loaded if isinstance(model, Model) else model, folder, kind)


def save_adapter(run: str | os.PathLike[str], folder: str | os.PathLike[str]) -> None:
    """Write what a run of LoRA has learned, alone, as Hugging Face's PEFT keeps it: adapter_config.json and
    adapter_model.safetensors, for PeftModel.from_pretrained."""
    with replacing_folder(Path(folder)) as aside:
        write_adapter(Path(run), aside)


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
    """A model with what belongs to it, and everything it can do.

    >>> model = load("runs/toy")
    >>> model.can
    ('translate', 'stream', 'score', 'embed', 'look')
    >>> model.generate("i am")  # doctest: +NORMALIZE_WHITESPACE
    Traceback (most recent call last):
    ...
    heedful.errors.BadInput: runs/toy is an encoder-decoder, which cannot generate;
     it can translate, stream, score, embed and look
    """

    def __init__(
        self,
        loaded: Loaded,
        folder: str = "the model",
        own: bool = False,
        weights: str = "fp32",
        quantize: str | None = None,
    ) -> None:
        """own: the folder is a run of heedful's own. weights and quantize: as in `load`."""
        self.loaded, self.folder, self.own, self.weights = loaded, folder, own, weights
        self.quantize = quantize
        self.check_weights()

    # What it can do

    translate = translate.translate
    summarize = summarize.summarize
    caption = caption.caption
    chat_prompt = generate.chat_prompt
    generate = generate.generate
    stream = stream.stream
    beam_tree = beam_tree.beam_tree
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
    heads = heads.heads
