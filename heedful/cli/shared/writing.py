"""What translate, summarize, generate and caption share: decoding options, and how answers are printed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...data.conllu import read_sentences
from ...decode.options import BEAM, DecodingOptions, check_given, options_from
from ...errors import BadInput
from ...files import one_line
from ...interop.run_folder import is_run
from ...use.results import Answer
from ...use.texts import LONGEST, Tokenized
from .lines import Line, LineCommand, Streamer
from .options import WriterOptions, decoding_of
from .terminal import flat

if TYPE_CHECKING:
    from ...use.model import Model


class TextWriter(LineCommand[Answer]):
    """translate, summarize and generate."""

    def __init__(
        self, given: WriterOptions, what: str, most: int = LONGEST, read: Callable[[str], Line] = str
    ) -> None:
        """most: characters of a line. read: what of it the model is given."""
        self.given, self.what, self.most, self.reads = given, what, most, read
        self.options = decoding_of(given, what)
        self.check()
        trees = getattr(given, "trees", None)
        self.trees = None if trees is None else read_sentences(trees)
        self.n_best: int = self.options.get("n_best", 1)
        self.nothing = "\n" * (self.n_best - 1)

        self.used: dict[str, Any] = {}  # the decoding options in use

    def read(self, line: str) -> Line:
        return self.reads(line) if line.strip() else line

    def check(self) -> None:
        """What can be seen to be wrong before anything is loaded."""
        check_decoding(self.what, self.options, getattr(self.given, "run", ""), self.given.json)

    def how(self, model: Model) -> DecodingOptions:
        from ...use.load import load

        draft = self.options.get("draft")
        if isinstance(draft, str):
            self.options["draft"] = load(draft, model.device, weights=self.given.weights)
        how = model.decoding(self.what, self.options)
        self.used = how.in_use(otherwise(self.what))
        return how

    def encode(self, model: Model, texts: list[str]) -> list[Tokenized]:
        from ...use.model import WRITERS

        return WRITERS[self.what].encode(self.speaking(model), texts)

    def do(self, model: Model, rows: list[Tokenized], numbers: list[int]) -> list[Answer]:
        from ...use.model import WRITERS

        rows = self.with_trees(model, rows, numbers)
        return WRITERS[self.what].write(self.speaking(model), rows, self.how(model), numbers)

    def speaking(self, model: Model) -> Model:
        """The model in the languages that were given."""
        from ...use.languages import speaking

        return speaking(model, *(getattr(self.given, f"{side}_lang", None) for side in ("source", "target")))

    def with_trees(self, model: Model, rows: list[Tokenized], numbers: list[int]) -> list[Tokenized]:
        """Texts with the next trees of the file, if one was given."""
        if self.trees is None:
            return rows
        from ...data.trees import parsed

        if not model.reads_trees:
            raise BadInput(f"{model.folder} reads no trees: leave out `trees`")
        file = getattr(self.given, "trees", "")
        found: list[Tokenized] = []
        for row, number in zip(rows, numbers, strict=True):
            sentence = next(self.trees, None)
            if sentence is None:
                raise BadInput(
                    one_line(
                        f"{file} has no tree for line {number + 1}: each line that says something has one"
                    )
                )
            where = f"{file}:{sentence.line}: the tree of line {number + 1}"
            found.append(replace(row, text=parsed(row.text, sentence, where)))
        return found

    def plain(self, result: Answer) -> str:
        if self.n_best == 1:
            return with_links(result)
        best = [f"{one.score:.4f}\t{with_links(one)}" for one in result.n_best]
        return "\n".join([*best, *[""] * (self.n_best - len(best))])

    def is_text(self, result: Answer) -> bool:
        return self.n_best == 1 and result.alignment is None

    def known(self, result: Answer | None) -> dict[str, Any]:
        if result is None:
            return {"answers": []}
        return {"answers": [as_object(one) for one in result.n_best], "settings": self.used}

    def streamer(self, model: Model) -> Streamer | None:
        from ...use.stream import streamed

        how = self.how(model)
        if self.what != "generate" or how.width(1) > 1 or how.beam_groups > 1:
            return None
        return lambda row, number: streamed(model, row, how, number)


def otherwise(command: str) -> int:
    """The width of the beam where neither options nor a folder's settings say it."""
    return 1 if command == "generate" else BEAM


def check_decoding(command: str, options: dict[str, Any], run: str, json: bool) -> None:
    """What can be seen to be wrong with options before a model is loaded. json: how answers are shown."""
    check_given(command, options)
    if options.get("top") and not json:
        raise BadInput("`top` is shown in JSON only: give `json` too, or leave out `top`")
    if is_run(Path(run)) or not Path(run).exists():  # any other folder may have settings of its own
        options_from(command, options).width(otherwise(command))


def with_links(one: Answer) -> str:
    """An answer on one line; with its alignment after a tab, if it has one, as Pharaoh writes it."""
    if one.alignment is None:
        return flat(one)
    return f"{flat(one)}\t{' '.join(f'{source}-{target}' for source, target in one.alignment)}"


def as_object(one: Answer) -> dict[str, Any]:
    alignment = {} if one.alignment is None else {"alignment": [list(link) for link in one.alignment]}
    top = {"top": [[other._asdict() for other in some] for some in one.top]} if one.top else {}
    return {
        "text": str(one),
        "score": one.score,
        "log_probability": one.log_probability,
        "ended": one.ended,
        "tokens": one.tokens,
        "log_probabilities": one.log_probabilities,
        **top,
        **alignment,
    }
