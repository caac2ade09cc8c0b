"""The options of every command: one dataclass each, whose docstrings are the help and whose defaults are the defaults.

To add a command, write its dataclass and a line in `COMMANDS` that says which function it is for. Nothing here
imports torch, so that help answers at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class Info:
    """What a model is made of, and what it costs to train and to run.

    Shows the architecture as a tree with the parameters of every part, then FLOPs a token and memory, for one
    batch and length. Nothing is downloaded and no weights are read, so the largest model is no slower. Without
    a name: the list of presets.

    Examples: heedful info gpt2; heedful info bert-base --batch 32 --length 128; heedful info gpt3-175b --json;
    heedful info runs/demo
    """

    name: Annotated[
        str | None,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="NAME|FOLDER", help_behavior_hint="(default: list the presets)"),
    ] = None
    """A preset (gpt2, bert-base, t5-small, vit-b16, ...), a run, or a Hugging Face folder."""

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
    """How numbers are multiplied: fp32, or bf16 (autocast: weights, norms and the optimizer stay in fp32)."""

    json: bool = False
    """Print one JSON object instead, sizes in bytes."""


@dataclass(frozen=True)
class Demo:
    """Train a small translator on the built-in phrasebook, and show what it learned.

    A few minutes on a laptop. Prints how many held-out sentences it translates right, beside what a dictionary
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
class Learns:
    """What models learn from, and are judged by."""

    corpus: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: none)")] = None
    """A built-in corpus: phrasebook (translate, lm, tag, parse), pylib (lm, mlm), facts (summarize, span, choose),
    shapes (image-classify, caption, text-to-image)."""

    source: Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: none)")] = None
    """Sentences to read, one a line, plain or gzip."""

    target: Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: none)")] = None
    """Their translations, line by line."""

    valid_source: Annotated[
        str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: none)")
    ] = None
    """Held-out sentences to judge by."""

    valid_target: Annotated[
        str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: none)")
    ] = None
    """Their translations."""

    text: Annotated[str | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="(default: none)")] = None
    """A text file, a folder of them, or JSON lines (.jsonl) with a "text"; the last tenth is held out."""

    data: Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: none)")] = None
    """A table: tab-separated columns under a header, or JSON objects, one a line. classify: sentence or text, and
    label. translate: source and target. --set data.text_column=NAME and the like name other columns. tag, parse: a
    treebank, CoNLL-U. summarize: JSON objects with article and summary, and a title if there is one. span: question, context
    and answers, a list of {"text", "start"}; in a table, question, context, answer and start. choose: JSON objects with
    context, choices (a list) and answer (which is right, from 0)."""

    valid_data: Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: none)")] = (
        None
    )
    """Held-out rows to judge by."""

    images: Annotated[str | None, tyro.conf.arg(metavar="FOLDER", help_behavior_hint="(default: none)")] = (
        None
    )
    """image-classify: a folder with a folder of images (PNG, JPEG, PPM) for each class, or with IDX files as MNIST's.
    caption: a folder of images with a file captions.tsv (name, tab, caption) or captions.jsonl."""

    valid_images: Annotated[
        str | None,
        tyro.conf.arg(metavar="FOLDER", help_behavior_hint="(default: one in ten of --images, at most 2000)"),
    ] = None
    """Held-out images to judge by."""


@dataclass(frozen=True)
class Train(Learns):
    """Train a model on your own files, or on a corpus that is built in.

    Writes a run folder: the recipe, the model, its tokenizer, what was measured, and checkpoints from which the run
    goes on exactly where it was, whatever stopped it. Ctrl-C saves and stops; --resume goes on. On several GPUs or
    machines, the same command under torchrun: torchrun --nproc-per-node 4 -m -- heedful train ...

    Where a file is asked for, hf:NAME[:CONFIG][@SPLIT][#COLUMN] is a Hugging Face data set, if the package datasets
    is installed: --text hf:wikitext:wikitext-2-raw-v1@train#text, --data hf:imdb@train.

    Examples: heedful train translate --corpus phrasebook --size tiny --minutes 3;
    heedful train translate --source a.en --target a.de --valid-source b.en --valid-target b.de;
    heedful train lm --text books/ --size small --steps 5000; heedful train --resume runs/translate;
    heedful train mlm --text books/; heedful train classify --data a.tsv --valid-data b.tsv --from runs/mlm;
    heedful train parse --data en-train.conllu --valid-data en-dev.conllu;
    heedful train summarize --corpus facts --size tiny; heedful train image-classify --images photos/;
    heedful train caption --corpus shapes --size tiny
    """

    task: Annotated[
        Literal[
            "translate",
            "lm",
            "mlm",
            "classify",
            "tag",
            "span",
            "choose",
            "parse",
            "summarize",
            "image-classify",
            "caption",
            "text-to-image",
        ],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="TASK"),
    ] = "translate"
    """translate: sentence pairs. lm: predict the next token of a text. mlm: fill in the blanks of a text.
    classify: give a text, or two, one of several labels. tag: give each word its part of speech. span: find the answer to a
    question in a text. choose: of several ways to go on from a text, find the right one. parse: find the word that each
    word hangs on. summarize: write the lead of an article. image-classify: give a picture one of several labels.
    caption: write a sentence about a picture. text-to-image: draw a picture of a caption, in stages (codes, decoder, ranker), one after the other in one folder."""

    trees: Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: none)")] = None
    """translate, with --set model.positions=structural (or structural-absolute, structural-relative): the trees of the
    sources, CoNLL-U, one for each line that says something; `heedful parse` writes such files."""

    valid_trees: Annotated[
        str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: none)")
    ] = None
    """Those of the held-out sources."""

    from_: Annotated[
        str | None, tyro.conf.arg(name="from", metavar="FOLDER", help_behavior_hint="(default: none)")
    ] = None
    """The model to start from: a run, or a Hugging Face folder; its tokenizer comes along. classify and tag start from an
    encoder such as BERT (classify also from a decoder such as GPT-2), lm from a decoder, mlm from an encoder, translate
    from an encoder-decoder. classify, tag: a run of lm with model.architecture=elmo, whose vectors are read and whose
    weights stay as they are. image-classify: a run of it or a Hugging Face folder of ViT; for pictures of another size,
    positions are interpolated."""

    tune: Annotated[
        Literal["whole", "head", "lora"] | None,
        tyro.conf.arg(metavar="whole|head|lora", help_behavior_hint="(default: whole)"),
    ] = None
    """With --from, what learns: the whole model; a new head, all else being as it was; or LoRA, thin matrices beside
    the layers that train.lora_layers names, and a new head. A run of LoRA holds only what it learned, and needs the
    model that it began from to stay where it is."""

    run: Annotated[str | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: runs/TASK)")] = None
    """Where the run goes: a folder that is not there yet."""

    resume: Annotated[str | None, tyro.conf.arg(metavar="RUN", help_behavior_hint="(default: none)")] = None
    """Go on with an interrupted run; its recipe says everything else."""

    size: Literal["tiny", "small", "base", "large"] = "small"
    """How large the model is: 2 layers of 128, 4 of 256, 6 of 512, 6 of 1024."""

    steps: Annotated[
        int | None,
        tyro.conf.arg(
            metavar="INT",
            help_behavior_hint="(default: 10000; classify: 1000; image-classify, caption: 2000; tag, parse, span, choose: 4000)",
        ),
    ] = None
    """How many steps to make."""

    minutes: Annotated[
        float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="(default: --steps)")
    ] = None
    """Instead of steps: as many as fit, measured before the first."""

    seed: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: 0)")] = None
    """Another seed, other weights and another order of the examples."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes the GPU if there is one."""

    precision: Annotated[
        Literal["fp32", "bf16", "fp16"] | None,
        tyro.conf.arg(help_behavior_hint="(default: fp32 on a CPU, bf16 on a GPU)"),
    ] = None
    """How numbers are multiplied; the loss is always computed in fp32. A CPU that knows bf16 (lscpu shows avx512_bf16 or
    amx_bf16) takes 0.6 to 0.75 of the time in it."""

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
    and of each; tag: the same of words. span: exact match and F1 as SQuAD has them. choose: accuracy. parse: words that hang where they should (UAS), with the right relation (LAS).
    summarize: ROUGE-1, -2 and -L of summaries by a beam of 4, loss and perplexity. image-classify: as classify.
    caption: exact match (of shapes, by what a caption says), BLEU and loss. Shares come with their 95 % interval. The run is not changed.

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
    """Which held-out part of a built-in corpus: phrasebook has all of these, facts all but combinations, pylib valid,
    shapes valid and test."""

    source: Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: none)")] = None
    """translate: sentences to read, one a line, plain or gzip."""

    target: Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: none)")] = None
    """translate: their translations, line by line."""

    text: Annotated[str | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="(default: none)")] = None
    """lm, mlm: a text file or a folder of them."""

    data: Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: none)")] = None
    """classify: texts and labels; translate: sentences and translations; summarize: articles and summaries; with the columns
    of the training file. tag, parse: a treebank, CoNLL-U. span: questions; choose: texts with choices."""

    images: Annotated[str | None, tyro.conf.arg(metavar="FOLDER", help_behavior_hint="(default: none)")] = (
        None
    )
    """image-classify: a folder with a folder of images for each class, or with IDX files, of which t10k is taken. caption: a
    folder of images with their captions."""

    trees: Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: none)")] = None
    """translate, where positions come from syntax: the trees of --source, CoNLL-U."""

    output: Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: none)")] = None
    """translate, summarize, caption, span: write the answers here, line by line as the source has them; a file that is not there yet."""

    judge: Annotated[str | None, tyro.conf.arg(metavar="RUN", help_behavior_hint="(default: none)")] = None
    """text-to-image: the model that tells what pictures show: a run of text-to-image with train.stage=judge, or, where
    captions are classes, of image-classify."""

    quantize: Annotated[
        Literal["int8", "int4"] | None,
        tyro.conf.arg(metavar="int8|int4", help_behavior_hint="(default: none)"),
    ] = None
    """Judge the model twice, as it is and with the weights of its blocks rounded to 8 or 4 bits (torchao): what is printed are
    the figures of the rounded one, each beside that of fp32."""

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
    source_column, target_column, title_column), data.bad_lines (drop or refuse)."""


@dataclass(frozen=True)
class Look:
    """What a model attends to in one input: a heat map here, and a picture in a file.

    Of a translator: which words of the source each word of its translation looks at. Of a language model or an
    encoder: which tokens each token looks at. Without --layer and --head: a table of all heads, the most telling
    one as a heat map, and all of them in the picture. --query follows one word through the formula: its score with
    every key, scaled, masked, made weights, and what it takes home. --positions shows how the model knows order.

    Of a model of pictures: TEXT is the name of an image file, and what is drawn is where the class token looks, as heat over
    the image, layer by layer and through all layers (rollout). Of one that writes captions: where each word looks. Of the
    codes of text-to-image: the image, its codes, and what they become.

    RUN is what `heedful train` wrote, or a Hugging Face folder. Layers and heads are counted from 1.

    Examples: heedful look runs/demo "Their small cat was a fast animal.";
    heedful look runs/demo "Their small cat was a fast animal." --head best --output alignment.svg;
    heedful look runs/demo "Their small cat was a fast animal." --query chat;
    heedful look runs/lm "def f(x):" --layer 1 --head 2 --output f.png; heedful look --positions runs/demo;
    heedful look runs/image-classify cat.png; heedful look runs/caption photo.png;
    heedful look runs/text-to-image/codes photo.png
    """

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The folder of a run, or a Hugging Face folder."""

    text: Annotated[
        str | None,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="TEXT", help_behavior_hint="(default: none, with --positions)"),
    ] = None
    """What the model reads; for a model without a tokenizer, token numbers; for a model of pictures, an image file."""

    target: Annotated[
        str | None, tyro.conf.arg(metavar="TEXT", help_behavior_hint="(default: the model's own)")
    ] = None
    """What an encoder-decoder is to have written, instead of its own greedy translation or caption."""

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
        tyro.conf.arg(
            metavar="FILE",
            help_behavior_hint="(default: attention.svg or codes.svg, or the next free name; with --query or --json none)",
        ),
    ] = None
    """The picture, .svg or .png (which needs Pillow); a file that is not there yet."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes the GPU if there is one."""

    json: bool = False
    """Print one JSON object instead, with all the numbers; a picture is then drawn only if --output names it."""


@dataclass(frozen=True)
class Paint:
    """Draw pictures of a caption, with a model that was trained to.

    Draws several candidates, cell by cell, and keeps those that fit the caption best, as the run's ranker sees it. Writes
    each as a PNG, and all of them with their scores on a contact sheet, sheet.svg.

    Examples: heedful paint runs/text-to-image "a small red circle above a blue square";
    heedful paint runs/text-to-image "a green cross" --pictures 8 --candidates 64 --top-k 32 --output crosses
    """

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The folder of a run of text-to-image."""

    text: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TEXT")]
    """The caption, in words that the model has seen."""

    pictures: int = 4
    """How many to keep: those that fit best."""

    candidates: int = 16
    """How many to draw."""

    temperature: float = 1.0
    """Below 1, more of what is likely; above 1, more of what is not."""

    top_k: int = 8
    """Choose each cell among its k likeliest codes only: rarer ones are mostly blots. Among all of them: a large k."""

    seed: int = 0
    """Another seed, other pictures."""

    scale: int = 8
    """How many times larger a PNG is than the picture."""

    output: Annotated[
        str | None,
        tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: painted, or the next free name)"),
    ] = None
    """Where the pictures go: a folder that is not there yet."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes the GPU if there is one."""

    json: bool = False
    """Print one JSON object instead of a line for each picture."""


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

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes the GPU if there is one."""

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
        tyro.conf.arg(
            metavar="INT",
            help_behavior_hint="(default: translate, summarize and caption 4, generate and --sample 1)",
        ),
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

    weights: Literal["fp32", "fp16", "int8"] = "fp32"
    """What is read for every token on a CPU: fp16 is half of it and as good; int8 a quarter, and may change a word."""

    quantize: Annotated[
        Literal["int8", "int4"] | None,
        tyro.conf.arg(metavar="int8|int4", help_behavior_hint="(default: none)"),
    ] = None
    """Round the weights of all blocks to 8 or 4 bits through torchao, on any device; heedful evaluate --quantize says what
    that costs."""


@dataclass(frozen=True, kw_only=True)
class Translate(Lines, Writes):
    """Translate lines of text with a model that was trained to.

    Reads one sentence a line and writes its translation on the same line of stdout, however many lines there are.
    An empty line is answered by an empty line. A model that does anything else from text to text is used in the same
    way.

    Examples: heedful translate runs/demo "The small girl eats a red apple.";
    heedful translate runs/demo < in.en > out.fr;
    heedful translate runs/demo --beam 8 --alpha 1 --length-penalty power < in.en;
    heedful translate runs/demo --n-best 3 --json < in.en; heedful translate ./opus-mt --prefix "Je" < in.en
    """

    prefix: Annotated[str, tyro.conf.arg(metavar="TEXT", help_behavior_hint="(default: none)")] = ""
    """What every translation begins with."""

    trees: Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: none)")] = None
    """The trees of the texts, CoNLL-U, for a model whose positions come from syntax: one for each line that says
    something."""

    longest: Annotated[
        int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: twice the source and 20)")
    ] = None
    """Tokens of a translation at most."""


@dataclass(frozen=True, kw_only=True)
class Caption(Lines, Writes):
    """Write a sentence about each picture, with a model that was trained to.

    Each word is the name of an image file (PNG, JPEG, PPM), or each line of stdin; each caption is a line of stdout. --json
    has scores and tokens. A file that is no image stops everything; from stdin, it is answered by an empty line.

    Examples: heedful caption runs/caption photo.png other.jpg; heedful caption runs/caption < names.txt > captions.txt;
    heedful caption runs/caption --beam 8 --n-best 3 --json photo.png
    """

    text: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[FILE ...]", help_behavior_hint="(default: the lines of stdin)"),
    ] = ()
    """Image files."""

    prefix: Annotated[str, tyro.conf.arg(metavar="TEXT", help_behavior_hint="(default: none)")] = ""
    """What every caption begins with."""

    longest: Annotated[
        int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: data.longest of the run)")
    ] = None
    """Tokens of a caption at most."""


@dataclass(frozen=True, kw_only=True)
class Summarize(Lines, Writes):
    """Write the lead of articles, with a model that was trained to.

    Reads one article a line: its text, or a JSON object with "article" (or "source", "document", "text"), a text or a list
    of paragraphs, and a "title" if it has one. Writes each summary on the same line of stdout. What is longer than the
    articles it was trained on is cut; a run that extracts reads the paragraphs first that fit the title.

    Examples: heedful summarize runs/summarize < articles.jsonl > leads.txt;
    heedful summarize runs/summarize --beam 8 --json < articles.jsonl
    """

    longest: Annotated[
        int | None,
        tyro.conf.arg(metavar="INT", help_behavior_hint="(default: data.longest_summary of the run)"),
    ] = None
    """Tokens of a summary at most."""


@dataclass(frozen=True, kw_only=True)
class Generate(Lines, Writes):
    """Go on writing where a text breaks off, with a language model.

    Prints what comes after each text, without the text. On a terminal, a single text is shown token by token as it
    is written. From stdin, every line is a text, and line ends in an answer become spaces (in JSON they stay).

    Examples: heedful generate runs/lm "def read("; heedful generate runs/lm --sample --temperature 0.8 "Once upon";
    heedful generate ./gpt2 --sample --top-p 0.9 --longest 200 --seed 7 < prompts.txt;
    heedful generate ./gpt2-xl --draft ./gpt2 "The cat"; heedful generate ./smollm2 --chat "What is a mat?"
    """

    chat: bool = False
    """Each text is a message to a model that was taught to talk, or a conversation, as a JSON list of objects with a role
    and a content; the folder's chat template says how that is written down. Prints the model's answer."""

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
    """Label texts, or pictures, with a model that was trained to tell labels apart.

    Prints the likeliest label of each line; --json has the probability of every label. Where the model was trained
    on pairs, a tab stands between the two texts of a line. A model of pictures is given files: each word is the name of
    one, or each line of stdin.

    Examples: heedful classify runs/classify "a good film"; heedful classify runs/classify --json < reviews.txt;
    paste reviews.txt <(heedful classify runs/classify < reviews.txt); heedful classify runs/image-classify cat.png dog.jpg
    """


@dataclass(frozen=True, kw_only=True)
class AnswerQuestions(Lines):
    """Find the answers to questions in a text, with a model that was trained to.

    Each line is a question; the text stands behind it and a tab, or --context names a file that has it. Prints the words of
    the text that answer best; --json has their place in it, in characters, and how sure the model is. A long text is read
    in windows that overlap.

    Examples: heedful answer runs/span --context article.txt "Who wrote it?"; heedful answer runs/span < questions.tsv
    """

    context: Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: none)")] = None
    """A text in which all answers are looked for."""


@dataclass(frozen=True, kw_only=True)
class Tag(Lines):
    """Say what part of speech each word is, with a model that was trained to.

    Reads one sentence a line, its words (and marks) separated by spaces, and prints each as word/TAG on the same line;
    --json has words, tags and their probabilities. A model that parses tags as well, if its treebank had tags.

    Examples: heedful tag runs/tag "The cat sleeps ."; heedful tag runs/tag --json < words.txt
    """


@dataclass(frozen=True, kw_only=True)
class Parse(Lines):
    """Find the word that each word hangs on, with a model that was trained to: dependency trees, as CoNLL-U.

    Reads one sentence a line, its words (and marks) separated by spaces. Prints each as a block of lines, one a word,
    with a blank line after it; its comment sent_id is the number of the line. A line that says nothing has no block.

    Examples: heedful parse runs/parse "The cat sleeps ."; heedful parse runs/parse < words.txt > trees.conllu
    """


@dataclass(frozen=True, kw_only=True)
class Embed(Lines):
    """Turn texts into vectors: what the last layer makes of each.

    Prints one vector a line, its numbers separated by spaces.

    Examples: heedful embed runs/mlm "a good film"; heedful embed ./minilm --normalize < in.txt > vectors.txt
    """

    pooling: Annotated[
        Literal["mean", "class"] | None,
        tyro.conf.arg(metavar="mean|class", help_behavior_hint="(default: as the folder says, or mean)"),
    ] = None
    """mean: of all tokens. class: the token that stands for all, [CLS] of an encoder, the last of a decoder that
    classifies. A folder of sentence-transformers says itself which it needs."""

    normalize: bool = False
    """Make every vector one long, so that the product of two is their cosine; some folders say so themselves."""


@dataclass(frozen=True)
class Bench:
    """How fast this build is on this machine, beside the peers that are installed.

    Everyone does the same work in a process of its own, all taking turns; medians after warm-up, as ratios to the
    fastest peer and as a share of what the machine can do at best, which is measured in the same run. Peers: Hugging
    Face transformers, x-transformers, torch.nn, CTranslate2; nanoGPT and gpt-fast from a checkout; any other by a file.
    Where only torch, tokenizers and safetensors are installed: python -m heedful.bench, with the same options.

    Examples: heedful bench; heedful bench --work translate --only ctranslate2 --threads 2;
    heedful bench --work train-gpt2 --peer nanogpt=../nanoGPT; heedful bench --list;
    heedful bench scaling --against length; heedful bench costs
    """

    what: Annotated[
        Literal["peers", "scaling", "costs"], tyro.conf.Positional, tyro.conf.arg(metavar="WHAT")
    ] = "peers"
    """peers: beside them. scaling: heedful's time and memory as something grows, with a plot. costs: what heedful info
    foretells against what is measured."""

    work: Annotated[
        tuple[str, ...],
        tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: all of the device)"),
        tyro.conf.UseAppendAction,
    ] = ()
    """A work, or the beginning of the names of several; may be given several times. --list names them."""

    only: Annotated[
        tuple[str, ...],
        tyro.conf.arg(metavar="TEXT", help_behavior_hint="(default: everyone)"),
        tyro.conf.UseAppendAction,
    ] = ()
    """Beside plain heedful, only contenders whose name contains this; may be given several times."""

    peer: Annotated[
        tuple[str, ...],
        tyro.conf.arg(metavar="NAME=PATH", help_behavior_hint="(default: none)"),
        tyro.conf.UseAppendAction,
    ] = ()
    """nanogpt or gpt-fast and the folder of a checkout, or any name and a Python file that defines a peer
    (docs/benchmarking.md); its code is run. May be given several times."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes the GPU if there is one. fp32 on a CPU, bf16 on a GPU."""

    threads: Annotated[
        int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: as torch would)")
    ] = None
    """Processors that everyone uses."""

    rounds: Annotated[
        int | None,
        tyro.conf.arg(metavar="INT", help_behavior_hint="(default: 3 to 15, as fit into --seconds)"),
    ] = None
    """How many turns everyone gets."""

    seconds: float = 10.0
    """How long the turns of the slowest may take together, at each work; of scaling, how long a step may."""

    at_once: Annotated[int, tyro.conf.arg(metavar="INT")] = 1
    """Contenders that start side by side: sooner done where many compile, but what each compiles for is then longer."""

    against: Literal["length", "batch", "size"] = "length"
    """Of scaling, what grows: tokens in a row (for full, window and strided attention), rows, or the model."""

    utilization: Annotated[
        float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="(default: CPU 0.6, GPU 0.4)")
    ] = None
    """Of costs, the share of the matrix-product rate that time is foretold by."""

    small: bool = False
    """Microscopic sizes, which say nothing of speed: only whether everything works here."""

    list: bool = False
    """Only name the works of this device and who would do them."""

    json: bool = False
    """Print one JSON object instead of tables."""

    output: Annotated[
        str | None,
        tyro.conf.arg(
            metavar="FILE",
            help_behavior_hint="(default: benchmarks/results.jsonl in a clone, else heedful-bench.jsonl)",
        ),
    ] = None
    """Where results are added, a JSON object a line; the table and the plot of scaling are put beside it."""


@dataclass(frozen=True)
class Export:
    """Write a model as another library reads it, and prove that it is the same model there.

    What is written is opened by the other library, if it is installed, and asked what heedful is asked: logits, greedy and
    beam-4 outputs, and the tokens of a corpus of awkward texts. OUT/parity.json has what was found. In float32, logits may
    differ by 1e-5 of their scale. What differs more is kept beside as OUT.different, with exit code 3. heedful info says
    in which formats a model can leave.

    Examples: heedful export runs/demo demo-hf; heedful export runs/demo demo-ct2 --to ctranslate2 --quantize int8;
    heedful export ./gpt2 gpt2-onnx --to onnx; heedful export ./smollm2 smollm2-gguf --to gguf --json
    """

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The folder of a run, or any model that heedful loads."""

    out: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """Where it goes: a folder that is not there yet, or empty."""

    to: Literal["hf", "ctranslate2", "onnx", "gguf"] = "hf"
    """hf: a Hugging Face folder, for transformers' Auto classes. ctranslate2: fast on CPUs. onnx: graphs for onnxruntime,
    named as Optimum names them. gguf: LLaMA-style models, for llama.cpp."""

    quantize: Annotated[
        str | None, tyro.conf.arg(metavar="KIND", help_behavior_hint="(default: float32)")
    ] = None
    """How numbers are stored: float32, or, where the format has it, a smaller kind such as int8."""

    replace: bool = False
    """Replace what was exported to OUT before."""

    json: bool = False
    """Print one JSON object instead: what parity.json has, and where the model is."""


@dataclass(frozen=True)
class Import:
    """Bring a model in: write what heedful reads as a Hugging Face folder, and prove that it is the same model.

    Reads whatever heedful loads: a Hugging Face folder of a known family, a GGUF file, a CTranslate2 folder, a run. The
    weights are read again and compared bit for bit, and outputs with those of the library that the model comes from, if it
    is installed. OUT/parity.json has what was found; a difference is exit code 3, with the model kept as OUT.different.

    Examples: heedful import ./gpt2 models/gpt2; heedful import smollm2.gguf models/smollm2 --json
    """

    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """The model: a folder, or a .gguf file."""

    out: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """Where it goes: a folder that is not there yet, or empty."""

    replace: bool = False
    """Replace what was imported to OUT before."""

    json: bool = False
    """Print one JSON object instead: what parity.json has, and where the model is."""


@dataclass(frozen=True)
class Compare(Learns):
    """Train several variants on the same data and budget, and say which differences are more than noise.

    Every variant is trained with every seed, on the same data, tokenizer and order; one table has their quality with
    its interval, parameters, FLOPs, time and memory, and calls differences within noise "not distinguishable". A variant
    is a name and what differs from the rest: settings (as in --set of heedful train) or the folder of a run whose
    settings it takes; a name alone is the base. history is built in: the lectures' story on the phrasebook, from the RNN
    to the Transformer with each kind of positions.

    The folder holds compare.json, records.jsonl, table.csv, trials.csv, plot.svg, and under runs/ every model, to be used
    like any other. Ctrl-C saves and stops; the same command goes on, and does nothing twice. More seeds or variants can
    be added to a folder.

    Examples: heedful compare history;
    heedful compare translate --corpus phrasebook --size tiny --steps 500 --variant base --variant "post: model.norm=post";
    heedful compare lm --text books/ --tokens 2e6 --variant gpt2 --variant "modern: model.architecture=modern";
    heedful compare lm --text books/ --flops 1e13 --seeds 5 --variant "narrow: model.width=128" --variant "wide: model.width=256";
    heedful compare --resume runs/compare
    """

    what: Annotated[
        Literal[
            "history",
            "translate",
            "lm",
            "mlm",
            "classify",
            "tag",
            "span",
            "choose",
            "parse",
            "summarize",
            "image-classify",
            "caption",
        ],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="TASK|history"),
    ] = "translate"
    """A task, as of heedful train; or history, a comparison that is built in."""

    variant: Annotated[
        tuple[str, ...],
        tyro.conf.arg(metavar="NAME: PART.NAME=VALUE ...", help_behavior_hint="(default: none)"),
        tyro.conf.UseAppendAction,
    ] = ()
    """A variant, given in one word, so in quotes; two or more are needed. Without a name, its settings are its name."""

    size: Annotated[
        Literal["tiny", "small", "base", "large"] | None,
        tyro.conf.arg(help_behavior_hint="(default: small; history: tiny)"),
    ] = None
    """How large the models are, unless a variant says otherwise: 2 layers of 128, 4 of 256, 6 of 512, 6 of 1024."""

    steps: Annotated[
        int | None,
        tyro.conf.arg(metavar="INT", help_behavior_hint="(default: as heedful train; history: 1000)"),
    ] = None
    """The budget: as many steps for each."""

    tokens: Annotated[
        float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="(default: --steps)")
    ] = None
    """Instead of steps: as many target tokens for each, such as 2e6."""

    flops: Annotated[
        float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="(default: --steps)")
    ] = None
    """Instead of steps: as many floating-point operations for each, such as 1e13; a larger model then makes fewer steps."""

    seeds: int = 3
    """How many seeds: 0, 1, 2, ... The more, the smaller the differences that can be told from noise."""

    metric: Annotated[
        str | None,
        tyro.conf.arg(
            metavar="NAME",
            help_behavior_hint="(default: translate bleu, lm and mlm loss, classify, tag and choose accuracy, span f1, parse uas, summarize rougeL)",
        ),
    ] = None
    """What is compared: any score that training tells of held-out data, such as loss, exact, bleu or bits_per_byte."""

    run: Annotated[str | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: runs/compare)")] = (
        None
    )
    """Where everything goes: a new folder, or that of the same comparison, which then goes on."""

    resume: Annotated[str | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: none)")] = None
    """Go on with a comparison as it was asked for; nothing else need be given."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes the GPU if there is one."""

    precision: Annotated[
        Literal["fp32", "bf16", "fp16"] | None,
        tyro.conf.arg(help_behavior_hint="(default: fp32 on a CPU, bf16 on a GPU)"),
    ] = None
    """How numbers are multiplied; the loss is always computed in fp32."""

    json: bool = False
    """Print one JSON object instead of the table: every figure in full, and every pair of variants."""

    set: Annotated[
        tuple[str, ...],
        tyro.conf.arg(metavar="PART.NAME=VALUE", help_behavior_hint="(default: none)"),
        tyro.conf.UseAppendAction,
    ] = ()
    """A setting that all variants share, such as train.batch_tokens=1024; may be given several times."""


# Each command: its options, and the function that does it, imported when it is called.
COMMANDS: dict[str, tuple[type, str]] = {
    "answer": (AnswerQuestions, "heedful.cli.text:answer_questions"),
    "bench": (Bench, "heedful.bench.command:bench"),
    "caption": (Caption, "heedful.cli.caption:caption"),
    "classify": (Classify, "heedful.cli.text:classify"),
    "compare": (Compare, "heedful.compare.command:compare"),
    "demo": (Demo, "heedful.cli.train:demo"),
    "doctor": (Doctor, "heedful.cli.doctor:doctor"),
    "embed": (Embed, "heedful.cli.text:embed"),
    "evaluate": (Evaluate, "heedful.cli.evaluate:evaluate"),
    "export": (Export, "heedful.cli.exchange:export"),
    "fill": (Fill, "heedful.cli.text:fill"),
    "generate": (Generate, "heedful.cli.text:generate"),
    "import": (Import, "heedful.cli.exchange:bring"),
    "info": (Info, "heedful.cli.commands:info"),
    "look": (Look, "heedful.cli.look:look"),
    "paint": (Paint, "heedful.cli.paint:paint"),
    "parse": (Parse, "heedful.cli.text:parse"),
    "summarize": (Summarize, "heedful.cli.text:summarize"),
    "tag": (Tag, "heedful.cli.text:tag"),
    "train": (Train, "heedful.cli.train:train"),
    "translate": (Translate, "heedful.cli.text:translate"),
}
