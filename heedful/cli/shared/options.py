"""Options that several commands have, and how a field of a dataclass becomes an option."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

Device = Literal["auto", "cpu", "cuda"]
Positional = tyro.conf.Positional  # a word that belongs to no option
Repeated = tyro.conf.UseAppendAction  # an option that may be given several times


def arg(metavar: str | None = None, default: str | None = None, name: str | None = None) -> Any:
    """How help shows an option: what its value is called, and what holds if it is left out."""
    hint = None if default is None else f"(default: {default})"
    return tyro.conf.arg(name=name, metavar=metavar, help_behavior_hint=hint)


@dataclass(frozen=True)
class DataOptions:
    """What models learn from, and are judged by."""

    corpus: Annotated[str | None, arg("NAME", "none")] = None
    """A built-in corpus: phrasebook (translate, classify, lm, mlm, tag, parse), stories (lm, mlm), pylib (lm,
    mlm), facts (summarize, span, choose), shapes (image-classify, caption, text-to-image)."""

    source: Annotated[str | None, arg("FILE", "none")] = None
    """Sentences to read, one a line, plain or gzip."""

    target: Annotated[str | None, arg("FILE", "none")] = None
    """Their translations, line by line."""

    valid_source: Annotated[str | None, arg("FILE", "none")] = None
    """Held-out sentences to judge by."""

    valid_target: Annotated[str | None, arg("FILE", "none")] = None
    """Their translations."""

    text: Annotated[str | None, arg("PATH", "none")] = None
    """A text file, a folder of them, or JSON lines (.jsonl) with a "text"; the last tenth is held out."""

    data: Annotated[str | None, arg("FILE", "none")] = None
    """A table: tab-separated columns under a header, or JSON objects, one a line. classify: sentence or
    text, and label. translate: source and target. --set data.text_column=NAME and the like name other
    columns. tag, parse: a treebank, CoNLL-U. summarize: JSON objects with article and summary, and a title
    if there is one. span: question, context and answers, a list of {"text", "start"}; in a table, question,
    context, answer and start. choose: JSON objects with context, choices (a list) and answer (which is
    right, from 0)."""

    valid_data: Annotated[str | None, arg("FILE", "none")] = None
    """Held-out rows to judge by."""

    images: Annotated[str | None, arg("FOLDER", "none")] = None
    """image-classify: a folder with a folder of images (PNG, JPEG, PPM) for each class, or with IDX files
    as MNIST's. caption: a folder of images with a file captions.tsv (name, tab, caption) or
    captions.jsonl."""

    valid_images: Annotated[str | None, arg("FOLDER", "one in ten of --images, at most 2000")] = None
    """Held-out images to judge by."""

    def data_settings(self) -> dict[str, Any]:
        """The settings of a recipe that these options stand for; None where one was not given."""
        return {
            "data.corpus": self.corpus,
            "data.source": self.source,
            "data.target": self.target,
            "data.valid_source": self.valid_source,
            "data.valid_target": self.valid_target,
            "data.text": self.text,
            "data.table": self.data,
            "data.valid_table": self.valid_data,
            "data.images": self.images,
            "data.valid_images": self.valid_images,
        }


@dataclass(frozen=True, kw_only=True)
class LineOptions:
    """What every command that answers texts line by line is given."""

    run: Annotated[str, Positional, arg("RUN")]
    """The folder of a run, or a Hugging Face folder."""

    text: Annotated[tuple[str, ...], Positional, arg("[TEXT ...]", "the lines of stdin")] = ()
    """One text to answer, in one word or several; what begins with a dash goes through stdin."""

    json: bool = False
    """Print one JSON object a line instead, with everything that is known of the answer."""

    batch: int = 32
    """Texts done at once: fewer if memory is short; answers do not depend on it."""

    bad_lines: Literal["blank", "refuse"] = "blank"
    """A line that is not UTF-8, or too long: blank names it on stderr, answers it by an empty line ("error"
    in JSON) and goes on; refuse stops there."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes the GPU if there is one."""


@dataclass(frozen=True, kw_only=True)
class DecodingOptions:
    """What every command that writes is given."""

    beam: Annotated[int | None, arg("INT", "translate, summarize and caption 4, generate and --sample 1")] = (
        None
    )
    """Hypotheses kept side by side: 1 is greedy, which always takes the likeliest token; more is slower,
    and often better."""

    n_best: Annotated[int, arg("INT")] = 1
    """Answers to each text, best first, as many as the beam is wide at most: above 1, each on a line of its
    own after its score and a tab."""

    length_penalty: Annotated[Literal["gnmt", "power"] | None, arg("gnmt|power", "gnmt")] = None
    """What a hypothesis' log-probability is divided by: gnmt is ((5 + length) / 6)^alpha, power is
    length^alpha."""

    alpha: Annotated[float | None, arg("FLOAT", "0.6")] = None
    """The exponent of the length penalty: 0 for none, more for longer answers."""

    stopping: Annotated[
        Literal["heuristic", "first_B", "exact"] | None, arg("heuristic|first_B|exact", "heuristic")
    ] = None
    """When a beam is done: first_B, as soon as it has as many hypotheses as it is wide; heuristic, when
    none alive would beat them as it stands; exact, when none alive ever could."""

    coverage: Annotated[float | None, arg("FLOAT", "0")] = None
    """Weight of a penalty on words of the source that the answer never looked at; encoder-decoders only."""

    groups: Annotated[int | None, arg("INT", "1")] = None
    """Beams side by side, each of which --diversity makes differ from those before it."""

    diversity: Annotated[float | None, arg("FLOAT", "0")] = None
    """What it costs a group to write what another has written at the same place."""

    sample: bool = False
    """Draw every token at random, by its probability, instead of searching."""

    temperature: Annotated[float | None, arg("FLOAT", "1")] = None
    """With --sample: below 1 for more of the likeliest, above 1 for more of the rest."""

    top_k: Annotated[int | None, arg("INT", "all")] = None
    """With --sample: draw from so many of the likeliest tokens only."""

    top_p: Annotated[float | None, arg("FLOAT", "1")] = None
    """With --sample: draw from the likeliest tokens that together have this share of the probability."""

    min_p: Annotated[float | None, arg("FLOAT", "0")] = None
    """With --sample: draw from tokens at least this many times as likely as the likeliest."""

    seed: int = 0
    """With --sample: another seed, other answers; the same seed, the same answer to the same line."""

    repetition_penalty: Annotated[float | None, arg("FLOAT", "1")] = None
    """Above 1: less of every token that was written before."""

    no_repeat_ngram: Annotated[int | None, arg("INT", "none")] = None
    """Never so many tokens in a row twice."""

    forbid: Annotated[tuple[str, ...], arg("WORD", "none"), Repeated] = ()
    """A word never to write, as the vocabulary would cut it up; may be given several times."""

    weights: Literal["fp32", "fp16", "int8"] = "fp32"
    """What is read for every token on a CPU: fp16 is half of it and as good; int8 a quarter, and may change
    a word."""

    quantize: Annotated[Literal["int8", "int4"] | None, arg("int8|int4", "none")] = None
    """Round the weights of all blocks to 8 or 4 bits through torchao, on any device; heedful evaluate
    --quantize says what that costs."""
