"""`heedful look`: the attention of one input, in the terminal and as a picture."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..corpora.phrasebook import Pair
from ..data.images.prepare import ready_file
from ..errors import BadInput
from ..files import one_line, present, write_bytes, write_text
from ..inside.look import attention as looking
from ..inside.look import positions as look_positions
from ..inside.look.attention import Look
from ..inside.look.captions import CaptionLook, look_at_caption
from ..inside.look.codes import look_at_codes
from ..inside.look.images import look_at_image
from ..inside.look.pictures import Picture, pillow
from ..interop.loaded import Loaded
from ..interop.run_folder import is_run, refuse_stage
from ..models.captioner import CaptionerConfig
from ..models.dvae import DVAEConfig
from ..models.vit import ViTConfig
from ..runs.finished import open_model, read_run
from ..tasks.alignment import find_pair
from ..tasks.image_classify import data_of
from .commands import drawable

if TYPE_CHECKING:
    from .options import Look as Options

FORMATS = (".svg", ".png")
UNKNOWN = ("[UNK]", "<unk>", "<UNK>")


def look(given: Options) -> None:
    """Show what a model attends to, and draw it."""
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
    gold = looking.practice(Path(given.run))
    head = head_of(given.head)
    if head is None and given.query is not None:
        head = "best"
    seen = looking.look(
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


def check_options(given: Options) -> None:
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
    layers = len(seen.weights)
    heads = len(seen.heads) // layers
    counts = f"{layers} {'layer' if layers == 1 else 'layers'} of {heads} {'head' if heads == 1 else 'heads'}"
    return f"{looking.NAMES[seen.which, seen.is_pair]}, {counts}"


def warn_of_unknown(seen: Look) -> None:
    """Words that the vocabulary lacks are all one to the model."""
    unknown = [word for word in seen.across if word in UNKNOWN]
    if unknown:
        say(
            f"warning: {len(unknown)} of {len(seen.across)} tokens are unknown to the model, which reads {unknown[0]}"
        )


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
        return [
            f'the phrasebook aligns this sentence with another translation: --target "{pair.target}" compares with it'
        ]
    rate = seen.error_rate(seen.shown)
    told = f"alignment error rate of {seen.shown.name}: {rate:.2f}"
    return [f"{told} (0 is the gold alignment, 1 has no link of it)"]


def width() -> int:
    return max(40, shutil.get_terminal_size((100, 24)).columns)


def show(text: str) -> None:
    print(drawable(text), flush=True)


def say(line: str) -> None:
    print(one_line(line), file=sys.stderr, flush=True)


# Pictures


def look_at_file(given: Options, loaded: Loaded, output: Path | None) -> None:
    """Where a model looks in the image of a file."""
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
    show(
        f"where {seen.who()} looks, patch by patch, by the rollout through all layers:\n\n{seen.text(width())}"
    )
    say(f"picture: {save(seen.picture(), output or free_name('attention'))}")


def tell_caption(given: Options, seen: CaptionLook, output: Path | None) -> None:
    """Where each word of a caption looks."""
    if given.json:
        picture = save(seen.picture(), output) if output else None
        return print(json.dumps({"run": given.run, **seen.as_json(), "picture": picture}, indent=2))
    show(f"{given.run}: {seen.loaded.architecture}\n\n  {seen.sentence()}\n\n{seen.text()}")
    say(f"picture: {save(seen.picture(), output or free_name('attention'))}")


def tell_codes(given: Options, loaded: Loaded, output: Path | None) -> None:
    """A picture, its codes, and what they become."""
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


def look_at_positions(given: Options, loaded: Loaded, output: Path | None) -> None:
    """The table, angles or bias through which a model knows order."""
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
    if present(path):
        raise BadInput(one_line(f"{path} is there already: give another --output, or move it away"))
    if not path.parent.is_dir():
        raise BadInput(one_line(f"{path.parent} is no folder, so {path.name} cannot be written there"))
    return path


def free_name(stem: str) -> Path:
    """STEM.svg here, or with the first number that is free."""
    number, path = 1, Path(f"{stem}.svg")
    while present(path):
        number += 1
        path = Path(f"{stem}-{number}.svg")
    return path


def save(picture: Picture, path: Path) -> str:
    """Draw it into a file, written aside and renamed."""
    if path.suffix.lower() == ".png":
        write_bytes(path, picture.png())
    else:
        write_text(path, picture.svg())
    return str(path)
