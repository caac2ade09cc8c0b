"""Show what a model attends to in one input: a heat map in the terminal, and a picture in a file.

For a translator, rows are the words of the translation and columns those of the source. For a language model
or an encoder, rows and columns are the tokens of the text. Without --layer and --head, it prints a table of
all heads and the most informative head as a heat map; the picture shows all heads. --query prints the
computation of one row: its score with every key, the scaling, the mask, the softmax and the weighted values.
--positions shows the position encoding, --lens what every layer would predict, --rollout the attention
through all layers, and --beside how alike another model is.

For an image model, TEXT is the name of an image file. The picture shows the attention of the class token over
the image, layer by layer and through all layers (rollout). For a captioning model, it shows the attention of
each word. For the codes of text-to-image, it shows the image, its codes and the image decoded from them.

RUN is a folder that `heedful train` wrote, or a Hugging Face folder. Layers and heads are counted from 1.

Examples: heedful look runs/demo "Their small cat was a fast animal.";
heedful look runs/demo "Their small cat was a fast animal." --head best --output alignment.svg;
heedful look runs/demo "Their small cat was a fast animal." --query chat;
heedful look runs/demo "Their small cat was a fast animal." --edit zero:cross.3.2 --save trace.safetensors;
heedful look runs/demo "Their small cat was a fast animal." --by norm --head best;
heedful look runs/demo "Their small cat was a fast animal." --lens;
heedful look runs/demo "Their small cat was a fast animal." --beside runs/other;
heedful look runs/lm "def f(x):" --layer 1 --head 2 --output f.png; heedful look --positions runs/demo;
heedful look --positions sinusoidal --width 512 --length 50 --output sinusoidal.png;
heedful look runs/image-classify cat.png; heedful look runs/caption photo.png;
heedful look runs/text-to-image/codes photo.png
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from ..errors import BadInput
from ..files import one_line, present, write_bytes, write_text
from ..inside.look.drawing import Drawing
from ..inside.look.png import pillow
from ..interop.run_folder import is_run, refuse_stage
from ..runs.finished import open_model, read_run
from .shared.look_edits import EditedModel
from .shared.options import Positional, Repeated, arg
from .shared.terminal import check_free, drawable, say

if TYPE_CHECKING:
    from ..corpora.phrasebook.pair import Pair
    from ..inside.lens import Lens
    from ..inside.look.attention import Look
    from ..inside.look.captions import CaptionLook
    from ..inside.rollout import Rollout
    from ..interop.loaded import Loaded

FORMATS = (".svg", ".png")
UNKNOWN = ("[UNK]", "<unk>", "<UNK>")


@dataclass(frozen=True)
class LookOptions:
    """The options of `heedful look`."""

    run: Annotated[str, Positional, arg("RUN")]
    """The folder of a run, or a Hugging Face folder. With --positions also the name of a scheme that learns
    nothing, which is drawn without a model: sinusoidal, rotary or alibi."""

    text: Annotated[str | None, Positional, arg("TEXT", "none, with --positions")] = None
    """The input: a text; token numbers if the model has no tokenizer; an image file for an image model."""

    target: Annotated[str | None, arg("TEXT", "the model's own")] = None
    """The target of an encoder-decoder, instead of its own greedy translation or caption."""

    trees: Annotated[str | None, arg("FILE", "none")] = None
    """For a model whose positions come from syntax: a CoNLL-U file, as `heedful parse` writes it. Its first
    sentence is the tree of TEXT."""

    which: Annotated[
        Literal["self", "cross", "encoder"] | None,
        arg("self|cross|encoder", "cross in an encoder-decoder, else self"),
    ] = None
    """Which attention to show. cross: from the target to the source. self: within one text (in an
    encoder-decoder, within the target). encoder: within the source."""

    layer: Annotated[int | None, arg("INT", "all")] = None
    """One layer, counted from 1."""

    head: Annotated[str | None, arg("INT|mean|best", "all")] = None
    """One head, counted from 1; mean: the mean of a layer's heads; best: the head with the lowest alignment
    error rate where reference alignments exist (phrasebook), else the head with the highest mutual
    information between query position and attended key, in bits."""

    by: Annotated[
        Literal["weight", "norm", "zeroing", "gradient"] | None,
        arg("weight|norm|zeroing|gradient", "weight"),
    ] = None
    """What to show for each query and key. weight: the attention weight. norm: the weight times the norm of
    the projected value. zeroing: how far the block's output moves without that value, as a cosine distance.
    gradient: the weight times the derivative of the score of the predicted token."""

    row: Annotated[Literal["prediction", "input"] | None, arg("prediction|input", "prediction")] = None
    """For cross-attention: the row of a word is the one that predicts it, or the one that reads it."""

    query: Annotated[str | None, arg("WORD|INT", "no table")] = None
    """Print the computation of one row, given as its word or its number from 1. The best head is shown
    unless --head names another."""

    lens: bool = False
    """Show what every layer would predict if it were the last: a line for each position, with the token and
    its probability (logit lens). With --query, show one position: ranks, norms, and what each sublayer
    adds."""

    rollout: bool = False
    """Show how much of each token has reached each position through all layers (attention rollout)."""

    edit: Annotated[tuple[str, ...], arg("EDIT", "none"), Repeated] = ()
    """Change the model while it reads the text; may be given several times. zero:cross.3.2 sets the output of
    a head to 0, mean:cross.3.2 to its mean over held-out texts; uniform:, scale:, force:, patch:, drop:,
    mask: and positions:none are in docs/howto/inside.md. A patch names a file that --save wrote."""

    beside: Annotated[str | None, arg("RUN", "none")] = None
    """Another model, to compare this one with: CKA between their layers over held-out texts, and the
    log-probability that each gives to the tokens of TEXT, or of its translation."""

    save: Annotated[str | None, arg("FILE", "none")] = None
    """Write a trace (weights, queries, keys, values, streams, logits) to a new .safetensors file."""

    positions: bool = False
    """Instead of a text: draw the model's position table, its rotary angles, or the bias of its scores."""

    length: Annotated[int | None, arg("INT", "48")] = None
    """How many positions to draw."""

    width: Annotated[int | None, arg("INT", "128")] = None
    """With --positions and the name of a scheme: the width of the model, or of a head (rotary)."""

    heads: Annotated[int | None, arg("INT", "8")] = None
    """With --positions alibi: the number of heads."""

    output: Annotated[
        str | None,
        arg("FILE", "attention.svg, lens.svg and so on, or the next free name; with --query or --json none"),
    ] = None
    """Where to write the picture: a new .svg or .png file (.png needs Pillow)."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes the GPU if there is one."""

    json: bool = False
    """Print one JSON object with all values instead. A picture is then written only with --output."""


def look(given: LookOptions) -> None:
    """Show what a model attends to, and draw it."""
    from ..inside.attribute import attribute
    from ..inside.look.heads import practice
    from ..models.captioner import CaptionerConfig
    from ..models.dvae import DVAEConfig
    from ..models.vit import ViTConfig
    from ..tasks.alignment import find_pair

    check_options(given)
    output = None if given.output is None else new_file(given.output)
    if given.positions and not present(Path(given.run)):
        return look_at_scheme(given, output)
    if given.width is not None or given.heads is not None:
        option = "width" if given.width is not None else "heads"
        raise BadInput(f"--{option} is for a position scheme without a model, and {given.run} has its own")
    loaded = open_model(Path(given.run), given.device)
    if isinstance(loaded.config, DVAEConfig) and given.text is not None:
        return tell_codes(given, loaded, output)
    refuse_stage(Path(given.run), loaded.architecture, "look")
    if given.positions:
        return look_at_positions(given, loaded, output)
    assert given.text is not None
    if given.lens or given.rollout:
        return look_through_layers(given, loaded, output)
    if given.beside is not None:
        return look_beside(given, given.beside, loaded, output)
    if isinstance(loaded.config, ViTConfig | CaptionerConfig):
        return look_at_file(given, loaded, output)
    gold = practice(Path(given.run))
    head = head_of(given.head)
    if head is None and given.query is not None:
        head = "best"
    text = given.text if given.trees is None else with_tree(given.text, given.trees)
    how: dict[str, Any] = {"target": given.target, "which": given.which, "layer": given.layer, "head": head}
    how |= {"by": given.by or "weight", "row": given.row or "prediction", "gold": gold}
    edited = EditedModel(loaded, given.run, given.edit)
    with edited.editing():
        seen = attribute(loaded, text, **how)
    if given.save is not None:
        edited.save_trace(given.save, text, given.target)
    steps = seen.steps(given.query) if given.query is not None else None
    if steps is not None:
        steps = edited.with_parts(steps, seen.which, text, given.target)
    if given.json:
        seen = seen.beside(find_pair(given.text) if gold and seen.which == "cross" else None)
        picture = save(seen.picture(), output) if output else None
        found = {"run": given.run, "edits": list(given.edit), **seen.as_json()}
        found |= {"query": None if steps is None else steps.as_json()}
        return print(json.dumps({**found, "picture": picture}, indent=2, allow_nan=False))
    show(f"{given.run}: {loaded.architecture}, {described(seen)}\n\n  {seen.sentence()}\n")
    if given.edit:
        show(f"under the edits {', '.join(given.edit)}\n")
    warn_of_unknown(seen)
    pair = find_pair(given.text) if gold and seen.which == "cross" else None
    seen = seen.beside(pair)
    show(f"{named(seen)}{seen.text(width())}" if steps is None else steps.text())
    for line in alignment(seen, pair):
        show(f"\n{line}")
    if output or steps is None:
        say(f"picture: {save(seen.picture(), output or free_name('attention'))}")


def check_options(given: LookOptions) -> None:
    """Options that would do nothing are refused."""
    if given.save is not None:
        if Path(given.save).suffix != ".safetensors":
            raise BadInput(one_line(f"--save {given.save}: a trace is a .safetensors file"))
        check_free(Path(given.save))
    views = ("positions", "lens", "rollout", "beside")
    other = next((name for name in views if getattr(given, name)), None)
    for name in ("edit", "save") if other else ():
        if getattr(given, name):
            raise BadInput(f"--{name} applies to attention, and --{other} shows something else: leave it out")
    if given.positions:
        idle = ("text", "target", "trees", "which", "layer", "head", "by", "row", "query")
        for name in idle:
            if getattr(given, name) is not None:
                option = "a text" if name == "text" else f"--{name}"
                raise BadInput(f"--positions looks at no text: leave {option} out")
        for name in ("lens", "rollout", "beside"):
            if getattr(given, name):
                raise BadInput(f"--positions looks at no text: leave --{name} out")
    elif given.text is None:
        raise BadInput('look needs a TEXT, such as "Their cat was fast.": see `heedful look --help`')
    elif given.length is not None:
        raise BadInput("--length is of --positions: how many of them to draw")
    elif given.lens or given.rollout or given.beside is not None:
        check_through_layers(given)
    elif given.query is not None and (given.by not in (None, "weight") or given.row is not None):
        option = "row" if given.by in (None, "weight") else "by"
        raise BadInput(
            f"--query shows how the attention weights of one row are computed: leave --{option} out"
        )


def check_through_layers(given: LookOptions) -> None:
    """Refuse options of single heads with --lens, --rollout and --beside, which look at all layers."""
    views = [name for name in ("lens", "rollout", "beside") if getattr(given, name)]
    if len(views) > 1:
        raise BadInput(f"--{views[0]} and --{views[1]} are two views: give one of them")
    option = views[0]
    idle = {"lens": ("which",), "rollout": ("query",), "beside": ("which", "query", "trees")}[option]
    for name in (*idle, "layer", "head", "by", "row"):
        if getattr(given, name) is not None:
            raise BadInput(f"--{option} looks at all layers as a whole: leave --{name} out")


def with_tree(text: str, file: str) -> str:
    """The text with its tree, the first of a file."""
    from ..data.conllu import read_sentences
    from ..data.trees import parsed

    sentence = next(iter(read_sentences(file)), None)
    if sentence is None:
        raise BadInput(one_line(f"{file} has no tree: its first sentence is to be the text"))
    return parsed(text, sentence, f"{file}:{sentence.line}")


def head_of(given: str | None) -> int | str | None:
    """A number, "mean" or "best"."""
    if given is None or given in ("mean", "best"):
        return given
    if not (given.isascii() and given.isdigit()):
        raise BadInput(f'--head takes a number, mean or best, not "{one_line(given)}"')
    return int(given)


# What is printed


def described(seen: Look) -> str:
    """Which attention it is, and how much of it there is."""
    from ..inside.look.attention import BY, NAMES

    layers = len(seen.weights)
    heads = len(next(iter(seen.weights.values())))
    counts = f"{layers} {'layer' if layers == 1 else 'layers'} of {heads} {'head' if heads == 1 else 'heads'}"
    measure = "" if seen.by == "weight" else f", {BY[seen.by]}"
    return f"{NAMES[seen.which, seen.is_pair]}, {counts}{measure}"


def warn_of_unknown(seen: Look) -> None:
    """Say how many words the vocabulary lacks: all become the same token."""
    unknown = [word for word in seen.across if word in UNKNOWN]
    if unknown:
        share = f"{len(unknown)} of {len(seen.across)} tokens"
        say(f"warning: {share} are not in the vocabulary; the model reads {unknown[0]} instead")


def named(seen: Look) -> str:
    """The name of a single head, and why it was chosen."""
    if len(seen.chosen) > 1:
        return ""
    head = seen.chosen[0]
    return f"{head.name}{f', {seen.best_by}' if head is seen.best else ''}:\n\n"


def alignment(seen: Look, pair: Pair | None) -> list[str]:
    """The error rate where a reference alignment exists; where it could, how to have one."""
    if pair is None:
        return []
    if seen.pair is None:
        why = "the phrasebook has a reference alignment for another translation of this sentence"
        return [f'{why}: compare with it by --target "{pair.target}"']
    rate = f"alignment error rate of {seen.shown.name}: {seen.error_rate(seen.shown):.2f}"
    return [f"{rate} (0: same links as the reference; 1: none in common)"]


def width() -> int:
    return max(40, shutil.get_terminal_size((100, 24)).columns)


def show(text: str) -> None:
    print(drawable(text), flush=True)


# All layers


def look_through_layers(given: LookOptions, loaded: Loaded, output: Path | None) -> None:
    """What every layer would predict, or what reached each position through all layers."""
    from ..use.model import Model

    assert given.text is not None
    model = Model(loaded, given.run, own=is_run(Path(given.run)))
    text = given.text if given.trees is None else with_tree(given.text, given.trees)
    query = given.query if given.lens else None
    seen: Lens | Rollout
    if given.lens:
        seen = model.lens(text, given.target)
        body = seen.text(width()) if query is None else seen.position_text(query)
        what = "what each layer would predict"
    else:
        seen = model.rollout(text, given.target, which=given.which)
        body, what = seen.text(width()), f"{seen.which}-attention through all layers"
    if given.json:
        picture = save(seen.picture(), output) if output else None
        found = {"run": given.run, **seen.as_json(), "picture": picture}
        return print(json.dumps(found, indent=2, allow_nan=False))
    line = " → ".join(filter(None, (seen.words.text, seen.words.translation)))
    show(f"{given.run}: {loaded.architecture}, {what}\n\n  {line}\n\n{body}")
    if output or query is None:
        name = "lens" if given.lens else "rollout"
        say(f"picture: {save(seen.picture(), output or free_name(name))}")


def look_beside(given: LookOptions, other: str, loaded: Loaded, output: Path | None) -> None:
    """How alike two models are."""
    from .shared.look_beside import beside

    assert given.text is not None
    second = open_model(Path(other), given.device)
    seen = beside(given.run, loaded, second, given.text, given.target)
    if given.json:
        found = {"run": given.run, "beside": other, **seen.as_json()}
        picture = save(seen.picture(), output) if output else None
        return print(json.dumps({**found, "picture": picture}, indent=2, allow_nan=False))
    show(f"{given.run}: {loaded.architecture}; {other}: {second.architecture}\n\n{seen.text()}")
    say(f"picture: {save(seen.picture(), output or free_name('beside'))}")


# Pictures


def look_at_file(given: LookOptions, loaded: Loaded, output: Path | None) -> None:
    """What a model attends to in the image of a file."""
    from ..inside.look.captions import look_at_caption
    from ..inside.look.images import look_at_image
    from ..models.captioner import CaptionerConfig
    from ..use.model import Model

    writes = isinstance(loaded.config, CaptionerConfig)
    for name in ("which", "query", "trees", "by", "row", "edit", "save", *(() if writes else ("target",))):
        if getattr(given, name) not in (None, ()):
            raise BadInput(f"--{name} applies to texts, and {given.run} reads images: leave it out")
    assert given.text is not None
    folder = Path(given.run)
    model = Model(loaded, given.run, own=is_run(folder))
    what = model.read_picture(given.text), model.preprocessing, given.text
    how: dict[str, Any] = {"layer": given.layer, "head": head_of(given.head)}
    if writes:
        return tell_caption(given, look_at_caption(loaded, *what, target=given.target, **how), output)
    seen = look_at_image(loaded, *what, **how)
    if given.json:
        picture = save(seen.picture(), output) if output else None
        return print(json.dumps({"run": given.run, **seen.as_json(), "picture": picture}, indent=2))
    show(f"{given.run}: {loaded.architecture}\n\n  {seen.sentence()}\n")
    show(f"attention of {seen.who()} to each patch, rollout through all layers:\n\n{seen.text(width())}")
    say(f"picture: {save(seen.picture(), output or free_name('attention'))}")


def tell_caption(given: LookOptions, seen: CaptionLook, output: Path | None) -> None:
    """What each word of a caption attends to."""
    if given.json:
        picture = save(seen.picture(), output) if output else None
        return print(json.dumps({"run": given.run, **seen.as_json(), "picture": picture}, indent=2))
    show(f"{given.run}: {seen.loaded.architecture}\n\n  {seen.sentence()}\n\n{seen.text()}")
    say(f"picture: {save(seen.picture(), output or free_name('attention'))}")


def tell_codes(given: LookOptions, loaded: Loaded, output: Path | None) -> None:
    """An image, its codes, and the image decoded from them."""
    from ..data.images.prepare import ready_file
    from ..inside.look.codes import look_at_codes

    others = ("lens", "rollout", "beside", "edit", "save")
    for name in ("which", "query", "target", "trees", "layer", "head", "by", "row", *others):
        if getattr(given, name) not in (None, False, ()):
            raise BadInput(f"--{name} applies to attention, and {given.run} has none: leave it out")
    assert given.text is not None
    pixels_HWC = ready_file(given.text, read_run(Path(given.run))[0].data)
    seen = look_at_codes(loaded, pixels_HWC, given.text)
    if given.json:
        picture = save(seen.picture(), output) if output else None
        return print(json.dumps({"run": given.run, **seen.as_json(), "picture": picture}, indent=2))
    show(f"{given.run}: {loaded.architecture}\n\n  {seen.sentence()}\n\n{seen.text()}")
    say(f"picture: {save(seen.picture(), output or free_name('codes'))}")


# Positions


def look_at_positions(given: LookOptions, loaded: Loaded, output: Path | None) -> None:
    """The table, angles or bias through which a model knows order."""
    from ..inside.look import positions as look_positions

    found = look_positions.positions(loaded, given.length or look_positions.LENGTH)
    if not found and not given.json:
        return show(f"{given.run}: no positions: order enters by the mask alone, or not at all")
    picture = look_positions.picture_of(found, given.run)
    if given.json:
        told: dict[str, Any] = {
            "run": given.run,
            "architecture": loaded.architecture,
            "positions": [o.as_json() for o in found],
        }
        told["picture"] = save(picture, output) if output else None
        return print(json.dumps(told, indent=2, allow_nan=False))
    for order in found:
        show(f"{order.text(width())}\n")
    say(f"picture: {save(picture, output or free_name('positions'))}")


def look_at_scheme(given: LookOptions, output: Path | None) -> None:
    """A position scheme without a model."""
    from ..inside.look.positions import LENGTH
    from ..inside.look.schemes import picture_of_scheme, scheme

    found = scheme(given.run, given.length or LENGTH, given.width, given.heads)
    picture = picture_of_scheme(found)
    if given.json:
        told: dict[str, Any] = {"run": None, "architecture": None, "positions": [found.as_json()]}
        told["picture"] = save(picture, output) if output else None
        return print(json.dumps(told, indent=2, allow_nan=False))
    show(f"{found.text(width())}\n")
    say(f"picture: {save(picture, output or free_name('positions'))}")


# Files


def new_file(name: str) -> Path:
    """Where a picture may be written: a name of a known format that is not taken."""
    path = Path(name)
    if path.suffix.lower() not in FORMATS:
        raise BadInput(one_line(f"--output {path}: a picture is an {' or a '.join(FORMATS)} file"))
    if path.suffix.lower() == ".png":
        pillow()  # better now than after the work
    check_free(path)
    return path


def free_name(stem: str) -> Path:
    """STEM.svg here, or with the first number that is free."""
    number, path = 1, Path(f"{stem}.svg")
    while present(path):
        number += 1
        path = Path(f"{stem}-{number}.svg")
    return path


def save(picture: Drawing, path: Path) -> str:
    """Draw it into a file, written aside and renamed."""
    if path.suffix.lower() == ".png":
        write_bytes(path, picture.png())
    else:
        write_text(path, picture.svg())
    return str(path)
