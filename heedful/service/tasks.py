"""heedful's own endpoints, one for each ability of a model: what their requests may hold.

Fields have the names that the methods of `heedful.load(...)` have. Those that write have the options of
decoding, whose types, ranges and descriptions are in heedful/decode/options.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass
from typing import Annotated, Any

from ..decode.options import DecodingOption, decoding_options
from ..models.base.settings import Range
from .fields import Most

Text = Annotated[str, Most("characters")]
TextList = Annotated[list[Text], Most("texts", 1)]
Texts = Annotated[Text | TextList, "a text, or several"]
Picture = Annotated[str, Most("image_bytes", 1)]
PictureList = Annotated[list[Picture], Most("texts", 1)]
PICTURES = "a PNG or JPEG file in base64, or as a data: URL; or several"
TokenIds = Annotated[list[Annotated[int, Range(0, 10**7)]], Most("characters", 1)]
ModelName = Annotated[str | None, "one of /v1/models; may be left out where there is one"]
Language = Annotated[str | None, Most("stop_characters"), "of a model that knows many languages"]
Streams = Annotated[bool, "send each answer piece by piece as server-sent events; not with a beam or `align`"]


# Requests that write.

NOT_HERE = ("draft", "draft_tokens", "batch")  # these are for whoever owns the machine
LIMITS: dict[str, Any] = {
    "max_new_tokens": Most("tokens"),
    "beam": Most("beams"),
    "seed": Range(0, 2**63 - 1),
}
SHAPES: dict[str, Any] = {  # of options that are lists or objects in JSON
    "stop": Annotated[list[Annotated[str, Most("stop_characters", 1)]], Most("stops")],
    "bad_words": Annotated[list[Annotated[str, Most("stop_characters", 1)]], Most("biased_tokens")],
    "logit_bias": Annotated[dict[str, Annotated[float, Range(-100, 100)]], Most("biased_tokens")],
}


def options_of(command: str) -> list[DecodingOption]:
    """The decoding options that a request may have."""
    return [option for name, option in decoding_options(command).items() if name not in NOT_HERE]


def field_of(option: DecodingOption) -> tuple[str, Any, Any]:
    """An option as a field of a request."""
    hint = SHAPES.get(option.name, option.hint)
    said = option.help.partition(" On the command line")[0].partition(" Plain output")[0]
    if option.use.default:
        said += f" Default: {option.use.default}."
    notes = [option.setting.limits] if option.setting is not None and option.setting.limits else []
    notes += [LIMITS[option.name]] if option.name in LIMITS else []
    for note in (*notes, said):
        hint = Annotated[hint, note]
    return option.name, hint, field(default=option.default)


def writing(name: str, command: str, said: str, first: tuple[str, Any], *more: tuple[str, Any, Any]) -> type:
    """A request that has the decoding options of a command. said: what it is for."""
    own: list[Any] = [first, *map(field_of, options_of(command)), *more, ("model", ModelName, None)]
    return make_dataclass(name, own, frozen=True, kw_only=True, namespace={"__doc__": said})


LANGUAGES = (("source_lang", Language, None), ("target_lang", Language, None))
STREAM = ("stream", Streams, False)
TEXTS = ("texts", Texts)
TranslateRequest = writing("TranslateRequest", "translate", "Translate texts.", TEXTS, *LANGUAGES, STREAM)
SummarizeRequest = writing("SummarizeRequest", "summarize", "Summarize articles.", TEXTS, STREAM)
GenerateRequest = writing("GenerateRequest", "generate", "Continue texts.", TEXTS, STREAM)
SEEN = ("pictures", Annotated[Picture | PictureList, PICTURES])
CaptionRequest = writing("CaptionRequest", "caption", "Describe pictures.", SEEN)


# Other requests.


@dataclass(frozen=True, kw_only=True)
class FillRequest:
    """Fill in blanks."""

    texts: Annotated[Text | TextList, "a text with [MASK] in it, or several"]
    top: Annotated[int, Range(1, 1000), "words to return for each blank, best first"] = 5
    model: ModelName = None


@dataclass(frozen=True, kw_only=True)
class ClassifyRequest:
    """Label texts, pairs of texts, or pictures."""

    texts: Annotated[Text | TextList | None, "a text, or several; this or `pictures`"] = None
    seconds: Annotated[
        Text | TextList | None, "the second text of each pair, where the model reads pairs"
    ] = None
    pictures: Annotated[Picture | PictureList | None, PICTURES] = None
    model: ModelName = None


@dataclass(frozen=True, kw_only=True)
class ScoreRequest:
    """Say how likely texts are, or targets as the answers to texts."""

    texts: Texts
    targets: Annotated[Text | TextList | None, "with an encoder-decoder: the target of each text"] = None
    source_lang: Language = None
    target_lang: Language = None
    model: ModelName = None


@dataclass(frozen=True, kw_only=True)
class AnswerRequest:
    """Answer questions from texts."""

    questions: Annotated[Text | TextList, "a question, or several"]
    contexts: Annotated[
        Text | TextList, "the text that has the answer: one for all questions, or one for each"
    ]
    model: ModelName = None


@dataclass(frozen=True, kw_only=True)
class ChooseRequest:
    """Choose how texts go on."""

    contexts: Texts
    choices: Annotated[
        TextList | Annotated[list[TextList], Most("texts", 1)],
        "ways to go on: a list, or one list for each text",
    ]
    model: ModelName = None


@dataclass(frozen=True, kw_only=True)
class TagRequest:
    """Tag the words of texts, or find entities."""

    texts: Texts
    model: ModelName = None


@dataclass(frozen=True, kw_only=True)
class ParseRequest:
    """Parse sentences."""

    texts: Annotated[Text | TextList, "a sentence, or several; spaces separate words"]
    model: ModelName = None


@dataclass(frozen=True, kw_only=True)
class TokenizeRequest:
    """Cut texts into tokens."""

    texts: Texts
    special: Annotated[bool, "with the tokens that the tokenizer puts around a text"] = True
    target: Annotated[bool, "by the vocabulary that the model writes with, where it has two"] = False
    model: ModelName = None


@dataclass(frozen=True, kw_only=True)
class DetokenizeRequest:
    """Put tokens together again."""

    tokens: Annotated[
        TokenIds | Annotated[list[TokenIds], Most("texts", 1)], "numbers of tokens, or several lists"
    ]
    special: Annotated[bool, "show special tokens as well"] = False
    target: Annotated[bool, "by the vocabulary that the model writes with, where it has two"] = False
    model: ModelName = None
