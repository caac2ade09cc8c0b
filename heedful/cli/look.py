"""What a model attends to in one input: a heat map here, and a picture in a file.

Of a translator: which words of the source each word of its translation looks at. Of a language model or an
encoder: which tokens each token looks at. Without --layer and --head: a table of all heads, the most
telling one as a heat map, and all of them in the picture. --query follows one word through the formula: its
score with every key, scaled, masked, made weights, and what it takes home. --positions shows how the model
knows order.

Of a model of pictures: TEXT is the name of an image file, and what is drawn is where the class token looks,
as heat over the image, layer by layer and through all layers (rollout). Of one that writes captions: where
each word looks. Of the codes of text-to-image: the image, its codes, and what they become.

RUN is what `heedful train` wrote, or a Hugging Face folder. Layers and heads are counted from 1.

Examples: heedful look runs/demo "Their small cat was a fast animal.";
heedful look runs/demo "Their small cat was a fast animal." --head best --output alignment.svg;
heedful look runs/demo "Their small cat was a fast animal." --query chat;
heedful look runs/lm "def f(x):" --layer 1 --head 2 --output f.png; heedful look --positions runs/demo;
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
from .shared.options import Positional, arg
from .shared.terminal import check_free, drawable, say

if TYPE_CHECKING:
    from ..corpora.phrasebook.pair import Pair
    from ..inside.look.attention import Look
    from ..inside.look.captions import CaptionLook
    from ..interop.loaded import Loaded

FORMATS = (".svg", ".png")
UNKNOWN = ("[UNK]", "<unk>", "<UNK>")


@dataclass(frozen=True)
class LookOptions:
    """The options of `heedful look`."""

    run: Annotated[str, Positional, arg("RUN")]
    """The folder of a run, or a Hugging Face folder."""

    text: Annotated[str | None, Positional, arg("TEXT", "none, with --positions")] = None
    """What the model reads; for a model without a tokenizer, token numbers; for a model of pictures, an
    image file."""

    target: Annotated[str | None, arg("TEXT", "the model's own")] = None
    """What an encoder-decoder is to have written, instead of its own greedy translation or caption."""

    which: Annotated[
        Literal["self", "cross", "encoder"] | None,
        arg("self|cross|encoder", "cross in an encoder-decoder, else self"),
    ] = None
    """Whose attention: cross, of what is written to what is read; self, of tokens to tokens of the same
    text (in an encoder-decoder, of the target); encoder, of the source to itself."""

    layer: Annotated[int | None, arg("INT", "all")] = None
    """One layer, counted from 1."""

    head: Annotated[str | None, arg("INT|mean|best", "all")] = None
    """One head, counted from 1; mean: of a layer's heads; best: the head that aligns best, where gold
    alignments exist (phrasebook), else the one whose gaze tells most of who is looking, in bits: H(mean
    row) - mean H(row)."""

    query: Annotated[str | None, arg("WORD|INT", "no table")] = None
    """Step by step for one row, given by its word or counted from 1; by the best head unless --head says
    another."""

    positions: bool = False
    """Instead of a text: draw the model's position table, its rotary angles, or the bias of its scores."""

    length: Annotated[int | None, arg("INT", "48")] = None
    """How many positions to draw."""

    output: Annotated[
        str | None,
        arg("FILE", "attention.svg or codes.svg, or the next free name; with --query or --json none"),
    ] = None
    """The picture, .svg or .png (which needs Pillow); a file that is not there yet."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes the GPU if there is one."""

    json: bool = False
    """Print one JSON object instead, with all the numbers; a picture is then drawn only if --output names
    it."""


def look(given: LookOptions) -> None:
    """Show what a model attends to, and draw it."""
    from ..inside.look.attention import look
    from ..inside.look.heads import practice
    from ..models.captioner import CaptionerConfig
    from ..models.dvae import DVAEConfig
    from ..models.vit import ViTConfig
    from ..tasks.alignment import find_pair

    check_options(given)
    output = None if given.output is None else new_file(given.output)
    loaded = open_model(Path(given.run), given.device)
    if isinstance(loaded.config, DVAEConfig) and given.text is not None:
        return tell_codes(given, loaded, output)
    refuse_stage(Path(given.run), loaded.architecture, "look")
    if given.positions:
        return look_at_positions(given, loaded, output)
    assert given.text is not None
    if isinstance(loaded.config, ViTConfig | CaptionerConfig):
        return look_at_file(given, loaded, output)
    gold = practice(Path(given.run))
    head = head_of(given.head)
    if head is None and given.query is not None:
        head = "best"
    seen = look(
        loaded, given.text, target=given.target, which=given.which, layer=given.layer, head=head, gold=gold
    )
    steps = seen.steps(given.query) if given.query is not None else None
    if given.json:
        seen = seen.beside(find_pair(given.text) if gold and seen.which == "cross" else None)
        picture = save(seen.picture(), output) if output else None
        found = {"run": given.run, **seen.as_json(), "query": None if steps is None else steps.as_json()}
        return print(json.dumps({**found, "picture": picture}, indent=2, allow_nan=False))
    show(f"{given.run}: {loaded.architecture}, {described(seen)}\n\n  {seen.sentence()}\n")
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
    if given.positions:
        idle = ("text", "target", "which", "layer", "head", "query")
        for name in idle:
            if getattr(given, name) is not None:
                option = "a text" if name == "text" else f"--{name}"
                raise BadInput(f"--positions looks at no text: leave {option} out")
    elif given.text is None:
        raise BadInput('look needs a TEXT, such as "Their cat was fast.": see `heedful look --help`')
    elif given.length is not None:
        raise BadInput("--length is of --positions: how many of them to draw")


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
    from ..inside.look.attention import NAMES

    layers = len(seen.weights)
    heads = len(seen.heads) // layers
    counts = f"{layers} {'layer' if layers == 1 else 'layers'} of {heads} {'head' if heads == 1 else 'heads'}"
    return f"{NAMES[seen.which, seen.is_pair]}, {counts}"


def warn_of_unknown(seen: Look) -> None:
    """Words that the vocabulary lacks are all one to the model."""
    unknown = [word for word in seen.across if word in UNKNOWN]
    if unknown:
        share = f"{len(unknown)} of {len(seen.across)} tokens"
        say(f"warning: {share} are unknown to the model, which reads {unknown[0]}")


def named(seen: Look) -> str:
    """The name of a single head, and why it was chosen."""
    if len(seen.chosen) > 1:
        return ""
    head = seen.chosen[0]
    return f"{head.name}{f', {seen.best_by}' if head is seen.best else ''}:\n\n"


def alignment(seen: Look, pair: Pair | None) -> list[str]:
    """The error rate where a gold alignment exists; where it could, how to have one."""
    if pair is None:
        return []
    if seen.pair is None:
        told = "the phrasebook aligns this sentence with another translation"
        return [f'{told}: --target "{pair.target}" compares with it']
    rate = seen.error_rate(seen.shown)
    told = f"alignment error rate of {seen.shown.name}: {rate:.2f}"
    return [f"{told} (0 is the gold alignment, 1 has no link of it)"]


def width() -> int:
    return max(40, shutil.get_terminal_size((100, 24)).columns)


def show(text: str) -> None:
    print(drawable(text), flush=True)


# Pictures


def look_at_file(given: LookOptions, loaded: Loaded, output: Path | None) -> None:
    """Where a model looks in the image of a file."""
    from ..data.images.prepare import ready_file
    from ..inside.look.captions import look_at_caption
    from ..inside.look.images import look_at_image
    from ..models.captioner import CaptionerConfig
    from ..tasks.image_classify import data_of

    writes = isinstance(loaded.config, CaptionerConfig)
    for name in ("which", "query", *(() if writes else ("target",))):
        if getattr(given, name) is not None:
            raise BadInput(f"--{name} is of texts, and {given.run} reads pictures: leave it out")
    assert given.text is not None
    folder = Path(given.run)
    data = data_of(read_run(folder)[0] if is_run(folder) else None, loaded.config)
    pixels_HWC = ready_file(given.text, data)
    how: dict[str, Any] = {"layer": given.layer, "head": head_of(given.head)}
    if writes:
        return tell_caption(
            given, look_at_caption(loaded, pixels_HWC, data, given.text, target=given.target, **how), output
        )
    seen = look_at_image(loaded, pixels_HWC, data, given.text, **how)
    if given.json:
        picture = save(seen.picture(), output) if output else None
        return print(json.dumps({"run": given.run, **seen.as_json(), "picture": picture}, indent=2))
    show(f"{given.run}: {loaded.architecture}\n\n  {seen.sentence()}\n")
    told = f"where {seen.who()} looks, patch by patch, by the rollout through all layers"
    show(f"{told}:\n\n{seen.text(width())}")
    say(f"picture: {save(seen.picture(), output or free_name('attention'))}")


def tell_caption(given: LookOptions, seen: CaptionLook, output: Path | None) -> None:
    """Where each word of a caption looks."""
    if given.json:
        picture = save(seen.picture(), output) if output else None
        return print(json.dumps({"run": given.run, **seen.as_json(), "picture": picture}, indent=2))
    show(f"{given.run}: {seen.loaded.architecture}\n\n  {seen.sentence()}\n\n{seen.text()}")
    say(f"picture: {save(seen.picture(), output or free_name('attention'))}")


def tell_codes(given: LookOptions, loaded: Loaded, output: Path | None) -> None:
    """A picture, its codes, and what they become."""
    from ..data.images.prepare import ready_file
    from ..inside.look.codes import look_at_codes

    for name in ("which", "query", "target", "layer", "head"):
        if getattr(given, name) is not None:
            raise BadInput(f"--{name} is of attention, and {given.run} has none: leave it out")
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
