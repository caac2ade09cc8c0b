"""The command line: one dataclass of options for each command, and nothing heavy until a command runs.

To add a command, write its dataclass (docstrings are its help, defaults its defaults) and a line in `COMMANDS`
that says which function it is for. Nothing here imports torch, so that help answers at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import os
import sys
import traceback
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, Literal

import tyro

from . import __version__
from .errors import BadInput, DiskFull, NoCheckpoint, NotFinite, said_once
from .models import nearest

# Exit codes: what a script can rely on.
DONE, FAILED, BAD_INPUT, NOT_FINITE, NO_CHECKPOINT, DISK_FULL, INTERRUPTED, CLOSED_PIPE = (
    0,
    1,
    2,
    3,
    4,
    5,
    130,
    141,
)
OWN_CODES = {NotFinite: NOT_FINITE, NoCheckpoint: NO_CHECKPOINT, DiskFull: DISK_FULL}


@dataclass(frozen=True)
class Info:
    """What a model is made of, and what it costs to train and to run.

    Shows the architecture as a tree with the parameters of every part, then FLOPs a token and memory, for one
    batch and length. Nothing is downloaded and no weights are read, so the largest model is no slower. Without
    a name: the list of presets.

    Examples: heedful info gpt2; heedful info bert-base --batch 32 --length 128; heedful info gpt3-175b --json
    """

    name: Annotated[
        str | None,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="NAME|FOLDER", help_behavior_hint="(default: list the presets)"),
    ] = None
    """A preset (gpt2, bert-base, t5-small, vit-b16, ...) or a Hugging Face folder with a config.json."""

    batch: int = 1
    """Rows in a batch: activations and the cache grow with it."""

    length: Annotated[
        int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: the context, or 512)")
    ] = None
    """Tokens in a row; of an encoder-decoder, tokens of the target."""

    source_length: Annotated[
        int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: as --length)")
    ] = None
    """Tokens an encoder-decoder reads."""

    precision: Literal["fp32", "bf16"] = "fp32"
    """How numbers are multiplied: fp32, or bf16 (autocast: weights, norms and the optimiser stay in fp32)."""

    json: bool = False
    """Print one JSON object instead, sizes in bytes."""


@dataclass(frozen=True)
class Demo:
    """Train a small translator on the built-in phrasebook, and show what it learned.

    About two minutes on a laptop. Prints how many held-out sentences it translates right, beside what a dictionary
    gets, and draws which source word each translated word came from.

    Example: heedful demo
    """

    seed: int = 0
    """Another seed, other weights and another order of the examples."""

    steps: Annotated[
        int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: the phrasebook's)")
    ] = None
    """Fewer steps for a quicker, worse translator."""

    run: Annotated[str | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: runs/demo)")] = None
    """Where the run goes: a folder that is not there yet."""


@dataclass(frozen=True)
class Train:
    """Train a model on your own files, or on a corpus that is built in.

    Writes a run folder: the recipe, the model, its tokenizer, what was measured, and checkpoints from which the run
    goes on exactly where it was, whatever stopped it. Ctrl-C saves and stops; --resume goes on. On several GPUs or
    machines, the same command under torchrun: torchrun --nproc-per-node 4 -m -- heedful train ...

    Where a file is asked for, hf:NAME[:CONFIG][@SPLIT][#COLUMN] is a Hugging Face data set, if the package datasets
    is installed: --text hf:wikitext:wikitext-2-raw-v1@train#text, --data hf:imdb@train.

    Examples: heedful train translate --corpus phrasebook --minutes 3;
    heedful train translate --source a.en --target a.de --valid-source b.en --valid-target b.de;
    heedful train lm --text books/ --size small --steps 5000; heedful train --resume runs/translate;
    heedful train mlm --text books/; heedful train classify --data a.tsv --valid-data b.tsv --from runs/mlm
    """

    task: Annotated[
        Literal["translate", "lm", "mlm", "classify"], tyro.conf.Positional, tyro.conf.arg(metavar="TASK")
    ] = "translate"
    """translate: sentence pairs. lm: predict the next token of a text. mlm: fill in the blanks of a text.
    classify: give a text, or two, one of several labels."""

    corpus: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """A built-in corpus: phrasebook (translate), pylib (lm, mlm)."""

    source: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """Sentences to read, one a line, plain or gzip."""

    target: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """Their translations, line by line."""

    valid_source: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """Held-out sentences to judge the model by."""

    valid_target: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """Their translations."""

    text: Annotated[str | None, tyro.conf.arg(metavar="PATH")] = None
    """A text file, a folder of them, or JSON lines (.jsonl) with a "text"; the last tenth is held out."""

    data: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """A table: tab-separated columns under a header, or JSON objects, one a line. classify: sentence or text, and
    label. translate: source and target. --set data.text_column=NAME and the like name other columns."""

    valid_data: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """Held-out rows to judge the model by."""

    from_: Annotated[str | None, tyro.conf.arg(name="from", metavar="FOLDER")] = None
    """The model to start from: a run, or a Hugging Face folder of BERT or GPT-2; its tokenizer comes along."""

    run: Annotated[str | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: runs/TASK)")] = None
    """Where the run goes: a folder that is not there yet."""

    resume: Annotated[str | None, tyro.conf.arg(metavar="RUN")] = None
    """Go on with an interrupted run; its recipe says everything else."""

    size: Literal["tiny", "small", "base", "large"] = "small"
    """How large the model is: 2 layers of 128, 4 of 256, 6 of 512, 6 of 1024."""

    steps: Annotated[
        int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: 10000; classify: 1000)")
    ] = None
    """How many steps to make."""

    minutes: Annotated[float | None, tyro.conf.arg(metavar="FLOAT")] = None
    """Instead of steps: as many as fit, measured before the first."""

    seed: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: 0)")] = None
    """Another seed, other weights and another order of the examples."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes the GPU if there is one."""

    precision: Annotated[
        Literal["fp32", "bf16", "fp16"] | None,
        tyro.conf.arg(help_behavior_hint="(default: fp32 on a CPU, bf16 on a GPU)"),
    ] = None
    """How numbers are multiplied; the loss is always computed in fp32."""

    compile: bool = False
    """Compile the model's blocks with torch.compile: slower to begin, faster from then on; pays for long runs on a GPU."""

    find_rate: bool = False
    """Only try learning rates, a hundred steps in all, and say which is good to begin with."""

    set: Annotated[
        tuple[str, ...],
        tyro.conf.arg(metavar="PART.NAME=VALUE", help_behavior_hint="(default: none)"),
        tyro.conf.UseAppendAction,
    ] = ()
    """Any other setting, such as model.heads=8 or checkpoint.every=100; may be given several times."""


@dataclass(frozen=True)
class Evaluate:
    """What a trained model scores on held-out data.

    By default on all the held-out data that the run's recipe names (training itself tries only a part, evaluate.rows);
    or on files of your own. translate: BLEU with its signature, exact match, loss and perplexity. lm: loss, perplexity
    and bits per byte. mlm: the same of the blanks, and how many are filled in right. classify: accuracy, F1 of all labels
    and of each. Shares come with their 95 % interval. The run is not changed.

    Examples: heedful evaluate runs/demo --split test; heedful evaluate runs/translate --json;
    heedful evaluate runs/translate --source test.en --target test.de --output test.out;
    heedful evaluate runs/lm --text book.txt; heedful evaluate runs/classify --data test.tsv
    """

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The folder that `heedful train` wrote; an interrupted run has a model too, once it was tried on held-out data."""

    split: Annotated[
        Literal["valid", "test", "combinations", "long"] | None,
        tyro.conf.arg(metavar="valid|test|combinations|long", help_behavior_hint="(default: valid)"),
    ] = None
    """Which held-out part of a built-in corpus: phrasebook has all of these, pylib has valid."""

    source: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """translate: sentences to read, one a line, plain or gzip."""

    target: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """translate: their translations, line by line."""

    text: Annotated[str | None, tyro.conf.arg(metavar="PATH")] = None
    """lm, mlm: a text file or a folder of them."""

    data: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """classify: texts and labels; translate: sentences and translations; with the columns of the training file."""

    output: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """translate: write the translations here, line by line as the source has them; a file that is not there yet."""

    json: bool = False
    """Print one JSON object instead: every figure in full, the confusion matrix, signatures."""

    batch: int = 32
    """Rows done at once: fewer if memory is short; figures depend on it in their last digits at most."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes the GPU if there is one."""

    set: Annotated[
        tuple[str, ...],
        tyro.conf.arg(metavar="PART.NAME=VALUE", help_behavior_hint="(default: none)"),
        tyro.conf.UseAppendAction,
    ] = ()
    """How to read your file, if not as the training file: data.text_column (or pair_column, label_column,
    source_column, target_column), data.bad_lines (drop or refuse)."""


@dataclass(frozen=True)
class Look:
    """What a model attends to in one input: a heat map here, and a picture in a file.

    Of a translator: which words of the source each word of its translation looks at. Of a language model or an
    encoder: which tokens each token looks at. Without --layer and --head: a table of all heads, the most telling
    one as a heat map, and all of them in the picture. --query follows one word through the formula: its score with
    every key, scaled, masked, made weights, and what it takes home. --positions shows how the model knows order.

    RUN is what `heedful train` wrote, or a Hugging Face folder. Layers and heads are counted from 1.

    Examples: heedful look runs/demo "Their small cat was a fast animal.";
    heedful look runs/demo "Their small cat was a fast animal." --head best --output alignment.svg;
    heedful look runs/demo "Their small cat was a fast animal." --query chat;
    heedful look runs/lm "def f(x):" --layer 1 --head 2 --output f.png; heedful look --positions runs/demo
    """

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The folder of a run, or a Hugging Face folder."""

    text: Annotated[
        str | None,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="TEXT", help_behavior_hint="(default: none, with --positions)"),
    ] = None
    """What the model reads; for a model without a tokenizer, token numbers."""

    target: Annotated[
        str | None, tyro.conf.arg(metavar="TEXT", help_behavior_hint="(default: the model's own)")
    ] = None
    """What an encoder-decoder is to have written, instead of its own greedy translation."""

    which: Annotated[
        Literal["self", "cross", "encoder"] | None,
        tyro.conf.arg(
            metavar="self|cross|encoder",
            help_behavior_hint="(default: cross in an encoder-decoder, else self)",
        ),
    ] = None
    """Whose attention: cross, of what is written to what is read; self, of tokens to tokens of the same text (in an
    encoder-decoder, of the target); encoder, of the source to itself."""

    layer: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: all)")] = None
    """One layer, counted from 1."""

    head: Annotated[
        str | None, tyro.conf.arg(metavar="INT|mean|best", help_behavior_hint="(default: all)")
    ] = None
    """One head, counted from 1; mean: of a layer's heads; best: the head that aligns best, where gold alignments
    exist (phrasebook), else the one whose gaze tells most of who is looking, in bits: H(mean row) - mean H(row)."""

    query: Annotated[
        str | None, tyro.conf.arg(metavar="WORD|INT", help_behavior_hint="(default: no table)")
    ] = None
    """Step by step for one row, given by its word or counted from 1; by the best head unless --head says another."""

    positions: bool = False
    """Instead of a text: draw the model's position table, its rotary angles, or the bias of its scores."""

    length: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: 48)")] = None
    """How many positions to draw."""

    output: Annotated[
        str | None,
        tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: attention.svg, or the next free name)"),
    ] = None
    """The picture, .svg or .png (which needs Pillow); a file that is not there yet."""

    json: bool = False
    """Print one JSON object instead, with all the numbers; a picture is then drawn only if --output names it."""


@dataclass(frozen=True)
class Doctor:
    """Whether a model is sound: self-checks, each with its number and what to do about it.

    Nobody sees the future (by gradient), padding changes nothing, a batch gives what its rows give alone, decoding
    with a cache gives what it gives without, the tokenizer gives texts back, a fresh model of these sizes starts near
    ln V, weights are finite, heads do something, and a run is better than guessing on its own held-out data. Works on
    runs of every task and on Hugging Face folders; changes nothing. Exit code 3 if a check did not hold.

    Examples: heedful doctor runs/demo; heedful doctor ./gpt2 --json
    """

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN|FOLDER")]
    """The folder of a run, or a Hugging Face folder."""

    seed: int = 0
    """Another seed, other random tokens to check with."""

    json: bool = False
    """Print one JSON object instead."""


@dataclass(frozen=True, kw_only=True)
class Lines:
    """What every command that answers texts line by line is given."""

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The folder of a run, or a Hugging Face folder."""

    text: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[TEXT ...]", help_behavior_hint="(default: the lines of stdin)"),
    ] = ()
    """One text to answer, in one word or several; what begins with a dash goes through stdin."""

    json: bool = False
    """Print one JSON object a line instead, with everything that is known of the answer."""

    batch: int = 32
    """Texts done at once: fewer if memory is short; answers do not depend on it."""

    bad_lines: Literal["blank", "refuse"] = "blank"
    """A line that is not UTF-8, or too long: blank names it on stderr, answers it by an empty line ("error" in JSON)
    and goes on; refuse stops there."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes the GPU if there is one."""


@dataclass(frozen=True, kw_only=True)
class Writes:
    """What every command that writes is given."""

    beam: Annotated[
        int | None,
        tyro.conf.arg(metavar="INT", help_behavior_hint="(default: translate 4, generate and --sample 1)"),
    ] = None
    """Hypotheses kept side by side: 1 is greedy, which always takes the likeliest token; more is slower, and often
    better."""

    n_best: Annotated[int, tyro.conf.arg(metavar="INT")] = 1
    """Answers to each text, best first, as many as the beam is wide at most: above 1, each on a line of its own
    after its score and a tab."""

    length_penalty: Annotated[
        Literal["gnmt", "power"] | None,
        tyro.conf.arg(metavar="gnmt|power", help_behavior_hint="(default: gnmt)"),
    ] = None
    """What a hypothesis' log-probability is divided by: gnmt is ((5 + length) / 6)^alpha, power is length^alpha."""

    alpha: Annotated[float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="(default: 0.6)")] = None
    """The exponent of the length penalty: 0 for none, more for longer answers."""

    stopping: Annotated[
        Literal["heuristic", "first_B", "exact"] | None,
        tyro.conf.arg(metavar="heuristic|first_B|exact", help_behavior_hint="(default: heuristic)"),
    ] = None
    """When a beam is done: first_B, as soon as it has as many hypotheses as it is wide; heuristic, when none alive
    would beat them as it stands; exact, when none alive ever could."""

    coverage: Annotated[float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="(default: 0)")] = (
        None
    )
    """Weight of a penalty on words of the source that the answer never looked at; encoder-decoders only."""

    groups: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: 1)")] = None
    """Beams side by side, each of which --diversity makes differ from those before it."""

    diversity: Annotated[float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="(default: 0)")] = (
        None
    )
    """What it costs a group to write what another has written at the same place."""

    sample: bool = False
    """Draw every token at random, by its probability, instead of searching."""

    temperature: Annotated[
        float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="(default: 1)")
    ] = None
    """With --sample: below 1 for more of the likeliest, above 1 for more of the rest."""

    top_k: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: all)")] = None
    """With --sample: draw from so many of the likeliest tokens only."""

    top_p: Annotated[float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="(default: 1)")] = None
    """With --sample: draw from the likeliest tokens that together have this share of the probability."""

    min_p: Annotated[float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="(default: 0)")] = None
    """With --sample: draw from tokens at least this many times as likely as the likeliest."""

    seed: int = 0
    """With --sample: another seed, other answers; the same seed, the same answer to the same line."""

    repetition_penalty: Annotated[
        float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="(default: 1)")
    ] = None
    """Above 1: less of every token that was written before."""

    no_repeat_ngram: Annotated[
        int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: none)")
    ] = None
    """Never so many tokens in a row twice."""

    forbid: Annotated[
        tuple[str, ...],
        tyro.conf.arg(metavar="WORD", help_behavior_hint="(default: none)"),
        tyro.conf.UseAppendAction,
    ] = ()
    """A word never to write, as the vocabulary would cut it up; may be given several times."""


@dataclass(frozen=True, kw_only=True)
class Translate(Lines, Writes):
    """Translate lines of text with a model that was trained to.

    Reads one sentence a line and writes its translation on the same line of stdout, however many lines there are.
    An empty line is answered by an empty line. A model that summarises, or does anything else from text to text, is
    used in the same way.

    Examples: heedful translate runs/demo "I am a student."; heedful translate runs/demo < in.en > out.fr;
    heedful translate runs/demo --beam 8 --alpha 1 --length-penalty power < in.en;
    heedful translate runs/demo --n-best 3 --json < in.en; heedful translate ./opus-mt --prefix "Je" < in.en
    """

    prefix: Annotated[str, tyro.conf.arg(metavar="TEXT", help_behavior_hint="(default: none)")] = ""
    """What every translation begins with."""

    longest: Annotated[
        int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: twice the source and 20)")
    ] = None
    """Tokens of a translation at most."""


@dataclass(frozen=True, kw_only=True)
class Generate(Lines, Writes):
    """Go on writing where a text breaks off, with a language model.

    Prints what comes after each text, without the text. On a terminal, a single text is shown token by token as it
    is written. From stdin, every line is a text, and line ends in an answer become spaces (in JSON they stay).

    Examples: heedful generate runs/lm "def read("; heedful generate runs/lm --sample --temperature 0.8 "Once upon";
    heedful generate ./gpt2 --sample --top-p 0.9 --longest 200 --seed 7 < prompts.txt;
    heedful generate ./gpt2-xl --draft ./gpt2 "The cat"
    """

    draft: Annotated[str | None, tyro.conf.arg(metavar="FOLDER", help_behavior_hint="(default: none)")] = None
    """A smaller model of the same vocabulary that guesses ahead: the same text (with --sample, the same
    distribution), sooner where it guesses well."""

    ahead: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: 4)")] = None
    """With --draft: how many tokens it guesses at a time."""

    longest: Annotated[int, tyro.conf.arg(metavar="INT")] = 100
    """Tokens to write at most."""


@dataclass(frozen=True, kw_only=True)
class Fill(Lines):
    """Fill in the blanks of texts, with a masked language model.

    Every [MASK] in a line is a blank. Prints the line with the likeliest word in each; --json has the next best and
    their probabilities.

    Examples: heedful fill runs/mlm "the [MASK] sat on the mat"; heedful fill ./bert-base --top 3 --json < in.txt
    """

    top: int = 5
    """With --json: words for each blank, best first."""


@dataclass(frozen=True, kw_only=True)
class Classify(Lines):
    """Label texts with a model that was trained to tell labels apart.

    Prints the likeliest label of each line; --json has the probability of every label. Where the model was trained
    on pairs, a tab stands between the two texts of a line.

    Examples: heedful classify runs/classify "a good film"; heedful classify runs/classify --json < reviews.txt;
    paste reviews.txt <(heedful classify runs/classify < reviews.txt)
    """


@dataclass(frozen=True, kw_only=True)
class Embed(Lines):
    """Turn texts into vectors: what the last layer makes of each.

    Prints one vector a line, its numbers separated by spaces.

    Examples: heedful embed runs/mlm "a good film"; heedful embed ./minilm --normalise < in.txt > vectors.txt
    """

    pooling: Literal["mean", "class"] = "mean"
    """mean: of all tokens. class: the token that stands for all, [CLS] of an encoder, the last of a decoder that
    classifies."""

    normalise: bool = False
    """Make every vector one long, so that the product of two is their cosine."""


# Each command: its options, and the function that does it, imported when it is called.
COMMANDS: dict[str, tuple[type, str]] = {
    "classify": (Classify, "heedful.text_commands:classify"),
    "demo": (Demo, "heedful.train_command:demo"),
    "doctor": (Doctor, "heedful.doctor:doctor"),
    "embed": (Embed, "heedful.text_commands:embed"),
    "evaluate": (Evaluate, "heedful.evaluate_command:evaluate"),
    "fill": (Fill, "heedful.text_commands:fill"),
    "generate": (Generate, "heedful.text_commands:generate"),
    "info": (Info, "heedful.commands:info"),
    "look": (Look, "heedful.look_command:look"),
    "train": (Train, "heedful.train_command:train"),
    "translate": (Translate, "heedful.text_commands:translate"),
}

HELP = f"""\
usage: heedful COMMAND [OPTIONS]

heedful {__version__}: the Transformer as the lectures teach it.

commands:
{{commands}}

options:
  -h, --help  this text; `heedful COMMAND --help` explains a command and its options
  --version   the version, and nothing else
  --print-completion bash|zsh|fish
              what makes a shell complete commands, options and files: for bash,
              put `source <(heedful --print-completion bash)` into ~/.bashrc

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage or input,
3 a check did not hold or a number was not finite, 4 no whole checkpoint, 5 disk full, 75 interrupted and saved.
HEEDFUL_DEBUG=1 shows where an error came from."""


def main(args: Sequence[str] | None = None) -> int:
    """Run one command; every ending is an exit code and at most one sentence on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="replace"
            )  # a terminal without accents shows question marks, not a traceback
    try:
        code = run(list(sys.argv[1:] if args is None else args))
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except SystemExit as stop:  # tyro's, after printing help
        return stop.code if isinstance(stop.code, int) else DONE
    except BrokenPipeError:
        give_up_stdout()
        return CLOSED_PIPE
    except KeyboardInterrupt:
        return complain("interrupted", INTERRUPTED)
    except Exception as error:  # noqa: BLE001 (the last line of defence: no traceback reaches the user)
        if os.environ.get("HEEDFUL_DEBUG") == "1":
            traceback.print_exc()
        return complain(*verdict(error))


def run(args: list[str]) -> int:
    """Find the command, read its options, do it."""
    if not args:
        print(overview(), file=sys.stderr)
        return BAD_INPUT
    command, *rest = args
    if command in ("-h", "--help", "help"):
        print(overview())
    elif command == "--version":
        print(f"heedful {__version__}")
    elif command.partition("=")[0] == "--print-completion":
        shell = [command.partition("=")[2]] if "=" in command else rest
        print(import_module("heedful.completion").script(*shell[:1]))
    elif command.startswith("-"):
        known = [
            "--help",
            "--version",
            "--print-completion",
            *(f"{name} {command}" for name in COMMANDS if command in options(name)),
        ]
        raise BadInput(f"there is no option {command} before a command{nearest(command, known)}")
    elif command not in COMMANDS:
        raise BadInput(f'there is no command "{command}"{nearest(command, COMMANDS)}')
    else:
        with said_once():
            given = parse(command, rest)
        module, name = COMMANDS[command][1].split(":")
        return getattr(import_module(module), name)(given) or DONE
    return DONE


def overview() -> str:
    """The help of heedful itself: each command with the first line of its own help."""
    width = max(map(len, COMMANDS))
    lines = [
        f"  {name:<{width}}  {(kind.__doc__ or '').partition(chr(10))[0]}"
        for name, (kind, _) in COMMANDS.items()
    ]
    return HELP.format(commands="\n".join(lines))


def parse(command: str, args: list[str]) -> Any:
    """The options of a command, by tyro; what it refuses is said again in one sentence."""
    kind, complaint = COMMANDS[command][0], io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                kind, prog=f"heedful {command}", args=args, config=(tyro.conf.FlagCreatePairsOff,)
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        sentence = fault(command, args)
        raise BadInput(sentence or complaint.getvalue().strip()) from None


# What is wrong with the options given, in words. tyro decides that something is; this says what.


def options(command: str) -> dict[str, Any]:
    """{"--option": its type} of a command; positional ones are left out."""
    hints = typing.get_type_hints(COMMANDS[command][0], include_extras=True)
    return {option(name): hint for name, hint in hints.items() if not is_positional(hint)}


def option(name: str) -> str:
    """A field as it is typed; `from_` has its underscore because `from` is Python's own word."""
    return f"--{name.rstrip('_').replace('_', '-')}"


def is_positional(hint: Any) -> bool:
    return tyro.conf.Positional in getattr(hint, "__metadata__", ())


def fault(command: str, args: list[str]) -> str | None:
    """The first thing wrong, as a sentence; None if nothing is found here."""
    known, waiting, positional = options(command), list(args), []
    while waiting:
        token = waiting.pop(0)
        if not token.startswith("-") or token == "-":
            positional.append(token)
            continue
        name, equals, value = token.partition("=")
        name = name.replace("_", "-")
        if name not in known:
            return f"{command} has no option {name}{nearest(name, known)}"
        kinds = kinds_of(known[name])
        if bool in kinds:
            if equals:
                return f"{name} stands alone, without a value"
            continue
        if not equals:
            if not waiting or waiting[0].startswith("--"):
                return f"{name} needs a value: {wanted(kinds)}"
            value = waiting.pop(0)
        if not fits(value, kinds):
            return f"{name} takes {wanted(kinds)}, not {value!r}{suggestion(value, kinds)}"
    return miscounted(command, positional)


def miscounted(command: str, found: list[str]) -> str | None:
    """Too many or too few words that belong to no option, or one that is none of those to choose from."""
    fields = dataclasses.fields(COMMANDS[command][0])
    hints = typing.get_type_hints(COMMANDS[command][0], include_extras=True)
    places = [f for f in fields if option(f.name) not in options(command)]
    endless = bool(places) and typing.get_origin(kinds_of(hints[places[-1].name])[0]) is tuple
    if len(found) > len(places) and not endless:
        return f'{command} does not know what "{found[len(places)]}" is for: see `heedful {command} --help`'
    for place, value in zip(places, found, strict=False):
        kinds = kinds_of(hints[place.name])
        if not fits(value, kinds):
            return f"{place.name.upper()} is {wanted(kinds)}, not {value!r}{suggestion(value, kinds)}"
    missing = [f.name for f in places[len(found) :] if f.default is dataclasses.MISSING]
    return f"{command} needs a {missing[0].upper()}: see `heedful {command} --help`" if missing else None


def kinds_of(hint: Any) -> list[Any]:
    """What values may be: types, or the choices of a Literal."""
    if typing.get_origin(hint) is Annotated:
        return kinds_of(typing.get_args(hint)[0])
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [kind for each in typing.get_args(hint) for kind in kinds_of(each) if kind is not type(None)]
    return list(typing.get_args(hint)) if typing.get_origin(hint) is Literal else [hint]


def fits(value: str, kinds: list[Any]) -> bool:
    return any(value == kind if isinstance(kind, str) else converts(value, kind) for kind in kinds)


def converts(value: str, kind: Any) -> bool:
    """Numbers are tried; of anything else tyro knows better."""
    try:
        return kind not in (int, float) or kind(value) is not None
    except ValueError:
        return False


def wanted(kinds: list[Any]) -> str:
    names = {int: "a whole number", float: "a number"}
    return " or ".join(kind if isinstance(kind, str) else names.get(kind, "a value") for kind in kinds)


def suggestion(value: str, kinds: list[Any]) -> str:
    """The nearest choice, where there are choices and one is near."""
    ending = nearest(value, [kind for kind in kinds if isinstance(kind, str)])
    return ending if "did you mean" in ending else ""


# Endings.


def verdict(error: Exception) -> tuple[str, int]:
    """What to say of an error, and the exit code. Whoever raised a ValueError in heedful wrote it to be read."""
    for kind, code in OWN_CODES.items():
        if isinstance(error, kind):
            return str(error), code
    if isinstance(error, OSError):
        code = DISK_FULL if error.errno == errno.ENOSPC else BAD_INPUT if error.filename else FAILED
        if code == DISK_FULL:
            give_up_stdout()
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}", code
    if isinstance(error, BadInput) or (isinstance(error, ValueError) and ours(error)):
        return str(error), BAD_INPUT
    if isinstance(error, MemoryError) or "allocate" in str(error) or "out of memory" in str(error):
        return "there is not enough memory: a smaller model, fewer tokens or rows at a time take less", FAILED
    return f"{type(error).__name__}: {error} (HEEDFUL_DEBUG=1 shows where)", FAILED


def ours(error: Exception) -> bool:
    """Raised by heedful's own code, not by something it called."""
    last = list(traceback.walk_tb(error.__traceback__))[-1][0]
    return last.f_globals.get("__name__", "").partition(".")[0] == __package__


def complain(sentence: str, code: int) -> int:
    print(f"error: {sentence}" if code != INTERRUPTED else sentence, file=sys.stderr)
    return code


def give_up_stdout() -> None:
    """Nobody reads stdout any more: without this, Python would try to write the rest once more as it ends."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
