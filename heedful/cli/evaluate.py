"""Evaluate a trained model on held-out data.

By default, uses all held-out data that the run's recipe names; training itself uses only a part
(evaluate.rows). Or give files of your own. translate: BLEU with its signature, exact match, loss and
perplexity. lm: loss, perplexity and bits per byte; with --text, the same of any language model that loads.
mlm: the same of the blanks, and how many are filled in right. classify: accuracy, F1 of all labels and of
each; tag: the same of words. span: exact match and F1 as SQuAD has them. choose: accuracy. parse: words that
hang where they should (UAS), with the right relation (LAS). summarize: ROUGE-1, -2 and -L, loss and
perplexity. instruct: exact match and loss, and the judge's reward of the corpus instructions.
reward and dpo: accuracy, loss and margin of pairs. rl: rewards, and the KL divergence from the model that
it started from.
image-classify: as classify. caption: exact match (of shapes, by what a caption says), BLEU and loss. Shares
come with their 95 % interval. The run is not changed.

Examples: heedful evaluate runs/demo --split test; heedful evaluate runs/translate --json;
heedful evaluate runs/translate --source test.en --target test.de --output test.out;
heedful evaluate runs/lm --text book.txt; heedful evaluate runs/classify --data test.tsv;
heedful evaluate ./gpt2 --text book.txt --stride 512
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from ..data.lines import is_dataset
from ..decode.options import BEAM, DecodingOptions
from ..errors import BadInput, NotFinite
from ..files import one_line, present
from ..interop.run_folder import RECIPE, STAGES
from ..runs.finished import best_step, check_model, read_run
from ..tasks import find_task
from ..tasks.evaluation import SHOWN
from ..tasks.recipe import changed, parse_settings
from ..tasks.recipe.settings import Recipe
from .shared.drawings import evaluate_painter
from .shared.groups import groups, labels
from .shared.options import Positional, Repeated, arg, decoding_arg
from .shared.terminal import check_free, flat, say, track

if TYPE_CHECKING:
    from ..tasks.evaluation import Measured
    from ..use.model import Model
    from ..use.results import Answer


KEPT = "valid"  # where a run keeps its held-out text, tokenized
PICTURES_KEPT = "data/valid"  # and where its held-out pictures

OPTIONS = ("source", "target", "text", "data", "images")  # which name data of one's own
SEARCHING = ("translate", "summarize", "caption")  # tasks whose answers are searched for, token by token


@dataclass(frozen=True)
class EvaluateOptions:
    """The options of `heedful evaluate`."""

    run: Annotated[str, Positional, arg("RUN|FOLDER")]
    """The folder that `heedful train` wrote; an interrupted run has a model too, once it was tried on
    held-out data. With --text, any language model that loads: also a Hugging Face, PEFT or GGUF folder."""

    split: Annotated[
        Literal["valid", "test", "combinations", "long"] | None, arg("valid|test|combinations|long", "valid")
    ] = None
    """Which held-out part of a built-in corpus: phrasebook has all of these, facts all but combinations,
    instructions all but long, pylib valid, stories and shapes valid and test."""

    source: Annotated[str | None, arg("FILE", "none")] = None
    """translate: sentences to read, one a line, plain or gzip."""

    target: Annotated[str | None, arg("FILE", "none")] = None
    """translate: their translations, line by line."""

    text: Annotated[str | None, arg("PATH", "none")] = None
    """lm, mlm, and language models that are no runs: a text file or a folder of them."""

    context: Annotated[int | None, arg("TOKENS", "the model's")] = None
    """--text, language models: tokens that a window of the text has."""

    stride: Annotated[int | None, arg("TOKENS", "the context")] = None
    """--text, language models: tokens from one window to the next. Every token counts once; with a shorter
    stride it has at least context - stride tokens before it."""

    data: Annotated[str | None, arg("FILE", "none")] = None
    """classify: texts and labels; translate: sentences and translations; summarize: articles and summaries;
    with the columns of the training file. tag, parse: a treebank, CoNLL-U. span: questions; choose: texts
    with choices. instruct: conversations. reward, dpo: pairs. rl: prompts."""

    images: Annotated[str | None, arg("FOLDER", "none")] = None
    """image-classify: a folder with a folder of images for each class, or with IDX files, of which t10k is
    taken. caption: a folder of images with their captions."""

    trees: Annotated[str | None, arg("FILE", "none")] = None
    """translate, where positions come from syntax: the trees of --source, CoNLL-U."""

    output: Annotated[str | None, arg("FILE", "none")] = None
    """translate, summarize, caption, span: write the answers here, line by line as the source has them; a
    file that is not there yet. instruct: a line for each response."""

    beam: Annotated[int | None, decoding_arg("beam", "4", SEARCHING)] = None

    length_alpha: Annotated[float | None, decoding_arg("length_alpha", "0.6", SEARCHING)] = None

    judge: Annotated[str | None, arg("RUN", "none")] = None
    """text-to-image: the model that tells what pictures show: a run of text-to-image with
    train.stage=judge, or, where captions are classes, of image-classify."""

    weights: Annotated[Literal["int8", "fp8"] | None, arg("int8|fp8", "none")] = None
    """Models that write: evaluate twice, as the model is and with the weights that `--weights` of other
    commands rounds to 8 bits. Prints the figures of the rounded model, each beside that of fp32."""

    json: bool = False
    """Print one JSON object instead: every figure in full, the confusion matrix, signatures."""

    batch: int = 32
    """Rows done at once: fewer if memory is short; figures depend on it in their last digits at most."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes the GPU if there is one."""

    set: Annotated[tuple[str, ...], arg("PART.NAME=VALUE", "none"), Repeated] = ()
    """How to read your file, if not as the training file: data.text_column (or pair_column, label_column,
    source_column, target_column, title_column), data.bad_lines (drop or refuse)."""


def evaluate(given: EvaluateOptions) -> None:
    """Measure a run on held-out data and print what it scores."""
    run = Path(given.run)
    if present(run / STAGES):
        if given.weights is not None:
            raise BadInput(
                one_line(f"--weights is for one model, and {run} holds one for each stage: leave it out")
            )
        return evaluate_painter(given)
    alone = given.text is not None and not present(run / RECIPE)
    if alone or given.stride is not None or given.context is not None:
        return evaluate_text(given)
    if present(run / RECIPE):
        say(f"evaluating {run}")  # at once: torch is imported with the run's task
    recipe, facts = read_run(run)
    check_options(given, recipe, run)
    check_model(run, facts)
    source = choose(given, recipe, run)
    check_columns(given, source)
    output = None if given.output is None else new_file(given.output, run)
    described = {"task": recipe.task, "run": str(run), "step": best_step(run)}
    described |= {"weights": given.weights} if given.weights else {}
    say(f"task: {recipe.task}; data: {source.told}")
    measured = measure(given, run, source)
    if given.weights is not None:
        plain, measured = measured, measure(given, run, source, given.weights)
        measured = replace(measured, beside={"fp32": plain.metrics})
    if measured.report.counts:
        say(measured.report.sentence())
    refuse_not_finite(measured)
    if output is not None:
        write_lines(output, measured.lines)
    if given.json:
        print(json.dumps(described | as_json(source, measured), indent=2))
    else:
        parts = figures(measured), labels(measured), groups(measured), signatures(measured)
        print("\n".join([heading(described, source, measured), *(line for part in parts for line in part)]))


def measure(
    given: EvaluateOptions, run: Path, source: EvaluationData, weights: str | None = None
) -> Measured:
    """Load the model, round its weights if asked to, and let its task judge it."""
    import torch

    from ..tasks.evaluation import EvaluationRequest

    assert source.recipe is not None
    model = loaded(given, weights)
    asked = EvaluationRequest(run, source.recipe, given.split or "valid", source.own, given.batch, track)
    if source.recipe.task in SEARCHING:
        how = search(given)
        write = partial(write_answers, model, how)
        asked = replace(asked, write=write, decoding=how.signature(BEAM))
    with torch.no_grad():
        return find_task(source.recipe.task).measure(model.model, asked)


def evaluate_text(given: EvaluateOptions) -> None:
    """Measure how well any language model predicts a text, window by window."""
    check_text_options(given)
    source = EvaluationData(None, {"text": str(given.text)}, True)
    say(f"evaluating {given.run}; data: {source.told}")
    measured = measure_text(given)
    if given.weights is not None:
        measured, plain = measure_text(given, given.weights), measured
        measured = replace(measured, beside={"fp32": plain.metrics})
    refuse_not_finite(measured)
    described = {"task": "lm", "run": given.run, "step": None}
    described |= {"weights": given.weights} if given.weights else {}
    if given.json:
        print(json.dumps(described | as_json(source, measured), indent=2))
    else:
        parts = figures(measured), signatures(measured)
        print("\n".join([heading(described, source, measured), *(line for part in parts for line in part)]))


def check_text_options(given: EvaluateOptions) -> None:
    """Only a text can judge a language model that is no run."""
    if given.text is None:
        raise BadInput("--context and --stride cut windows from a text: give --text PATH too")
    if not is_there(given.text):
        raise BadInput(one_line(f"--text {given.text} is not there"))
    others = {name for name in vars(given) if getattr(given, name) not in (None, ())}
    for name in sorted(others - {"run", "text", "context", "stride", "weights", "json", "batch", "device"}):
        raise BadInput(f"--{name.replace('_', '-')} does not fit --text on a language model: leave it out")


def measure_text(given: EvaluateOptions, weights: str | None = None) -> Measured:
    """The figures of a text, with intervals."""
    from ..data.documents import read_texts
    from ..tasks.evaluation import Measured
    from ..use.perplexity import perplexity

    model = loaded(given, weights)
    text = "".join(read_texts(str(given.text)))
    found = perplexity(model, text, given.context, given.stride, given.batch)
    return Measured(
        found.windows,
        "windows",
        found.metrics,
        intervals=found.intervals,
        signature={"loss": f"windows|context:{found.context}|stride:{found.stride}"},
        counts={"tokens": len(found.nll), "bytes": found.bytes},
    )


def loaded(given: EvaluateOptions, weights: str | None) -> Model:
    """The model. weights: what the matrices of its steps are rounded to, on any device."""
    from ..fast.rounding import round_weights
    from ..use.load import load
    from ..use.model import check_steps

    model = load(given.run, given.device)
    if weights is not None:
        check_steps(model, weights)
        round_weights(model.model, weights)  # type: ignore[arg-type]
    return model


def search(given: EvaluateOptions) -> DecodingOptions:
    """How answers are written: as the commands that people use write them."""
    chosen: dict[str, Any] = {"beam": given.beam, "length_alpha": given.length_alpha, "batch": given.batch}
    how = DecodingOptions(**{name: value for name, value in chosen.items() if value is not None})
    how.width(BEAM)  # what can be seen to be wrong before anything is loaded
    return how


def write_answers(model: Model, how: DecodingOptions, sources: list[Any]) -> list[Answer]:
    """What the command that people use would answer."""
    from ..use.model import WRITERS

    ability = WRITERS[model.task]
    return ability.write(model, ability.encode(model, sources), how, range(len(sources)))


# The data


@dataclass(frozen=True)
class EvaluationData:
    """What the model is judged by."""

    recipe: Recipe | None  # with the user's own files, if there are any; None if the model is no run
    data: dict[str, str]  # which they are
    own: bool

    @property
    def told(self) -> str:
        """In words."""
        if "corpus" in self.data:
            return f"{self.data['corpus']}, split {self.data['split']}"
        files = " and ".join(path for name, path in self.data.items() if name != "part")
        return one_line(f"{self.data['part']} of {files}" if "part" in self.data else files)


def check_options(given: EvaluateOptions, recipe: Recipe, run: Path) -> None:
    """Options that do not fit the task are refused."""
    task, found = recipe.task, find_task(recipe.task)
    ways = found.own_data
    fitting = [option for way in ways for option in way]
    for option in OPTIONS:
        if getattr(given, option) is not None and option not in fitting:
            instead = f"{task}, which takes {either(ways)}"
            raise BadInput(one_line(f"--{option} does not fit {run}, a run of {instead}"))
    if given.trees is not None and (task != "translate" or given.source is None):
        told = "--trees are those of --source: give them together, for a run of translate"
        raise BadInput(one_line(f"{told}, which {run} must be"))
    if given.judge is not None:
        raise BadInput(
            one_line(f"--judge is for all stages of text-to-image together, and {run} is a run of {task}")
        )
    if given.output is not None and not found.writes:
        raise BadInput(one_line(f"--output is for translations and summaries, and {run} is a run of {task}"))
    options = [name for name in ("beam", "length_alpha") if getattr(given, name) is not None]
    if task not in SEARCHING and options:
        option = f"--{options[0].replace('_', '-')} is for {', '.join(SEARCHING)}"
        raise BadInput(one_line(f"{option}, and {run} is a run of {task}"))
    search(given)
    settable = [*(f"data.{name}_column" for name in found.columns), "data.bad_lines"]
    for key in parse_settings(list(given.set)):
        if key not in settable:
            raise BadInput(
                one_line(f"--set {key} does not fit {run}: how its data are read is {', '.join(settable)}")
            )


def choose(given: EvaluateOptions, recipe: Recipe, run: Path) -> EvaluationData:
    """The user's own files, or what the recipe holds out."""
    ways = find_task(recipe.task).own_data
    for key, value in parse_settings(list(given.set)).items():
        recipe = changed(recipe, key, value)
    mine = {option: getattr(given, option) for option in OPTIONS if getattr(given, option) is not None}
    if not mine:
        return EvaluationData(recipe, held_out(given, recipe, run), False)
    if given.split is not None:
        raise BadInput(f"--split is of a built-in corpus: give either it or {either(ways)}")
    way = next((way for way in ways if way.keys() == mine.keys()), None)
    if way is None:
        raise BadInput(f"give {either(ways)}: given is {named(mine)}")
    for option, path in mine.items():
        if not is_there(path):
            raise BadInput(one_line(f"--{option} {path} is not there"))
    settings = {key: "" for other in ways for keys in other.values() for key in keys} | {"data.corpus": ""}
    settings |= {key: path for option, path in mine.items() for key in way[option]}
    settings |= {"data.valid_trees": given.trees or ""} if recipe.task == "translate" else {}
    for key, value in settings.items():
        recipe = changed(recipe, key, value)
    return EvaluationData(recipe, mine, True)


def check_columns(given: EvaluateOptions, source: EvaluationData) -> None:
    """Two files of sentences have no columns."""
    for key in parse_settings(list(given.set)):
        if key.endswith("_column") and source.data.keys() == {"source", "target"}:
            raise BadInput(f"--set {key} is of a table, and {source.told} have no columns: leave it out")


def held_out(given: EvaluateOptions, recipe: Recipe, run: Path) -> dict[str, str]:
    """What the recipe says is held out; files that have gone are named, with what to give instead."""
    d, task = recipe.data, find_task(recipe.task)
    ways = task.own_data
    texts, images = (any(name in way for way in ways) for name in ("text", "images"))
    kept = (texts and (run / KEPT).is_dir()) or (images and (run / PICTURES_KEPT).is_dir())
    if given.set and (d.corpus or kept):
        raise BadInput(f"--set says how a file is read, and none is read here: give {either(ways)} too")
    if d.corpus:
        split, known = given.split or "valid", task.corpora[d.corpus].splits
        if split not in known:
            raise BadInput(f"{d.corpus} has no split {split}; it has {', '.join(known)}")
        return {"corpus": d.corpus, "split": split}
    if given.split is not None:
        raise BadInput(
            one_line(f"--split is of a built-in corpus, and {run} was trained on files: give {either(ways)}")
        )
    files = [{option: value_of(recipe, keys[0]) for option, keys in way.items()} for way in ways]
    data = next((some for some in files if all(some.values())), None)
    usual = {"images": d.images} if images else {"text": getattr(d, "text", "")}
    gone = [path for path in (data or usual).values() if not is_there(path)]
    if gone and not kept:
        raise BadInput(
            one_line(
                f"{run} was judged by {gone[0] or 'data'} that is not there any more: give {either(ways)}"
            )
        )
    return data or usual | {"part": "a tenth" if images else "the last tenth"}


def value_of(recipe: Recipe, key: str) -> str:
    """One setting of a recipe, by its full name."""
    part, _, name = key.partition(".")
    return getattr(getattr(recipe, part), name)


def is_there(path: str) -> bool:
    """A file or folder; whether a data set is there, its reader will say."""
    return is_dataset(path) or os.path.exists(path)


METAVARS = {"text": "PATH", "images": "FOLDER"}


def named(options: Iterable[str]) -> str:
    return " and ".join(f"--{option} {METAVARS.get(option, 'FILE')}" for option in options)


def either(ways: Iterable[Mapping[str, tuple[str, ...]]]) -> str:
    return ", or ".join(map(named, ways))


# The translations


def new_file(name: str, run: Path) -> Path:
    """Where to write: a file that is not there yet, outside the run."""
    path = Path(name)
    check_free(path)
    if path.resolve().is_relative_to(run.resolve()):
        raise BadInput(one_line(f"{path} lies in the run, which stays as it is: give another --output"))
    return path


def write_lines(path: Path, lines: list[str]) -> None:
    """One answer a line, whatever it holds; written aside and renamed."""
    from ..files import write_text

    if present(path):
        raise BadInput(one_line(f"{path} has come to be there meanwhile: it is not overwritten"))
    write_text(path, "".join(f"{flat(line)}\n" for line in lines))
    say(f"{path}: {len(lines):,} lines")


# What is printed


def as_json(source: EvaluationData, measured: Measured) -> dict[str, Any]:
    m = measured
    intervals = {f"{name}_interval": list(ends) for name, ends in m.intervals.items()}
    return {
        "data": {**source.data, **m.counts, "dropped": m.report.counts.total()},
        "examples": m.examples,
        "unit": m.unit,
        "metrics": {**m.metrics, **intervals, **m.details},
        "baselines": {name: {"name": told, "score": score} for name, (told, score) in m.baselines.items()},
        "signature": m.signature,
        **({"beside": m.beside} if m.beside else {}),
    }


def refuse_not_finite(measured: Measured) -> None:
    for name, value in measured.metrics.items():
        if not math.isfinite(value):
            raise NotFinite(f"{name} is {value}, not a number: heedful doctor says which weights are none")


def heading(described: dict[str, Any], source: EvaluationData, measured: Measured) -> str:
    step = "" if described["step"] is None else f", step {described['step']}"
    rounded = f", {described['weights']}" if "weights" in described else ""
    judged = f"{source.told}: {measured.examples:,} {measured.unit}"
    return f"{described['run']}: {described['task']}{step}{rounded}; {judged}"


def figures(measured: Measured) -> list[str]:
    """A line for each metric, with its interval and with what scores without learning."""
    lines = []
    for name, (title, form) in SHOWN.items():
        if name in measured.metrics:
            notes = "; ".join(notes_on(name, form, measured))
            lines.append(f"  {title:<14} {form.format(measured.metrics[name]):>9}  {notes}".rstrip())
    return lines


def signatures(measured: Measured) -> list[str]:
    """What other figures these may be compared with."""
    titles = {name: SHOWN[name][0] if name in SHOWN else name for name in measured.signature}
    return ["", *(f"  {titles[name]}: {text}" for name, text in measured.signature.items())]


def notes_on(name: str, form: str, measured: Measured) -> Iterator[str]:
    if name == "loss":
        yield f"{measured.loss_in} per {measured.per}"
    for other, scores in measured.beside.items():
        if name in scores:
            score = scores[name]
            yield f"{other}: {form.format(score)}{more_told(name, measured.metrics[name], score)}"
    if name in measured.intervals:
        yield "{} to {}".format(*map(form.format, measured.intervals[name]))
    if name in measured.baselines:
        told, score = measured.baselines[name]
        yield f"{told}: {form.format(score)}"


def more_told(name: str, here: float, there: float) -> str:
    """What rounding costs in perplexity, as a share of it."""
    return f" ({here / there - 1:+.2%})" if name == "perplexity" and there else ""
