"""A run's folder, without torch: whether a folder is a run, and whether it has a model yet."""

from __future__ import annotations

from pathlib import Path

from ..errors import BadInput, command
from ..files import inside, naming, present, read_json

RECIPE, CONFIG, WEIGHTS, LABELS = "recipe.json", "config.json", "model.safetensors", "labels.json"
NO_VOCABULARY = "none"  # the vocabulary that the recipe notes of a model that reads no text
NAMED = 5  # runs that a sentence names
STAGES = "stages.json"  # in the folder of a run of text-to-image, whose stages are runs of their own
OF_STAGES = ("dvae", "dalle", "clip", "judge")  # the architectures of its stages
A_STAGE = "a stage of text-to-image"
EXAMPLE = "a red circle"  # a caption


def is_run(folder: Path) -> bool:
    """Whether heedful itself trained the model of this folder."""
    with naming(folder):
        return (folder / RECIPE).is_file() and (folder / CONFIG).is_file()


def check_written(run: Path) -> None:
    """Refuse a run that was stopped before its first evaluation, and so has no weights to use."""
    if present(run / CONFIG) and present(run / WEIGHTS):
        return
    with naming(run / RECIPE):
        said = read_json(inside(run, RECIPE)).get("evaluate")
    every = said.get("every") if isinstance(said, dict) else None
    when = "now and then, and at its end"
    if type(every) is int:
        when = "every step" if every == 1 else f"every {every:,} steps and at its end"
    resume = command("train", "--resume", run)
    raise BadInput(f"{run} has no model yet (a run writes it {when}): go on with `{resume}`")


def runs_inside(folder: Path) -> str:
    """The end of a sentence about a folder that is no model but holds some: "; there are models in it: a"."""
    with naming(folder):
        found = sorted(path.parent for path in folder.glob(f"*/{CONFIG}"))
    if not found:
        return ""
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return f"; there are models in it: {', '.join(map(str, found[:NAMED]))}{more}"


def refuse_stages(folder: Path) -> None:
    """Refuse the folder of all stages of text-to-image where one model is asked for."""
    if present(folder / STAGES):
        stages = sorted(str(path.parent) for path in folder.glob(f"*/{CONFIG}"))
        paint = command("paint", folder, EXAMPLE)
        fault = f"{folder} holds the stages of text-to-image: draw with `{paint}`"
        raise BadInput(fault + (f", or give one of {', '.join(stages)}" if stages else ""))


def refuse_stage(folder: Path, architecture: str, what: str) -> None:
    """Refuse a stage of text-to-image where it is of no use alone."""
    if architecture in OF_STAGES:
        raise BadInput(f"{folder} is {A_STAGE}, which cannot {what}; {use_of_stage(folder, architecture)}")


def use_of_stage(folder: Path, architecture: str) -> str:
    """The end of a sentence: what a stage of text-to-image is good for, as a command."""
    whole = folder.parent if present(folder.parent / STAGES) else Path("RUN")
    if architecture == "judge":
        return f"it tells what pictures show: `{command('evaluate', whole, '--judge', folder)}`"
    return f"all stages together draw: `{command('paint', whole, EXAMPLE)}`"


def architecture_of_run(folder: Path) -> str:
    """The architecture of a run's model; "" for any other folder."""
    if not is_run(folder):
        return ""
    with naming(folder / CONFIG):
        return str(read_json(inside(folder, CONFIG)).get("heedful", ""))
