"""Broken calls of every command that answers: one table of what is typed, what is wrong with it, and what
is said.

Each ends with its exit code, one sentence on stderr that names the thing and what to do, nothing half-said
on stdout, and every file as it was. "…" in a sentence stands for whatever is there.
"""

import io
import json
import math
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers.command_lines import world  # noqa: F401 (fixtures)
from helpers.refusals import JARGON, at_most
from helpers.snapshots import snapshot
from safetensors.torch import load_file, save_file

from heedful.cli.main import main, overview
from heedful.cli.shared.commands import COMMANDS
from heedful.tasks.recipe.settings import TASKS
from heedful.use.wording import LONGEST

LINES = b"the ba sat\n"  # on stdin, unless a row says otherwise
# What may be said before the sentence.
PROGRESS = ("evaluating ", "Training a small ", "run: ", "warning: ", "weighing ", "exporting ", "importing ")
GPT2 = "hf-gpt2/config.json"
ELSEWHERE = {
    "train",
    "bench",
    "paint",
}  # whose broken calls are in test_bad_input.py, test_bench.py and test_text_to_image.py


# Ways to break something: each is done in the folder where the command is given.


def intact():
    pass


def written(name, content=b""):
    return lambda: Path(name).write_bytes(content)


def removed(name):
    return lambda: Path(name).unlink()


def cut(name):
    """The end is missing, as after a download that broke off."""
    return lambda: Path(name).write_bytes(Path(name).read_bytes()[:-40])


def changed(name, **settings):
    """Other values in a JSON file; part__name is a value inside a part."""

    def damage():
        found = json.loads(Path(name).read_text())
        for key, value in settings.items():
            part, _, inner = key.rpartition("__")
            (found[part] if part else found)[inner] = value
        Path(name).write_text(json.dumps(found))

    return damage


def in_its_place(name, make):
    """Something else under the name of a file."""

    def damage():
        if Path(name).exists():
            Path(name).unlink()
        make(Path(name))

    return damage


def folder(path):
    path.mkdir()


def link_to_itself(path):
    path.symlink_to(path.name)


def both(*damages):
    return lambda: [damage() for damage in damages]


def swapped(a, b):
    """One file for another of its kind."""
    return lambda: shutil.copy(a, b)


def no_numbers(run):
    """Weights none of which is a number, and nothing that vouches for others."""

    def damage():
        weights = load_file(f"{run}/model.safetensors")
        save_file({name: weight * math.nan for name, weight in weights.items()}, f"{run}/model.safetensors")
        Path(run, "model.json").unlink()

    return damage


def header(content):
    """A safetensors file with this header and nothing behind it."""
    text = json.dumps(content).encode()
    return written("hf-gpt2/model.safetensors", struct.pack("<Q", len(text)) + text)


# The table


@dataclass(frozen=True)
class Row:
    line: str | list[str]  # what is typed; words, where they are no plain text
    sentence: str
    broken: Callable[[], object] = intact
    code: int = 2
    stdin: bytes = LINES
    out: str = ""  # a pattern

    @property
    def words(self):
        return shlex.split(self.line) if isinstance(self.line, str) else self.line


def row(what, *values, **more):
    return pytest.param(Row(*values, **more), id=what)


NO_FOLDER = "is not a folder; a model is a folder with a config.json and its weights"
NO_CONFIG = "config.json is missing: a model is a folder with a config.json and its weights"
NO_MODEL = (
    "has no model yet (a run writes it every 500 steps and at its end): go on with `heedful train --resume"
)
NO_JSON = "is not valid JSON: Expecting property name enclosed in double quotes: …; mend it, or put a whole copy there"
DAMAGED = "is damaged, or …model.json is: the one has the SHA-256 …, and the other speaks of …; put back a copy of both"
OWN_DATA = "--source FILE and --target FILE, or --data FILE"
TORN = "is not a whole safetensors file: …; it may be cut short or altered, fetch it again"
NO_NUMBER = "gives what is not a number: heedful doctor says which of its weights"
BEAM_ONLY = "is for beam search: ask for a --beam of 2 or more"
DRAWN_ONLY = "does nothing unless tokens are drawn: ask for --sample too"

TWO = "lm --text text --set data.vocab=char --set model.context=12 --size tiny --variant a --variant 'b: model.width=8'"

TABLE = [
    # Before a command
    row("no command", "", "no command was given: the commands are above"),
    row("a command misspelled", "tarnslate", 'there is no command "tarnslate"; did you mean "translate"?'),
    row("a command like no other", "zzz", 'there is no command "zzz"; there are …, classify, compare, demo, …, translate'),
    row("an empty command", "''", 'there is no command ""; there are …'),
    row("a command that would color the terminal", ["\x1b[31m"], r"there is no command '\x1b[31m'; there are …"),
    row("a command without end", "x" * 9999, "there is no command 'xxxxxxxxxxxx...xxxxxxxxxxxxx'; there are …"),
    row("an option before the command", "--batch 4 info gpt2", 'there is no option --batch before a command; did you mean "tag --batch"?'),
    row("an option of nothing", "-v", "there is no option -v before a command; there are --help, --version, --print-completion"),
    row("completion for no shell", "--print-completion", '--print-completion takes bash, zsh, fish, not ""'),
    row("completion for another shell", "--print-completion=fsh", '--print-completion takes bash, zsh, fish, not "fsh"; did you mean "fish"?'),
    # How options are typed
    row("an option misspelled", "embed run-lm --normalise a", 'embed has no option --normalise; did you mean "--normalize"?'),
    row("an option of another command", "fill run-mlm --beam 2", 'fill has no option --beam; did you mean "--batch"?'),
    row("an option of the parser's own", "info --tyro-write-completion bash text", "info has no option --tyro-write-completion; there are …"),
    row("an option cut short", "info gpt2 --bat 3", 'info has no option --bat; did you mean "--batch"?'),
    row("an option without its number", "info gpt2 --batch", "--batch needs a value: a whole number"),
    row("an option without its text", "generate run-lm --forbid", "--forbid needs a value: WORD"),
    row("a value with a dash", "look run-lm the --target -x", "--target needs a value: TEXT; one that begins with a dash is written --target=-x"),
    row("a flag with a value", "translate run-translate --json=1", "--json stands alone, without a value"),
    row("a flag denied", "info gpt2 --no-json", 'info has no option --no-json; did you mean "--json"?'),
    row("a number in words", "doctor run-lm --seed one", "--seed takes a whole number, not 'one'"),
    row("a number with a point", "evaluate run-lm --batch 1.5", "--batch takes a whole number, not '1.5'"),
    row("a number without end", f"info gpt2 --batch {'9' * 5000}", "--batch takes a whole number, not '999999999999...9999999999999'"),
    row("no number for a number", "info gpt2 --length None", "--length takes a whole number, not 'None'"),
    row("a choice that is none", "look run-translate the --which decoder", "--which takes self or cross or encoder, not 'decoder'; did you mean \"encoder\"?"),
    row("a word too many", "info gpt2 bert-base", 'info does not know what "bert-base" is for: see `heedful info --help`'),
    row("a text in two places", "translate run-translate the --beam 2 ba", 'translate takes the words of a text together, and "ba" stands apart: put options after them'),
    *(row(f"{command} of nothing", command, f"{command} needs a RUN: see `heedful {command} --help`") for command in COMMANDS if command not in ("info", "demo", "compare", "import", *ELSEWHERE)),
    # Folders
    *(row(f"{command} of what is not there", f"{command} gone [MASK]", f"gone {NO_FOLDER}") for command in ("translate", "generate", "fill", "classify", "tag", "answer", "parse", "summarize", "caption", "embed", "look")),
    row("an article that is no JSON", "summarize run-summarize --bad-lines refuse", "line 1: not a JSON object {...}", stdin=b"{\n"),
    row("an object without an article", "summarize run-summarize --bad-lines refuse", 'line 2: there is no "article" or "source" or "document" or "text"', stdin=b'\n{"summary": "the"}\n'),
    row("an article that says nothing", ["summarize", "run-summarize", '{"article": []}'], '"article" is empty'),
    row("an article without end", "summarize run-summarize --bad-lines refuse", "line 1: longer than 1000000 characters: cut the line", stdin=b"x" * 1_000_001),
    row("articles for a translator", "summarize run-translate the", "run-translate is an encoder-decoder, which cannot summarize; it can translate, stream, score, embed and look"),
    row("sentences for a summarizer", "translate run-summarize the", "run-summarize is an encoder-decoder, which cannot translate; it can summarize, score, embed and look"),
    row("a picture for a classifier of texts", "caption run-classify the", "run-classify is an encoder, which cannot caption; it can classify, embed and look"),
    row("no pictures at a time", "caption run-classify the --batch 0", "--batch must be a whole number from 1 to 100,000, not 0"),
    row("a beam of nothing for a caption", "caption run-classify the --beam 0", "--beam must be a whole number from 1 to 1,000, not 0"),
    row("half an option of a caption", "caption run-classify the --temperature 2", f"--temperature {DRAWN_ONLY}"),
    row("half an option of a summary", "summarize run-summarize the --temperature 2", f"--temperature {DRAWN_ONLY}"),
    row("import of nothing", "import", "import needs a FOLDER: see `heedful import --help`"),
    row("import to nowhere", "import hf-gpt2", "import needs an OUT: see `heedful import --help`"),
    row("import of what is not there", "import gone new", f"gone {NO_FOLDER}"),
    row("import over a file", "import hf-gpt2 text", "text is a file: models go into folders, so give a name that is free"),
    row("import over itself", "import hf-gpt2 hf-gpt2 --replace", "hf-gpt2 is to be read, and hf-gpt2 written over it: give another OUT"),
    row("import of weights cut short", "import hf-gpt2 new", f"hf-gpt2/model.safetensors {TORN}", cut("hf-gpt2/model.safetensors")),
    row("import of a tokenizer that is no JSON", "import hf-mute new", f"hf-mute/tokenizer.json {NO_JSON}"),
    row("export to nowhere", "export run-lm", "export needs an OUT: see `heedful export --help`"),
    row("export of what is not there", "export gone new", f"gone {NO_FOLDER}"),
    row("export over a file", "export run-lm text", "text is a file: models go into folders, so give a name that is free"),
    row("export over a folder", "export run-lm hf-gpt2", "hf-gpt2 is there already and not empty: give another OUT, or --replace"),
    row("export over what was no export", "export run-lm hf-gpt2 --replace", "hf-gpt2 has no parity.json, so heedful did not export it: remove it yourself first"),
    row("export over itself", "export run-lm run-lm", "run-lm is to be read, and run-lm written over it: give another OUT"),
    row("export as nothing known", "export run-lm new --to onxx", "--to takes hf or ctranslate2 or onnx or gguf, not 'onxx'; did you mean \"onnx\"?"),
    row("export as what it cannot be", "export run-lm new --to gguf", "run-lm cannot leave as gguf: …; it can leave as hf, ctranslate2, onnx"),
    row("export in bits that are none", "export run-lm new --quantize int3", "hf stores numbers as float32, not as int3: leave out --quantize, or name another --to"),
    row("export of a run that was altered", "export run-cut new", f"run-cut/model.safetensors {DAMAGED}"),
    row("export of a run without a model", "export run-bare new", f"run-bare {NO_MODEL} run-bare`"),
    row("a question for a classifier", "answer run-classify who", "run-classify is an encoder, which cannot answer; it can classify, embed and look"),
    row("a question about a text that is not there", "answer run-classify who --context gone", "gone is missing"),
    row("a question about nothing", "answer run-classify who --context empty.txt", "there is no text in empty.txt"),
    row("weights rounded in two ways", "translate run-translate the --weights int8 --quantize int8", "--weights and --quantize are two ways to round weights: give one of them"),
    row("doctor of what is not there", "doctor gone", f"gone {NO_FOLDER}"),
    row("doctor of a file", "doctor text", f"text {NO_FOLDER}"),
    row("info of a file", "info ./text", f"./text {NO_FOLDER}"),
    row("info of a name that is none", "info gpt22", 'there is no preset "gpt22"; did you mean "gpt2"?'),
    row("a file for a folder", "translate text the", f"text {NO_FOLDER}"),
    row("an empty folder", "generate empty the", f"empty/{NO_CONFIG}"),
    row("an empty folder to examine", "doctor empty", f"empty/{NO_CONFIG}"),
    row("an empty folder to describe", "info empty", f"empty/{NO_CONFIG}"),
    row("a link to itself", "embed loop the", f"loop {NO_FOLDER}", in_its_place("loop", link_to_itself)),
    row("a name without end", f"classify {'x' * 300} the", "x… cannot be read: File name too long"),
    row("no config", "generate hf-gpt2 the", f"hf-gpt2/{NO_CONFIG}", removed(GPT2)),
    row("no weights", "generate hf-gpt2 the", "hf-gpt2 has no weights: neither model.safetensors nor model.safetensors.index.json is there; fetch the rest of the model", removed("hf-gpt2/model.safetensors")),
    row("no tokenizer", "generate hf-gpt2 the", "hf-gpt2 has no tokenizer, so its model reads no text: put its tokenizer.json there", removed("hf-gpt2/tokenizer.json")),
    row("a config that is a folder", "fill hf-bert [MASK]", "hf-bert/config.json is not a regular file", in_its_place("hf-bert/config.json", folder)),
    row("a config that is a pipe", "doctor hf-bert", "hf-bert/config.json is not a regular file", in_its_place("hf-bert/config.json", os.mkfifo)),
    row("a config that leads nowhere", "info hf-gpt2", f"{GPT2} is a link that leads nowhere", in_its_place(GPT2, link_to_itself)),
    row("a config that is no JSON", "look hf-gpt2 the", f"{GPT2} {NO_JSON}", written(GPT2, b"{n_embd: 12}")),
    row("a config that is a list", "embed hf-gpt2 the", f"{GPT2} holds [1], where an object {{...}} is expected", written(GPT2, b"[1]")),
    row("a config in another encoding", "info hf-gpt2", f"{GPT2} is not UTF-8 text: byte 7 is no part of a character", written(GPT2, b'{"a": "\xe9"}')),
    row("an architecture that is none", "info hf-gpt2", f"{GPT2}: model_type is 'gpt-2'; did you mean \"gpt2\"?", changed(GPT2, model_type="gpt-2")),
    row("a negative size", "doctor hf-gpt2", f"{GPT2}: n_layer must be a whole number from 1 to 2147483647, not -2", changed(GPT2, n_layer=-2)),
    row("a size beyond the file's", "generate hf-gpt2 the", "hf-gpt2/model.safetensors: transformer.wte.weight is 330 x 12, but config.json asks for 2000000000 x 12", changed(GPT2, vocab_size=2_000_000_000)),
    row("a size beyond all memory", "info hf-gpt2", f"{GPT2}: its sizes are too large for any memory", changed(GPT2, n_embd=2**31 - 2, n_head=1, n_inner=2**31 - 1, vocab_size=2**31 - 1)),
    row("heads that do not divide", "info hf-gpt2", f"{GPT2}: a width of 12 cannot be divided into 5 heads", changed(GPT2, n_head=5)),
    row("weights cut short", "generate hf-gpt2 the", f"hf-gpt2/model.safetensors {TORN}", cut("hf-gpt2/model.safetensors")),
    row("weights that lie about their size", "look hf-gpt2 the", f"hf-gpt2/model.safetensors {TORN}", written("hf-gpt2/model.safetensors", b"\xff" * 8 + b"{}")),
    row("weights that lie about their places", "doctor hf-gpt2", f"hf-gpt2/model.safetensors {TORN}", header({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}})),
    row("weights of another model", "embed hf-gpt2 the", "hf-gpt2 lacks transformer.wte.weight, transformer.wpe.weight, … and 25 more, which its config.json calls for", swapped("hf-bert/model.safetensors", "hf-gpt2/model.safetensors")),
    row("only a pickle", "generate hf-gpt2 the", "hf-gpt2/pytorch_model.bin is a pickle, which can run code when it is read, so heedful does not read it; where you trust it, convert it: …", both(removed("hf-gpt2/model.safetensors"), written("hf-gpt2/pytorch_model.bin", b"\x80\x04."))),
    row("a tokenizer that is no JSON", "fill hf-mute [MASK]", f"hf-mute/tokenizer.json {NO_JSON}"),
    row("a tokenizer of nothing", "fill hf-bert [MASK]", "hf-bert/tokenizer.json is not a tokenizer that can be read: missing field …", written("hf-bert/tokenizer.json", b'{"version": "1.0", "model": {"type": "WordPiece"}}')),
    row("a tokenizer larger than its model", "embed hf-bert the", "hf-bert/tokenizer.json has a token number 329, but the model knows only 134 tokens", swapped("hf-gpt2/tokenizer.json", "hf-bert/tokenizer.json")),
    # Runs
    *(row(f"{line.split()[0]} of a run without a model", line, f"run-bare {NO_MODEL} run-bare`") for line in ("translate run-bare the", "look run-bare the", "doctor run-bare", "evaluate run-bare")),
    row("a folder of runs", "translate . the", f"{NO_CONFIG}; there are models in it: hf-bert, hf-gpt2, hf-mute, hf-odd, run-bare and 9 more"),
    row("evaluate a folder of runs", "evaluate .", ". is no run: it has no recipe.json; give the folder that `heedful train` wrote; there are models in it: hf-bert, hf-gpt2, hf-mute, hf-odd, run-bare and 9 more"),
    *(row(f"{line.split()[0]} of a run that was altered", line, f"run-cut/model.safetensors {DAMAGED}") for line in ("generate run-cut the", "look run-cut the", "doctor run-cut", "evaluate run-cut")),
    row("a run without its tokenizer", "generate run-lm the", "run-lm has no tokenizer, so its model reads no text: put its tokenizer.json there", removed("run-lm/tokenizer.json")),
    row("a run with another's tokenizer", "evaluate run-lm", "run-lm/tokenizer.json is not the one its model was trained with, whose SHA-256 is in recipe.json: put that back", swapped("run-translate/tokenizer.json", "run-lm/tokenizer.json")),
    row("a run without its recipe", "evaluate run-lm", "run-lm is no run: it has no recipe.json; give the folder that `heedful train` wrote", removed("run-lm/recipe.json")),
    row("a recipe that is no JSON", "evaluate run-lm", f"run-lm/recipe.json {NO_JSON}", written("run-lm/recipe.json", b"{")),
    row("a recipe of no task", "evaluate run-lm", 'run-lm/recipe.json: a recipe has no task "chat"; there are ' + ", ".join(TASKS), changed("run-lm/recipe.json", task="chat")),
    row("a recipe of a later version", "doctor run-lm", 'run-lm/recipe.json: there is no setting "model.moods"; …', changed("run-lm/recipe.json", model__moods=4)),
    row("a run of no architecture", "info run-lm", 'run-lm/config.json: there is no architecture "gpt9"; there are albert, bahdanau, …', changed("run-lm/config.json", heedful="gpt9")),
    row("a status that is no JSON", "evaluate run-lm", f"run-lm/status.json {NO_JSON}", written("run-lm/status.json", b"{")),
    row("a tagger without its tags", "tag run-tag the", "run-tag/labels.json is missing: put it there", removed("run-tag/labels.json")),
    row("a parser without its relations", "parse run-parse the", "run-parse/relations.json is missing: put it there", removed("run-parse/relations.json")),
    row("a parser with other relations", "parse run-parse the", "run-parse/relations.json names 1 relations, and the model tells 2 apart: put back its own", written("run-parse/relations.json", b'{"x": 1}')),
    row("a tagger with other tags", "tag run-tag the", "run-tag/labels.json names 1 labels, and the model tells 2 apart: put back its own", written("run-tag/labels.json", b'{"x": 1}')),
    row("a parser whose weights are no numbers", "parse run-parse the", f"run-parse {NO_NUMBER}", no_numbers("run-parse"), 3),
    row("a tagger whose weights are no numbers", "tag run-tag the", f"run-tag {NO_NUMBER}", no_numbers("run-tag"), 3),
    row("too many words to parse", "parse run-parse " + "a " * 2001, "the text has 2,001 words, and at most 2,000 are read: cut it"),
    row("a tagger to parse", "parse run-tag the", "run-tag is an encoder, which cannot parse; it can tag, embed and look"),
    row("a language model to tag", "tag run-lm the", "run-lm is a decoder, which cannot tag; it can …"),
    row("trees for a model that reads none", "translate run-translate the --trees a.conllu", "run-translate reads no trees: leave out --trees"),
    row("trees to evaluate a tagger by", "evaluate run-tag --trees a.conllu", "--trees are those of --source: give them together, …"),
    row("a table to evaluate a parser by", "evaluate run-parse --data table.tsv", "table.tsv:1: 2 columns, where CoNLL-U has 10, separated by tabs"),
    row("no batch to tag", "tag run-tag the --batch 0", "--batch must be a whole number from 1 to 100,000, not 0"),
    row("a run without its labels", "classify run-classify the", "run-classify/labels.json is missing: put it there", removed("run-classify/labels.json")),
    # What a model cannot do
    row("a language model to translate", "translate run-lm the", "run-lm is a decoder, which cannot translate; it can generate, stream, score, embed and look"),
    row("an encoder to translate", "translate hf-bert the", "hf-bert is an encoder, which cannot translate; it can fill, embed and look"),
    row("a translator to generate", "generate run-translate the", "run-translate is an encoder-decoder, which cannot generate; it can translate, stream, score, embed and look"),
    row("a translator to fill blanks", "fill run-translate [MASK]", "run-translate is an encoder-decoder, which cannot fill; it can …"),
    row("a classifier to fill blanks", "fill run-classify [MASK]", "run-classify is an encoder, which cannot fill; it can classify, embed and look"),
    row("a language model to classify", "classify run-lm the", "run-lm is a decoder, which cannot classify; it can …"),
    row("a masked language model to classify", "classify run-mlm the", "run-mlm is an encoder, which cannot classify; it can fill, embed and look"),
    row("a published model to evaluate", "evaluate hf-gpt2", "hf-gpt2 is no run: it has no recipe.json; give the folder that `heedful train` wrote"),
    row("a decoder's class token", "embed run-lm the --pooling class", "run-lm is a decoder, without a class token: use --pooling mean"),
    row("a decoder's cross-attention", "look run-lm the --which cross", "this gpt2 has no cross-attention: look at self"),
    row("a decoder's target", "look run-lm the --target ba", "--target is what an encoder-decoder writes, and this gpt2 is none: leave it out"),
    row("a decoder's coverage", "generate run-lm the --beam 2 --coverage 1", "--coverage is of a source, and run-lm is a decoder, with no cross-attention to one: leave it out"),
    row("a source length of a decoder", "info gpt2 --source-length 3", "only an encoder-decoder has a source length: this model reads one sequence"),
    # Options that exclude or need each other
    row("sampling and a beam", "translate run-translate --sample --beam 2", "--sample draws one token at a time and --beam searches: ask for one of them"),
    row("a beam and a draft", "generate run-lm --draft run-lm --beam 2", "a draft guesses for one hypothesis: leave out --beam, or leave out --draft"),
    row("a draft's guesses without a draft", "generate run-lm --ahead 2", "--ahead is how far a draft guesses: give --draft too"),
    *(row(f"--{name} without sampling", f"generate run-lm --{name} 1", f"--{name} {DRAWN_ONLY}") for name in ("temperature", "top-k", "top-p", "min-p")),
    *(row(f"{option} without a beam", f"generate run-lm {option}", f"{option.split()[0]} {BEAM_ONLY}") for option in ("--n-best 2", "--alpha 1", "--length-penalty power", "--stopping exact", "--diversity 1")),
    row("more answers than hypotheses", "translate run-translate the --n-best 5", "a beam of 4 cannot find 5 hypotheses: make it wider"),
    row("groups that do not differ", "translate run-translate the --groups 2", "groups above 1 and diversity above 0 go together: either alone does nothing"),
    row("positions of a text", "look run-translate the --positions", "--positions looks at no text: leave a text out"),
    row("positions of a head", "look run-translate --positions --head best", "--positions looks at no text: leave --head out"),
    row("a length without positions", "look run-translate the --length 5", "--length is of --positions: how many of them to draw"),
    row("a step by step of the mean", "look run-translate the --query 1 --head mean", "--query follows one head: give --head a number, or best"),
    row("nothing to look at", "look run-translate", 'look needs a TEXT, such as "Their cat was fast.": see `heedful look --help`'),
    row("a batch of no model", "info --batch 3", "--batch is of one model: give its NAME too, such as gpt2"),
    row("a source without a target", "evaluate run-translate --source a.src", f"give {OWN_DATA}: given is --source FILE"),
    row("files and a table", "evaluate run-translate --source a.src --target a.tgt --data table.tsv", f"give {OWN_DATA}: given is --source FILE and --target FILE and --data FILE"),
    row("files and a split", "evaluate run-translate --source a.src --target a.tgt --split test", f"--split is of a built-in corpus: give either it or {OWN_DATA}"),
    row("a column of what is no table", "evaluate run-translate --set data.source_column=x", "--set data.source_column is of a table, and a.src and a.tgt have no columns: leave it out"),
    # Numbers out of range
    row("no beam", "translate run-translate --beam 0", "--beam must be a whole number from 1 to 1,000, not 0"),
    row("a huge beam", "translate run-translate --beam 1000000", "--beam must be a whole number from 1 to 1,000, not 1000000"),
    row("a negative seed", "demo --seed -1", "train.seed must be a whole number from 0 to 9,223,372,036,854,775,807, not -1"),
    row("a seed beyond 64 bits", f"doctor run-lm --seed {2**63}", "--seed must be a whole number from 0 to 9,223,372,036,854,775,807, not 9223372036854775808"),
    row("a temperature of nothing", "generate run-lm --sample --temperature 0", "--temperature must be a number from 0.001 to 1,000.0, not 0.0"),
    row("a temperature that is no number", "generate run-lm --sample --temperature nan", "--temperature must be a number from 0.001 to 1,000.0, not nan"),
    row("an endless coverage", "translate run-translate --coverage inf", "--coverage must be a number from 0.0 to 1,000.0, not inf"),
    row("a share above one", "generate run-lm --sample --top-p 1.5", "--top-p must be a number from 0.0 to 1.0, not 1.5"),
    row("an exponent beyond measure", "translate run-translate --alpha 1e308", "--alpha must be a number from -5.0 to 5.0, not 1e+308"),
    row("no room to write", "generate run-lm --longest 0", "--longest must be a whole number from 1 to 1,000,000, not 0"),
    row("no texts at a time", "classify run-classify --batch 0", "--batch must be a whole number from 1 to 100,000, not 0"),
    row("no words for a blank", "fill run-mlm --top 0", "--top must be a whole number from 1 to 1,000,000, not 0"),
    row("no guesses ahead", "generate run-lm --draft run-lm --ahead 0", "--ahead must be a whole number from 1 to 100, not 0"),
    row("a penalty of nothing", "translate run-translate --repetition-penalty 0", "--repetition-penalty must be a number from 0.001 to 1,000.0, not 0.0"),
    row("no rows", "info gpt2 --batch 0", "batch must be at least 1, not 0"),
    row("a length beyond the table", "info gpt2 --length 1025", "a sequence of 1025 tokens does not fit the learned position table of 1024: shorten it, or use a model with a longer table"),
    row("a length of an image", "info vit-b16 --length 9", "the image decides the length: 224 x 224 pixels are always 197 tokens (the class token and the patches), never 9"),
    row("no rows to evaluate", "evaluate run-lm --batch 0", "--batch must be at least 1, not 0"),
    row("layer 0", "look run-translate the --layer 0", "there is no layer 0: layers are counted from 1 to 1"),
    row("a layer too deep", "look run-translate the --layer 2", "there is no layer 2: layers are counted from 1 to 1"),
    row("head 0", "look run-translate the --head 0", 'there is no head 0: give a number from 1 to 2, "mean" or "best"'),
    row("a head that is not there", "look run-translate the --head 3", 'there is no head 3: give a number from 1 to 2, "mean" or "best"'),
    row("a head by a wrong name", "look run-translate the --head first", '--head takes a number, mean or best, not "first"'),
    row("one position", "look run-translate --positions --length 1", "--length must be from 2 to 512 positions, not 1"),
    row("no steps", "demo --steps 0", "train.steps must be a whole number from 1 to 1,000,000,000,000, not 0"),
    row("steps without end", f"demo --steps {10**13}", "train.steps must be a whole number from 1 to 1,000,000,000,000, not 10000000000000"),
    # Words that are not there
    row("a query that is not there", "look run-classify 'the ba' --query cat", "there is no query cat: give a number from 1 to 4, or a word; there are [CLS], the, ba, [SEP]"),
    row("a query beyond the text", "look run-classify 'the ba' --query 5", "there is no query 5: give a number from 1 to 4, or a word; …"),
    row("a word to forbid that is unknown", "translate run-translate --forbid zebra", '"zebra" is not in the vocabulary, so the model cannot write it anyway'),
    row("nothing to forbid", "translate run-translate --forbid ''", "an empty word cannot be forbidden: leave it out"),
    row("a beginning that is unknown", "translate run-translate --prefix zebra", 'not all of "zebra" is in the vocabulary, so no translation can begin with it'),
    row("a draft of another vocabulary", "generate run-lm --draft hf-gpt2", "hf-gpt2 knows 330 tokens and run-lm 22, and they are not the same: a draft needs the same vocabulary"),
    row("a draft of another kind", "generate run-lm --draft run-mlm", "run-mlm is an encoder, and a draft is a decoder: give another, or leave it out"),
    row("a draft that is not there", "generate run-lm --draft gone", f"gone {NO_FOLDER}"),
    row("a draft that was altered", "generate run-lm --draft run-cut", f"run-cut/model.safetensors {DAMAGED}"),
    row("numbers for a model with a tokenizer gone", "look hf-gpt2 the", 'this model has no tokenizer: give token numbers from 0 to 329, such as "5 3 8"', removed("hf-gpt2/tokenizer.json")),
    # Texts
    row("no blank", "fill run-mlm no blank", "the text has no [MASK] to fill in"),
    row("a text beyond the table", "embed run-mlm the cat sat on the mat", "the text has 24 tokens, and the model reads at most 12: cut it"),
    row("a picture beyond the table", "look run-lm 'the cat sat on the mat'", "a sequence of 22 tokens does not fit the learned position table of 12: shorten it, or use a model with a longer table"),
    row("a picture beyond sight", f"look run-lm {'x' * 300}", "the text has 300 tokens, and a picture shows at most 256: give a shorter one"),
    row("an empty text to look at", "look run-lm ''", "the text has no tokens: there is nothing to look at"),
    row("bytes that are no text", ["translate", "run-translate", os.fsdecode(b"the \xff")], "not UTF-8: byte 5 of the line is no part of a character"),
    row("a second text for a model of one", ["classify", "run-classify", "the\tba"], "run-classify was trained on single texts: leave out the second ones"),
    row("a line that is no text", "generate run-lm --bad-lines refuse", "line 2: not UTF-8: byte 4 of the line is no part of a character", stdin=b"the\nba \xff\n"),
    row("a line with NUL", "embed run-lm --bad-lines refuse", "line 1: character 4 is NUL, which no text has", stdin=b"the\0\n"),
    row("a line without end", "translate run-translate --bad-lines refuse", f"line 1: longer than {LONGEST} characters: cut the line", stdin=b"x" * 99_999),
    row("a line beyond the table", "embed run-mlm --bad-lines refuse", "line 2: the text has 17 tokens, and the model reads at most 12: cut it", stdin=b"the\nthe cat sat the\n"),
    row("a bad line after good ones", "embed run-lm --bad-lines refuse --batch 1", "line 10: not UTF-8: …", stdin=b"the\n" * 9 + b"\xff\n", out=r"([-\d.e ]+\n){8}"),
    row("gzip on stdin", "fill run-mlm", "stdin is compressed by gzip: unpack it first, by zcat FILE |", stdin=b"\x1f\x8b\x08"),
    row("UTF-16 on stdin", "classify run-classify", "stdin is UTF-16 text: convert it with iconv -f utf-16 -t utf-8", stdin="the".encode("utf-16")),
    row("zip on stdin", "embed run-lm", "stdin is a zip file: unpack it first", stdin=b"PK\x03\x04"),
    # Data to evaluate on
    row("no run to evaluate", "evaluate gone", "gone is not there: give the folder of a run, such as runs/translate"),
    row("a file to evaluate", "evaluate text", "text is a file: give the folder of a run, such as runs/translate"),
    row("a file that is not there", "evaluate run-lm --text gone", "--text gone is not there"),
    row("an empty text", "evaluate run-lm --text empty.txt", "empty.txt has 0 tokens to judge the model by: at least 2 are needed (no line dropped)"),
    row("an empty folder of texts", "evaluate run-mlm --text empty", "empty holds no text file"),
    row("a pipe for a text", "evaluate run-lm --text pipe", "pipe is not a regular file: write what it gives into one first", in_its_place("pipe", os.mkfifo)),
    row("a text in another encoding", "evaluate run-lm --text latin.txt --set data.bad_lines=refuse", "latin.txt:1: not UTF-8: byte 2 of the line is no part of a character"),
    row("a text of bad lines", "evaluate run-lm --text latin.txt", "latin.txt has 0 tokens to judge the model by: at least 2 are needed (5 lines dropped: 5 not UTF-8 (first latin.txt:1))"),
    row("files of unequal length", "evaluate run-translate --source a.src --target text", "a.src has 9 lines and text has 30: line N of one must belong to line N of the other"),
    row("a folder for a file", "evaluate run-translate --source empty --target a.tgt", "empty is a folder, where a file is expected"),
    row("a table of other columns", "evaluate run-translate --data table.tsv", 'table.tsv:1: there is no column "source"; there are sentence, label'),
    row("an empty table", "evaluate run-classify --data empty.txt", "empty.txt is empty: its first line names the columns, or it holds JSON objects"),
    row("a table of no rows", "evaluate run-classify --data t.tsv", "t.tsv has no row to judge the model by", written("t.tsv", b"sentence\tlabel\n")),
    row("a column misspelled", "evaluate run-classify --data table.tsv --set data.label_column=lable", 'table.tsv:1: there is no column "lable"; did you mean "label"?'),
    row("a label that was not learned", "evaluate run-classify --data t.tsv", 't.tsv:2: table.tsv has no label "evn"; did you mean "even"?', written("t.tsv", b"sentence\tlabel\nthe ba\tevn\n")),
    row("data of another task", "evaluate run-lm --source a.src --target a.tgt", "--source does not fit run-lm, a run of lm, which takes --text PATH"),
    row("held-out data that have gone", "evaluate run-translate", f"run-translate was judged by a.tgt that is not there any more: give {OWN_DATA}", removed("a.tgt")),
    row("held-out data that have changed", "evaluate run-translate", "a.src has 9 lines and a.tgt has 1: line N of one must belong to line N of the other", written("a.tgt", b"THE\n")),
    row("a split of files", "evaluate run-translate --split test", f"--split is of a built-in corpus, and run-translate was trained on files: give {OWN_DATA}"),
    row("a split that is none", "evaluate run-translate --split train", "--split takes valid or test or combinations or long, not 'train'"),
    row("a split of another corpus", "evaluate run-lm --split long", "pylib has no split long; it has valid", changed("run-lm/recipe.json", data__corpus="pylib")),
    row("a setting of training", "evaluate run-lm --text text --set data.vocab=word", "--set data.vocab does not fit run-lm: how its data are read is data.text_column, data.bad_lines"),
    row("a setting without a value", "evaluate run-lm --text text --set data.bad_lines", "--set takes part.name=value, not 'data.bad_lines'"),
    row("a setting to a wrong value", "evaluate run-lm --text text --set data.bad_lines=keep", "data.bad_lines must be one of drop, refuse, not 'keep'"),
    row("weights that are no numbers", "evaluate run-lm", "loss is nan, not a number: heedful doctor says which weights are none", no_numbers("run-lm"), code=3),
    row("attention that is no number", "look run-lm the", "the attention of this model is not a number: heedful doctor says which of its weights", no_numbers("run-lm"), code=3),
    row("an answer that is no number", "generate run-lm the", "the model's scores for row 0 are not numbers: its weights or inputs are broken", no_numbers("run-lm"), code=3),
    row("a translation that is no number", "translate run-translate the", "the model's scores for row 0 are not numbers: its weights or inputs are broken", no_numbers("run-translate"), code=3),
    row("a vector that is no number", "embed run-lm the", f"run-lm {NO_NUMBER}", no_numbers("run-lm"), code=3),
    row("a vector that is no number, in JSON", "embed run-lm the --json", f"run-lm {NO_NUMBER}", no_numbers("run-lm"), code=3),
    row("a label that is no number", "classify run-classify the", f"run-classify {NO_NUMBER}", no_numbers("run-classify"), code=3),
    row("a blank that is no number", "fill run-mlm [MASK]", f"run-mlm {NO_NUMBER}", no_numbers("run-mlm"), code=3),
    # Where to write
    row("a picture of no format", "look run-lm the --output a.jpg", "--output a.jpg: a picture is an .svg or a .png file"),
    row("a picture that is there", "look run-lm the --output a.svg", "a.svg is there already: give another --output, or move it away", written("a.svg")),
    row("a picture that leads nowhere", "look run-lm the --output a.svg", "a.svg is there already: give another --output, or move it away", in_its_place("a.svg", link_to_itself)),
    row("a picture into no folder", "look run-lm the --output gone/a.svg", "gone is no folder, so a.svg cannot be written there"),
    row("a picture where nobody may write", "look run-lm the --json --output /proc/a.svg", "/proc/a.svg cannot be written: …"),
    row("translations that are there", "evaluate run-translate --output text", "text is there already: give another --output, or move it away"),
    row("translations into no folder", "evaluate run-translate --output text/out", "text is no folder, so out cannot be written there"),
    row("translations into the run", "evaluate run-translate --output run-translate/out", "run-translate/out lies in the run, which stays as it is: give another --output"),
    row("translations of a language model", "evaluate run-lm --output out", "--output is for translations and summaries, and run-lm is a run of lm"),
    row("translations where nobody may write", "evaluate run-translate --output /proc/out", "/proc/out cannot be written: …"),
    row("a demo into a file", "demo --run text", "text cannot be written: it is a file, not a folder"),
    row("a demo into a model", "demo --run hf-gpt2", "hf-gpt2 is no run, for it holds config.json: give another --run"),
    row("a demo into a run", "demo --run run-lm", "run-lm holds a run: go on with `heedful train --resume run-lm`, or give another --run"),
    # What to compare
    row("nothing to compare", "compare lm --text text", 'a comparison needs two variants or more, such as --variant base --variant "rotary: model.positions=rotary"'),
    row("a variant misspelled", f"compare {TWO} --variant 'c: model.widht=8'", 'variant c: there is no setting "model.widht"; did you mean "model.width"?'),
    row("a variant of other data", f"compare {TWO} --variant 'c: data.lower=true'", "variant c sets data.lower, but all variants read the same data: give it once, by --set"),
    row("a variant twice", f"compare {TWO} --variant 'c: model.width=8'", "variants b and c are the same: nothing is compared"),
    row("two budgets", f"compare {TWO} --steps 3 --flops 1e9", "--steps and --flops are two budgets: give one of them"),
    row("no budget", f"compare {TWO} --tokens 0", "--tokens is a number of at least 1, not 0"),
    row("a budget that is less than a step", f"compare {TWO} --flops 1", "variant a: a single step takes … flops, more than --flops 1"),
    row("no seeds", f"compare {TWO} --seeds 0", "--seeds is from 1 to 100, not 0"),
    row("a score that is none", f"compare {TWO} --metric bleu", 'lm has no score "bleu"; there are loss, perplexity, bits_per_byte'),
    row("a story with other data", "compare history --text text", "--text cannot be given with history, which has data of its own"),
    row("a text to compare on that is not there", "compare lm --text gone --variant a --variant 'b: model.width=8'", "gone is missing"),
    row("a comparison into a run", f"compare {TWO} --run run-lm", "run-lm is no comparison, for it holds checkpoints: give another --run"),
    row("no comparison to go on with", "compare --resume empty", "empty holds no comparison: compare.json is missing"),
    row("a comparison that goes on otherwise", "compare --resume empty --seeds 5", "--seeds cannot be given with --resume: empty says everything; …"),
    # Where to compute
    row("a device that is none", "embed run-lm --device gpu", "--device takes auto or cpu or cuda, not 'gpu'; did you mean \"cpu\"?"),
]  # fmt: skip


def matches(sentence, said):
    return re.fullmatch(".*".join(map(re.escape, sentence.split("…"))), said)


@pytest.mark.parametrize("call", TABLE)
def test_a_broken_call_ends_in_one_sentence(call, world, tmp_path, capsys, monkeypatch):
    here = world if call.broken is intact else shutil.copytree(world, tmp_path / "here")
    monkeypatch.chdir(here)
    call.broken()
    before = snapshot(here)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(call.stdin)))
    with at_most(20):
        code = main(call.words)
    out, told = capsys.readouterr()
    *earlier, last = told.splitlines()
    assert last.startswith("error: ") and matches(call.sentence, last.removeprefix("error: ")), told
    assert code == call.code
    assert all(each.startswith(PROGRESS) for each in earlier) or earlier == [*overview().splitlines(), ""]
    assert re.fullmatch(call.out, out)
    assert last.isprintable() and not [word for word in JARGON if word in told]
    assert snapshot(here) == before


def test_the_table_has_every_command_that_has_none_elsewhere():
    assert len({each.id for each in TABLE}) == len(TABLE) >= 70
    calls = Counter(command for each in TABLE for command in each.values[0].words[:1])
    assert {command for command in COMMANDS if calls[command] >= 5} == COMMANDS.keys() - ELSEWHERE


# Streams that a shell has closed, or a full disk


@pytest.mark.parametrize(
    "line, code, out, told",
    [
        pytest.param("embed run-lm <&-", 0, "", "", id="nothing to read"),
        pytest.param("embed run-lm the >&-", 0, "", "", id="nowhere to write"),
        pytest.param("evaluate run-lm 2>&-", 0, "run-lm: lm, step 1; …", "", id="nowhere to talk"),
        pytest.param("--help >/dev/full", 5, "", "error: No space left on device: make room, or write elsewhere\n", id="no room"),
        pytest.param("tarnslate 2>&-", 2, "", "", id="a mistake, and nowhere to talk"),
        pytest.param("info --batch 3", 2, "", "error: --batch is of one model: give its NAME too, such as gpt2\n", id="a mistake"),
    ],
)  # fmt: skip
def test_streams_that_are_closed_or_full_are_no_mystery(line, code, out, told, world):
    done = subprocess.run(
        ["bash", "-c", f"{shlex.quote(sys.executable)} -m heedful {line}"],
        cwd=world, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (code, told)
    assert matches(out, done.stdout.replace("\n", " "))
