"""A model and everything it can do: `heedful.load("runs/demo").translate("The small girl eats a red apple.")`.

`Model` holds what was loaded and has a method for everything its kind can do. A string in gives one result, a list
gives a list. In the examples, runs/toy and its like are tiny models that know a few sentences by heart, as the tests
train them (tests/helpers/small_runs.py): what they answer is no measure of anything.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from ..errors import BadInput
from ..interop.run_folder import A_STAGE, OF_STAGES, refuse_stage
from ..train.device import find_device
from .results import Answer, Chosen, Filled, Found, Label, Scored, Tagged
from .wording import ArticleWording, Wording, wording_of
from .writing import Given, Options, Writer, Writing, asked

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer
    from torch import Tensor, nn

    from ..data.trees import Parsed
    from ..decode.hypothesis import Hypothesis
    from ..fast.decoding import FastModel
    from ..inside.look.attention import Look
    from ..inside.look.captions import CaptionLook
    from ..inside.look.codes import CodesLook
    from ..inside.look.images import ImageLook
    from ..interop.hf.sentences import Sentences
    from ..interop.loaded import Loaded
    from ..tasks.recipe.settings import DataSettings

BEAM, WRITTEN = 4, 100  # the beam of a translation (Vaswani et al. 2017), and the tokens of a continuation
POOLINGS = ("mean", "class")
WEIGHTS = ("fp32", "fp16", "int8")

T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])


# Loading


def load(
    folder: str | os.PathLike[str],
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    weights: Literal["fp32", "fp16", "int8"] = "fp32",
    base: str | os.PathLike[str] | None = None,
    quantize: Literal["int8", "int4"] | None = None,
) -> Model:
    """The model of a folder, ready for use: a run of heedful's own, or a Hugging Face folder.

    device: "cpu", "cuda", or "auto" for the GPU if there is one. dtype: torch.float32 unless said. weights: what
    `translate`, `generate` and `stream` read on a CPU; fewer bits are read sooner, and "int8" may change a word. base:
    of a folder that holds only adapters (PEFT's), the model that they stand beside, if it is not where they say. quantize:
    round the weights of all blocks to 8 or 4 bits, through torchao, on any device.

    >>> model = load("runs/toy")
    >>> model.translate("i am a student")
    'je suis étudiant'
    """
    import torch

    from ..interop.load import load as read
    from ..interop.run_folder import is_run

    how = find_device(device), torch.float32 if dtype is None else dtype
    found = read(folder, *how, base)
    if quantize is not None:
        from ..interop.quantize import quantize_weights

        if weights != "fp32":
            raise BadInput("`weights` and `quantize` are two ways to round weights: give one of them")
        quantize_weights(found.model, quantize)
    return Model(found, os.fspath(folder), own=is_run(Path(folder)), weights=weights, quantize=quantize)


def save(model: Model | Loaded, folder: str | os.PathLike[str]) -> None:
    """Write a model as a Hugging Face folder: config.json, model.safetensors, tokenizer.json."""
    from ..interop.hf.write import write

    if isinstance(model, Model) and model.quantize:
        raise BadInput(
            f"{model.folder} was loaded with rounded weights, which are not saved: load it without `quantize`"
        )
    write(model.loaded if isinstance(model, Model) else model, folder)


def save_adapter(run: str | os.PathLike[str], folder: str | os.PathLike[str]) -> None:
    """Write what a run of LoRA has learned, alone, as Hugging Face's PEFT keeps it: adapter_config.json and
    adapter_model.safetensors, for PeftModel.from_pretrained."""
    from ..files import replacing_folder
    from ..interop.peft.write import write

    with replacing_folder(Path(folder)) as aside:
        write(Path(run), aside)


# The model


def takes_options(*without: str) -> Callable[[Method], Method]:
    """Let help and completion show every option of `Writing` by name, with its default, but for those of other methods."""

    def shown(method: Method) -> Method:
        signature = inspect.signature(method)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        named = [
            inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type)
            for f in fields(Writing)
            if f.name not in without
        ]
        method.__signature__ = signature.replace(parameters=[*own, *named])  # type: ignore[attr-defined]
        return method

    return shown


class Model:
    """A model with what belongs to it, and everything it can do.

    >>> model = load("runs/toy")
    >>> model.can
    ('translate', 'stream', 'score', 'embed', 'look')
    >>> model.generate("i am")
    Traceback (most recent call last):
    ...
    heedful.errors.BadInput: runs/toy is an encoder-decoder, which cannot generate; it can translate, stream, score, embed and look
    """

    def __init__(
        self,
        loaded: Loaded,
        folder: str = "the model",
        own: bool = False,
        weights: str = "fp32",
        quantize: str | None = None,
    ) -> None:
        self.loaded, self.folder, self.own, self.weights = loaded, folder, own, weights
        self.quantize = quantize
        self.check_weights()

    @property
    def architecture(self) -> str:
        """The file in heedful/models that builds it."""
        return self.loaded.architecture

    @property
    def config(self) -> Any:
        """Its sizes."""
        return self.loaded.config

    @property
    def model(self) -> nn.Module:
        """The network itself."""
        return self.loaded.model

    @property
    def tokenizer(self) -> Tokenizer | None:
        """What it reads texts by."""
        return self.loaded.tokenizer

    @property
    def target_tokenizer(self) -> Tokenizer | None:
        """What it writes texts by, if that is another one."""
        return self.loaded.target_tokenizer

    @property
    def special(self) -> dict[str, int]:
        """Numbers of tokens with a meaning: pad, bos, eos, decoder_start."""
        return self.loaded.special

    @property
    def parameter_count(self) -> int:
        """How many weights it has, each counted once."""
        return sum(weight.numel() for weight in self.model.parameters())

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return next(self.model.parameters()).device

    # What it can do

    @cached_property
    def kind(self) -> str:
        """What sort of model it is, in words."""
        from ..models.base.heads import DecoderClassifier
        from ..models.base.shells import Decoder, EncoderDecoder

        if self.architecture in OF_STAGES:
            return A_STAGE
        if not hasattr(self.config, "vocab"):
            return "a model of images"
        if self.architecture == "captioner":
            return "a captioner"
        kinds = {
            EncoderDecoder: "an encoder-decoder",
            Decoder: "a decoder",
            DecoderClassifier: "a classifier",
        }
        return next((told for kind, told in kinds.items() if isinstance(self.model, kind)), "an encoder")

    @cached_property
    def can(self) -> tuple[str, ...]:
        """The methods that this model has a use for."""
        heads = getattr(self.model, "heads", {})
        if self.summarizes is not None:
            pairs = self.kind == "an encoder-decoder"
            return "summarize", *(("score",) if pairs else ()), "embed", *(("look",) if self.attends else ())
        return {
            "an encoder-decoder": (
                "translate",
                "stream",
                "score",
                *(() if self.needs_trees else ("embed", *(("look",) if self.attends else ()))),
            ),
            "a decoder": ("generate", "stream", "score", "embed", *(("look",) if self.attends else ())),
            "a classifier": (
                "choose" if self.task == "choose" else "classify",
                "embed",
                *(("look",) if self.attends else ()),
            ),
            "an encoder": (
                *(("fill",) if "masked_lm" in heads else ()),
                *(("choose" if self.task == "choose" else "classify",) if "classify" in heads else ()),
                *(("answer",) if "span" in heads else ()),
                *(("tag",) if "tag" in heads and self.own else ()),
                *(("parse",) if "arcs" in heads else ()),
                "embed",
                *(("look",) if self.attends else ()),
            ),
            "a captioner": ("caption", "look"),
            "a model of images": (
                *(("classify",) if {"classify", "classify_mean"} & set(heads) else ()),
                *(("look",) if self.architecture == "vit" else ()),
            ),
        }.get(self.kind, ())

    @cached_property
    def task(self) -> str:
        """What a run was trained for; nothing is known of any other model."""
        if not self.own:
            return ""
        from .scoring import recipe_of

        return recipe_of(Path(self.folder)).task

    @cached_property
    def summarizes(self) -> DataSettings | None:
        """Of a run that writes summaries, how it reads articles; None of any other model."""
        if not self.own:
            return None
        from .scoring import recipe_of

        recipe = recipe_of(Path(self.folder))
        return recipe.data if recipe.task == "summarize" else None

    @cached_property
    def sentences(self) -> Sentences | None:
        """How a folder of sentence-transformers turns texts into vectors; None of any other model."""
        from ..interop.hf.sentences import read_sentences

        return None if self.own else read_sentences(Path(self.folder))

    @cached_property
    def sentence_reader(self) -> Tokenizer:
        """The tokenizer of such a folder, which cuts texts where it says, or where the model's positions end."""
        from .scoring import table_of

        assert self.sentences is not None
        room = [size for size in (self.sentences.longest, table_of(self.model)) if size is not None]
        return self.sentences.reader(self.wording.reads, min(room, default=None))

    @cached_property
    def needs_trees(self) -> bool:
        """Whether it translates parsed texts only: its positions come from syntax."""
        return getattr(getattr(self.model, "encoder", None), "needs_tree", False)

    def reading(self, network: Any, texts: Sequence[str]) -> Any:
        """The network, told the trees of the texts that it is about to read, if it needs them, or shown the pictures."""
        if "caption" in self.can:
            from .images import shown_pictures

            return shown_pictures(self, network, texts)
        if not self.needs_trees:
            return network
        from ..data.trees import Parsed
        from ..data.vocab import read_vocab
        from ..tasks.translate import trees_of, with_trees

        for place, text in enumerate(texts, 1):
            if not isinstance(text, Parsed):
                raise BadInput(
                    f"{self.folder} reads sentences with their trees, and text {place} has none: give `trees`, a CoNLL-U file "
                    f"as `heedful parse` writes it, or from Python what model.parse gives"
                )
        return with_trees(network, trees_of(read_vocab(Path(self.folder) / "tokenizer.json"), texts))

    def check_can(self, what: str) -> None:
        """Refuse what this kind of model does not do, and say what it does."""
        if what not in self.can:
            refuse_stage(Path(self.folder), self.architecture, what)
            able = f"it can {listed(self.can)}"
            raise BadInput(f"{self.folder} is {self.kind}, which cannot {what}; {able}")

    @cached_property
    def wording(self) -> Wording:
        """How texts become its numbers, and back."""
        if self.summarizes is not None:
            return ArticleWording(self.loaded, self.folder, self.summarizes)
        return wording_of(self.loaded, self.folder, self.own and not self.borrows)

    @cached_property
    def borrows(self) -> bool:
        """Whether it is a run whose vocabulary came with a model that is not heedful's own."""
        from ..files import inside, read_json
        from ..interop.run.adapters import BORROWED

        return self.own and read_json(inside(Path(self.folder), "config.json")).get("vocabulary") == BORROWED

    def __repr__(self) -> str:
        return f"<heedful {self.architecture} from {self.folder}: {self.parameter_count:,} parameters, can {listed(self.can) or 'nothing'}>"

    def _repr_html_(self) -> str:
        """For notebooks: a small table."""
        rows = {
            "model": self.folder,
            "architecture": f"{self.architecture}, {self.kind}",
            "parameters": f"{self.parameter_count:,}",
            "vocabulary": vocabulary_told(self.loaded),
            "device": str(self.device),
            "can": ", ".join(self.can) or "nothing",
        }
        cells = "".join(f"<tr><th>{name}</th><td>{escape(told)}</td></tr>" for name, told in rows.items())
        return f"<table>{cells}</table>"

    # Writing

    @overload
    def translate(self, texts: str, **options: Unpack[Options]) -> Answer: ...  # type: ignore[overload-overlap]
    @overload
    def translate(self, texts: Iterable[str], **options: Unpack[Options]) -> list[Answer]: ...
    @takes_options("draft", "ahead")
    def translate(self, texts: str | Iterable[str], **options: Unpack[Options]) -> Answer | list[Answer]:
        """Translations, by a beam of 4 unless another search is asked for. An empty text has an empty one.

        A translation has at most twice as many tokens as its source and 20, or `longest`.

        >>> model = load("runs/toy")
        >>> model.translate(["the cat sleeps", "i am a student"])
        ['le chat dort', 'je suis étudiant']
        >>> answer = model.translate("the cat sleeps", n_best=2, length_penalty="power", alpha=1.0)
        >>> len(answer.n_best), answer.tokens
        (2, [' le', ' chat', ' dort', '[EOS]'])
        >>> model.translate("the cat sleeps", prefix="le chien")
        'le chien dort'
        >>> model.translate("the cat sleeps", sample=True, temperature=0.1, seed=3)
        'le chat dort'
        """
        self.check_can("translate")
        how = asked(options)
        refuse_draft(how)
        return each(texts, lambda rows: self.answers(rows, how, range(len(rows))))

    @overload
    def summarize(self, texts: str, **options: Unpack[Options]) -> Answer: ...  # type: ignore[overload-overlap]
    @overload
    def summarize(self, texts: Iterable[str], **options: Unpack[Options]) -> list[Answer]: ...
    @takes_options("draft", "ahead", "prefix")
    def summarize(self, texts: str | Iterable[str], **options: Unpack[Options]) -> Answer | list[Answer]:
        """Summaries, by a beam of 4 unless another search is asked for, as long as those it was trained on at most.

        A text is an article; `heedful.data.articles.Article` is one that knows its title and its paragraphs. What is too
        long is cut, or the paragraphs that fit its title are read first, as the run has learned to.

        >>> model = load("runs/toy-summarize")
        >>> model.summarize("the cat sat on the mat. the dog ate the fish.")
        'cat and dog'
        """
        self.check_can("summarize")
        how = asked(options)
        refuse_draft(how)
        refuse_prefix(how)
        return each(texts, lambda rows: self.answers(rows, how, range(len(rows))))

    @overload
    def caption(self, files: str, **options: Unpack[Options]) -> Answer: ...  # type: ignore[overload-overlap]
    @overload
    def caption(self, files: Iterable[str], **options: Unpack[Options]) -> list[Answer]: ...
    @takes_options("draft", "ahead")
    def caption(self, files: str | Iterable[str], **options: Unpack[Options]) -> Answer | list[Answer]:
        """A sentence about the picture of each image file, by a beam of 4 unless another search is asked for.

        A caption has at most as many tokens as those it was trained on, or `longest`.
        """
        self.check_can("caption")
        how = asked(options)
        refuse_draft(how)
        return each(files, lambda rows: self.answers(rows, how, range(len(rows))))

    @overload
    def generate(self, texts: str, **options: Unpack[Options]) -> Answer: ...  # type: ignore[overload-overlap]
    @overload
    def generate(self, texts: Iterable[str], **options: Unpack[Options]) -> list[Answer]: ...
    @takes_options("prefix")
    def generate(self, texts: str | Iterable[str], **options: Unpack[Options]) -> Answer | list[Answer]:
        """What comes after each text: greedily, unless sampling or a beam is asked for; at most 100 tokens, or `longest`.

        A model whose table of positions is full goes on from the later half of what it sees. (A beam stops there.)

        >>> model = load("runs/toy-lm")
        >>> model.generate("the cat", longest=10)
        ' sat on th'
        >>> model.generate("the cat", longest=10, sample=True, top_k=1, seed=7)
        ' sat on th'
        """
        self.check_can("generate")
        how = asked(options)
        refuse_prefix(how)
        return each(texts, lambda rows: self.answers(rows, how, range(len(rows))))

    def chat_prompt(self, conversation: str | list[dict[str, Any]]) -> str:
        """A conversation as the folder's chat template writes it down, for `generate` and `stream` to answer.

        conversation: a message of the user's, or [{"role": ..., "content": ...}, ...].
        """
        from ..interop.hf.chat import Refused, read_chat

        said = [{"role": "user", "content": conversation}] if isinstance(conversation, str) else conversation
        (found,) = read_chat(Path(self.folder)).render([said])
        if isinstance(found, Refused):
            raise BadInput(f"the chat template of {self.folder} {found.why}")
        return found

    @takes_options()
    def stream(self, text: str, **options: Unpack[Options]) -> Iterator[str]:
        """The same text piece by piece, as it is written; no piece ends inside a character.

        An encoder-decoder has a use for `prefix`, a decoder for `draft` and `ahead`.

        >>> model = load("runs/toy-lm")
        >>> print(*model.stream("the cat", longest=6), sep="|")
         |s|a|t| |o
        """
        self.check_can("stream")
        if not isinstance(text, str):
            raise BadInput(f"stream takes one text, a string, not {type(text).__name__}")
        how = asked(options)
        (refuse_draft if "translate" in self.can else refuse_prefix)(how)
        if how.width(1) > 1 or (how.groups or 1) > 1:
            raise BadInput("a beam decides at the end, so nothing can be streamed: leave out `beam`")
        return self.pieces(text, how)

    def pieces(self, text: str, how: Writing, number: int = 0) -> Iterator[str]:
        """What `stream` gives; number: which text this is, among all that belong to one seed."""
        (given,) = self.given([text], how, [number])
        if given is None:
            return
        ends = set(self.wording.ends)
        news = self.writer(how).streamed([given])
        tokens = (token.token for some in news for token in some if token.token not in ends)
        yield from self.wording.pieces(tokens, given.prompt if given.source is None else ())

    def answers(self, texts: list[str], how: Writing, numbers: Sequence[int]) -> list[Answer]:
        """What `translate` and `generate` give; numbers: which texts these are, among all that belong to one seed."""
        writer = self.writer(how)
        rows = self.given(texts, how, numbers)
        found = iter(writer.write([row for row in rows if row is not None]))
        return [Answer("") if row is None else self.written(row, next(found)) for row in rows]

    def written(self, given: Given, found: list[Hypothesis]) -> Answer:
        """Hypotheses, best first, as text."""
        prompt = given.prompt if given.source is None and self.summarizes is None else []
        answers = [
            Answer(
                self.wording.text(one.words, prompt),
                one.score,
                self.wording.names(one.tokens),
                one.log_probabilities,
                one.ended,
            )
            for one in found
        ]
        for one in answers:
            one.n_best = answers
        return answers[0]

    def writer(self, how: Writing) -> Writer:
        """What writes as asked."""
        writes = bool({"translate", "summarize", "caption"} & set(self.can))
        if how.coverage and self.kind not in ("an encoder-decoder", "a captioner"):
            raise BadInput(
                f"`coverage` is of a source, and {self.folder} is {self.kind}, with no cross-attention to one: leave it out"
            )
        banned = [*self.wording.never, *self.wording.banned(how.forbid)]
        draft = None if how.draft is None else self.checked_draft(how.draft)
        return Writer(
            self.writing,
            how,
            how.width(BEAM if writes else 1),
            self.wording.ends,
            banned,
            draft,
            self.reading,
        )

    @cached_property
    def writing(self) -> FastModel:
        """The network as it writes, made ready at the first text."""
        from ..fast.decoding import FastModel, for_decoding

        model: Any = self.model
        if self.quantize:  # torchao has kernels of its own
            return FastModel(model)
        return for_decoding(model, self.weights)

    @property
    def attends(self) -> bool:
        """Whether there is any attention in it."""
        from ..parts.watch import WATCHED

        return any(isinstance(module, WATCHED) for module in self.model.modules())

    def check_weights(self) -> None:
        """Refuse what would do nothing, and what is not known."""
        from ..fast.decoding import has_attention_cache

        if self.weights not in WEIGHTS:
            raise BadInput(f'weights are {", ".join(WEIGHTS)}, not "{self.weights}"')
        if self.weights == "fp32":
            return
        weight = next(self.model.parameters())
        if weight.device.type != "cpu" or str(weight.dtype) != "torch.float32":
            raise BadInput(
                f'weights="{self.weights}" is for writing on a CPU from float32, and the model is {weight.dtype} on '
                f"{weight.device}: leave out one of them"
            )
        if not {"translate", "generate", "summarize", "caption"} & set(self.can):
            raise BadInput(
                f'{self.folder} is {self.kind}, which writes nothing: leave out weights="{self.weights}"'
            )
        if not has_attention_cache(self.model):  # type: ignore[arg-type]
            raise BadInput(
                f'weights="{self.weights}" is for blocks of attention, and a {self.architecture} has none: leave it out'
            )

    def given(self, texts: list[str], how: Writing, numbers: Sequence[int]) -> list[Given | None]:
        """Texts as the model is given them; None for a text that says nothing, to which nothing is the answer."""
        if self.summarizes is not None:
            return self.given_articles(texts, how.longest or self.summarizes.longest_summary, numbers)
        if "caption" in self.can:
            from .images import given_pictures

            return given_pictures(self, texts, how, numbers)
        if "translate" in self.can:
            prefix = self.wording.beginning(how.prefix)
            rows = self.wording.source(texts)
            silent = [not text.strip() or not row for text, row in zip(texts, rows, strict=True)]
            return [
                None if nothing else Given(
                    [self.wording.start], how.longest or 2 * len(row) + 20 + len(prefix), row, number, prefix, text
                )
                for text, row, number, nothing in zip(texts, rows, numbers, silent, strict=True)
            ]  # fmt: skip
        rows = self.wording.prompt(texts)
        for place, row in enumerate(rows, 1):
            if not row:
                raise BadInput(
                    f"text {place} is empty, and {self.folder} knows no token that begins a text: give it a first word"
                )
        longest = how.longest or WRITTEN
        return [Given(row, longest, None, number) for row, number in zip(rows, numbers, strict=True)]

    def given_articles(self, texts: list[str], longest: int, numbers: Sequence[int]) -> list[Given | None]:
        """Articles, read by an encoder or by the decoder itself."""
        words, apart = self.wording, self.kind == "an encoder-decoder"
        assert isinstance(words, ArticleWording)
        return [
            None if not text.strip() or not row
            else Given([words.start], longest, row, number, [], text) if apart
            else Given(words.before_summary(row), longest, None, number)
            for text, row, number in zip(texts, words.source(texts), numbers, strict=True)
        ]  # fmt: skip

    def checked_draft(self, draft: Any) -> Any:
        """The network of a model that may guess for this one."""
        if not isinstance(draft, Model):
            raise BadInput("a draft is a decoder that was loaded by heedful.load: give one, or leave it out")
        if draft.kind != "a decoder":
            raise BadInput(
                f"{draft.folder} is {draft.kind}, and a draft is a decoder: give another, or leave it out"
            )
        mine, its = self.wording.reads.get_vocab(), draft.wording.reads.get_vocab()
        if mine != its:
            raise BadInput(
                f"{draft.folder} knows {len(its):,} tokens and {self.folder} {len(mine):,}, and they are not the same: "
                f"a draft needs the same vocabulary"
            )
        if draft.device != self.device:
            raise BadInput(f"the draft is on {draft.device} and the model on {self.device}: load both alike")
        return draft.writing

    # Reading

    @overload
    def score(self, texts: str, targets: str | None = None, *, batch: int = 32) -> Scored: ...  # type: ignore[overload-overlap]
    @overload
    def score(
        self, texts: Iterable[str], targets: Iterable[str] | None = None, *, batch: int = 32
    ) -> list[Scored]: ...
    def score(
        self, texts: str | Iterable[str], targets: str | Iterable[str] | None = None, *, batch: int = 32
    ) -> Scored | list[Scored]:
        """How likely each text is; of an encoder-decoder, how likely each target is as the answer to its text.

        Where the model knows no token that begins a text, the first one is given and not scored.

        >>> model = load("runs/toy")
        >>> right = model.score("the cat sleeps", "le chat dort")
        >>> wrong = model.score("the cat sleeps", "le chien dort")
        >>> right.total > wrong.total, right.tokens
        (True, [' le', ' chat', ' dort', '[EOS]'])
        >>> scored = load("runs/toy-lm").score("the cat")
        >>> scored.given, scored.tokens, len(scored.log_probabilities)
        (['t'], ['h', 'e', ' ', 'c', 'a', 't'], 6)
        """
        from .scoring import scored_pairs, scored_texts

        self.check_can("score")
        pairs = self.kind == "an encoder-decoder"
        if pairs != (targets is not None):
            remedy = "give their targets too" if pairs else "it has no use for targets"
            raise BadInput(
                f"{self.folder} is {self.kind}, which scores {'pairs' if pairs else 'texts'}: {remedy}"
            )
        if targets is None:
            return each(texts, lambda rows: scored_texts(self, rows, batch))
        return both(texts, targets, lambda a, b: scored_pairs(self, a, b, batch))

    @overload
    def fill(self, texts: str, *, top: int = 5, batch: int = 32) -> Filled: ...  # type: ignore[overload-overlap]
    @overload
    def fill(self, texts: Iterable[str], *, top: int = 5, batch: int = 32) -> list[Filled]: ...
    def fill(self, texts: str | Iterable[str], *, top: int = 5, batch: int = 32) -> Filled | list[Filled]:
        """Texts with a word for every [MASK]; `top` words for each are kept in `.blanks`.

        Every blank is filled in by itself, as if the others stayed blank.

        >>> filled = load("runs/toy-mlm").fill("the [MASK] sat on the mat", top=2)
        >>> filled, filled.blanks[0][0].word
        ('the cat sat on the mat', 'cat')
        """
        from .scoring import filled

        self.check_can("fill")
        return each(texts, lambda rows: filled(self, rows, top, batch))

    @overload
    def classify(self, texts: str, seconds: str | None = None, *, batch: int = 32) -> Label: ...  # type: ignore[overload-overlap]
    @overload
    def classify(
        self, texts: Iterable[str], seconds: Iterable[str] | None = None, *, batch: int = 32
    ) -> list[Label]: ...
    def classify(
        self, texts: str | Iterable[str], seconds: str | Iterable[str] | None = None, *, batch: int = 32
    ) -> Label | list[Label]:
        """The likeliest label of each text, or of each text together with its second one.

        A run cuts what is longer than the texts it was trained on, as it was cut in training. A model of images is given
        the names of files.

        >>> label = load("runs/toy-classify").classify("a good film")
        >>> label, label.probability > 0.5, sorted(label.probabilities)
        ('positive', True, ['negative', 'positive'])
        """
        from .scoring import labeled

        self.check_can("classify")
        if self.kind == "a model of images":
            from .images import labeled_images

            if seconds is not None:
                raise BadInput(f"{self.folder} reads pictures, one by one: leave out the second ones")
            return each(texts, lambda rows: labeled_images(self, rows, batch))
        if seconds is None:
            return each(texts, lambda rows: labeled(self, rows, [""] * len(rows), batch))
        return both(texts, seconds, lambda a, b: labeled(self, a, b, batch))

    @overload
    def answer(self, questions: str, contexts: str, *, batch: int = 32) -> Found: ...  # type: ignore[overload-overlap]
    @overload
    def answer(
        self, questions: Iterable[str], contexts: Iterable[str], *, batch: int = 32
    ) -> list[Found]: ...
    def answer(
        self, questions: str | Iterable[str], contexts: str | Iterable[str], *, batch: int = 32
    ) -> Found | list[Found]:
        """The answer to each question as its context has it; a long context is read in windows that overlap.

        >>> found = load("runs/toy-span").answer("who sleeps ?", "the dog eats . the cat sleeps .")
        >>> found, found.start, found.end
        ('cat', 19, 22)
        """
        from .reading import answered

        self.check_can("answer")
        return both(questions, contexts, lambda a, b: answered(self, a, b, batch))

    @overload
    def choose(self, contexts: str, choices: Sequence[str], *, batch: int = 32) -> Chosen: ...  # type: ignore[overload-overlap]
    @overload
    def choose(
        self, contexts: Sequence[str], choices: Sequence[Sequence[str]], *, batch: int = 32
    ) -> list[Chosen]: ...
    def choose(
        self, contexts: str | Sequence[str], choices: Sequence[Any], *, batch: int = 32
    ) -> Chosen | list[Chosen]:
        """Of the ways to go on from each text, the one that goes best with it.

        >>> chosen = load("runs/toy-choose").choose("the cat sleeps .", ["it is a cat", "it is a dog"])
        >>> chosen, chosen.number
        ('it is a cat', 0)
        """
        from .reading import chosen

        self.check_can("choose")
        rows, one = listed_texts(contexts)
        lists = [list(choices)] if one else [list(some) for some in choices]
        if len(lists) != len(rows):
            raise BadInput(
                f"there are {len(rows)} texts and {len(lists)} lists of choices: give one for each"
            )
        found = chosen(self, rows, lists, batch)
        return found[0] if one else found

    @overload
    def tag(self, texts: str, *, batch: int = 32) -> Tagged: ...  # type: ignore[overload-overlap]
    @overload
    def tag(self, texts: Iterable[str], *, batch: int = 32) -> list[Tagged]: ...
    def tag(self, texts: str | Iterable[str], *, batch: int = 32) -> Tagged | list[Tagged]:
        """The part of speech of each word; words, and marks, are separated by spaces.

        >>> load("runs/toy-parse").tag("the cat sleeps")
        'the/DET cat/NOUN sleeps/VERB'
        """
        from .syntax import tagged

        self.check_can("tag")
        return each(texts, lambda rows: tagged(self, rows, batch))

    @overload
    def parse(self, texts: str, *, batch: int = 32) -> Parsed: ...  # type: ignore[overload-overlap]
    @overload
    def parse(self, texts: Iterable[str], *, batch: int = 32) -> list[Parsed]: ...
    def parse(self, texts: str | Iterable[str], *, batch: int = 32) -> Parsed | list[Parsed]:
        """Texts that know on which word each word hangs (-1: it is the root), and as what; words are separated by spaces.

        >>> tree = load("runs/toy-parse").parse("the cat sleeps")
        >>> tree, tree.heads, tree.relations
        ('the cat sleeps', (1, 2, -1), ('det', 'nsubj', 'root'))
        """
        from .syntax import parsed

        self.check_can("parse")
        return each(texts, lambda rows: parsed(self, rows, batch))

    def embed(
        self,
        texts: str | Iterable[str],
        *,
        pooling: str | None = None,
        normalize: bool | None = None,
        batch: int = 32,
    ) -> Tensor:
        """The last layer's vectors as one a text: [D] for a string, [N, D] for a list.

        pooling: "mean" of all tokens, or "class", the one token that stands for all: [CLS] of an encoder, the last one
        of a decoder that classifies. normalize: to length 1, so that a product of two is their cosine. What is not said
        is done as the folder's sentence-transformers files say; without those, the mean, as long as it is.

        >>> model = load("runs/toy")
        >>> model.embed("i am a student").shape
        torch.Size([16])
        >>> one, other = model.embed(["i am a student", "the cat sleeps"], normalize=True)
        >>> bool(one @ one > one @ other)
        True
        """
        from .scoring import embedded

        self.check_can("embed")
        if pooling not in (None, *POOLINGS):
            raise BadInput(f'`pooling` is "mean" or "class", not {pooling!r}')
        if pooling == "class" and self.kind not in ("an encoder", "a classifier"):
            raise BadInput(f'{self.folder} is {self.kind}, without a class token: use `pooling="mean"`')
        rows, one = listed_texts(texts)
        found = embedded(self, rows, pooling, normalize, batch)
        return found[0] if one else found

    def look(
        self,
        text: str,
        *,
        target: str | None = None,
        which: str | None = None,
        layer: int | None = None,
        head: int | str | None = None,
    ) -> Look:
        """What attends to what in one text: a picture in a notebook, `.text()` in a terminal, `.svg()` for a file.

        target: what an encoder-decoder is to have written, instead of its own translation. which: "cross", "self" or
        "encoder". layer and head are counted from 1; head may be "mean" or "best".

        >>> seen = load("runs/toy").look("the cat sleeps", head="best")
        >>> seen.down, seen.across
        (['le', 'chat', 'dort', '[EOS]'], ['the', 'cat', 'sleeps'])
        """
        from ..inside.look.attention import look, practice

        self.check_can("look")
        if self.kind in ("a model of images", "a captioner"):
            raise BadInput(f"{self.folder} reads pictures: look_at takes the name of a file")
        gold = practice(Path(self.folder)) if self.own else []
        return look(self.loaded, text, target=target, which=which, layer=layer, head=head, gold=gold)

    def look_at(
        self,
        file: str,
        *,
        target: str | None = None,
        layer: int | None = None,
        head: int | str | None = None,
    ) -> ImageLook | CaptionLook | CodesLook:
        """Where a model of images looks in the image of a file: `.svg()` for a file, a picture in a notebook.

        Of a captioner: where each word of its caption looks, or of `target`. layer and head are counted from 1; head may be
        "mean" or "best". Without either: the mean of each layer's heads. Of the codes of text-to-image: the image's codes,
        and what they become.
        """
        from ..data.images.prepare import ready_file
        from ..inside.look.captions import look_at_caption
        from ..inside.look.codes import look_at_codes
        from ..inside.look.images import look_at_image
        from .images import data_for, recipe_of

        if self.architecture == "dvae" and target is layer is head is None:
            return look_at_codes(self.loaded, ready_file(file, recipe_of(Path(self.folder)).data), file)
        refuse_stage(Path(self.folder), self.architecture, "look")
        if self.kind not in ("a model of images", "a captioner"):
            raise BadInput(f"{self.folder} is {self.kind}, which reads no pictures: look takes a text")
        data = data_for(self)
        if self.kind == "a captioner":
            pixels_HWC = ready_file(file, data)
            return look_at_caption(
                self.loaded, pixels_HWC, data, file, target=target, layer=layer, head=head
            )  # fmt: skip
        if target is not None:
            raise BadInput(f"{self.folder} is {self.kind}, which writes no caption: leave out `target`")
        return look_at_image(self.loaded, ready_file(file, data), data, file, layer=layer, head=head)

    def unknown_words(self, texts: list[str]) -> list[list[str]]:
        """Of each text, the words that the model does not know and reads all alike: none, if it reads letters.

        >>> load("runs/toy").unknown_words(["the cat sleeps", "the zebra sleeps"])
        [[], ['zebra']]
        """
        if getattr(self.config, "input", "") == "characters":
            return [[] for _ in texts]
        return self.wording.unknown_words(texts, blanks="fill" in self.can)

    def faults(self, texts: list[str], what: str) -> list[str | None]:
        """For each text, why the method `what` would refuse it; None if it would not."""
        from .scoring import faults

        return faults(self, texts, what)


# One or many


def listed_texts(texts: str | Iterable[str]) -> tuple[list[str], bool]:
    """Texts as a list, and whether it was only one."""
    if isinstance(texts, str):
        return [texts], True
    if not isinstance(texts, Iterable):
        raise BadInput(f"texts are a string or a list of strings, not {type(texts).__name__}")
    rows = list(texts)
    for place, row in enumerate(rows, 1):
        if not isinstance(row, str):
            raise BadInput(f"text {place} is {type(row).__name__}: texts are strings")
    return rows, False


def each(texts: str | Iterable[str], do: Callable[[list[str]], list[T]]) -> T | list[T]:
    """One result for one text, a list for a list."""
    rows, one = listed_texts(texts)
    found = do(rows)
    return found[0] if one else found


def both(
    texts: str | Iterable[str],
    others: str | Iterable[str],
    do: Callable[[list[str], list[str]], list[T]],
) -> T | list[T]:
    """The same of texts that belong together two by two."""
    (rows, one), (seconds, other) = listed_texts(texts), listed_texts(others)
    if one != other or len(rows) != len(seconds):
        raise BadInput(
            f"texts go together two by two, and there are {len(rows)} and {len(seconds)}: give two strings, or two "
            f"lists of one length"
        )
    found = do(rows, seconds)
    return found[0] if one else found


def refuse_draft(how: Writing) -> None:
    if how.draft is not None:
        raise BadInput("a draft guesses ahead for a decoder: it is for generate")


def refuse_prefix(how: Writing) -> None:
    if how.prefix:
        raise BadInput(
            "`prefix` is what a translation begins with; a decoder goes on from the text itself: put it there"
        )


def listed(words: Sequence[str]) -> str:
    """ "a, b and c"."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def vocabulary_told(loaded: Loaded) -> str:
    sizes = [t.get_vocab_size() for t in (loaded.tokenizer, loaded.target_tokenizer) if t is not None]
    return " to ".join(f"{size:,}" for size in sizes) or "no tokenizer"
