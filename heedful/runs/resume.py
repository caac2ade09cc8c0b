"""The state of a run: what a checkpoint holds, and what may differ when a run goes on."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .. import __version__
from ..errors import BadInput
from ..files import short
from ..interop.run_folder import NO_VOCABULARY
from ..parts.lora import adapters
from ..tasks.evaluation import LOWER_IS_BETTER
from ..tasks.recipe import to_json
from ..tasks.recipe.settings import Recipe
from ..tasks.task import Carried, Job
from ..train import optimizer
from ..train.average import Average, weights_of
from ..train.processes import World, placed_as
from . import checkpoint
from .checkpoint import Saved
from .saving import Saver


@dataclass
class Best:
    """The best evaluation so far, and how many have come since without being better.

    Attributes:
        step: The step of the best evaluation; 0 before the first.
        scores: Its figures by name, such as "loss" and "bleu".
        since: Evaluations since then.

    Example:
        >>> Best(500, {"loss": 2.0}).beaten_by({"loss": 1.5}, metric="loss")
        True
    """

    step: int = 0
    scores: dict[str, float] = field(default_factory=dict)
    since: int = 0

    def beaten_by(self, scores: dict[str, float], metric: str) -> bool:
        """Whether other scores are better by the metric; equally good ones, by the loss.

        Args:
            scores: The other scores.
            metric: The figure that decides.

        Returns:
            True if they are better, or if there is no evaluation yet.
        """
        return not self.scores or rank(scores, metric) > rank(self.scores, metric)


def rank(scores: dict[str, float], metric: str) -> tuple[float, float]:
    """What grows as scores get better. A BLEU below 1 comes from its smoothing: there the loss decides."""
    score = scores[metric]
    if metric == "bleu" and score < 1:
        score = 0.0
    return (-score if metric in LOWER_IS_BETTER else score, -scores["loss"])


@dataclass
class TrainingState:
    """Everything that changes while a run goes on."""

    model: nn.Module
    optimizers: list[torch.optim.Optimizer]
    scaler: torch.amp.GradScaler | None = None
    average: Average | None = None
    step: int = 0
    best: Best = field(default_factory=Best)
    carried: Carried | None = None
    shown: list[str] = field(default_factory=list)  # the examples of the last evaluation


def facts_of(recipe: Recipe, job: Job, world: World, device: torch.device) -> dict[str, Any]:
    """What a result may depend on beside the recipe."""
    return {
        **data_fingerprint(recipe),
        "heedful": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": device.type,
        "threads": torch.get_num_threads(),
        "processes": world.size,
        "vocab": NO_VOCABULARY if job.vocab is None else job.vocab.hash,
        **job.facts,
    }


def save(state: TrainingState, saver: Saver, recipe: Recipe, found: dict[str, Any]) -> None:
    """Begin to save everything that the rest of the run depends on; every process saves its share."""
    tensors = {
        "model": kept(state.model),
        "optimizer": optimizer.state_tensors(state.model, state.optimizers),
    }
    if state.average is not None:
        tensors["average"] = state.average.weights
    if state.carried is not None:
        tensors["carried"] = state.carried.tensors()
    written = {
        "step": state.step,
        "scaler": {} if state.scaler is None else state.scaler.state_dict(),
        "best": {"step": state.best.step, "scores": state.best.scores, "since": state.best.since},
        "recipe": to_json(recipe),
        "facts": found,
    }
    saver.save(state.step, tensors, written, recipe.checkpoint.keep)


def newest(run: Path, say: Callable[[str], None]) -> Saved | None:
    """The newest whole checkpoint of a run, or None. Only the process that owns the folder may call this."""
    found = checkpoint.latest(run)
    if found is None:
        return None
    path, remarks = found
    for remark in remarks:
        say(remark)
    return Saved.open(path)


def of_step(run: Path, step: int) -> Saved:
    """The checkpoint of a step, for the other processes."""
    return Saved.open(run / checkpoint.FOLDER / f"step-{step}")


def restore(state: TrainingState, saved: Saved) -> None:
    """Put back all that a checkpoint holds; a process reads what its own share of each tensor needs."""
    found, weights = saved.state, kept(state.model)
    if saved.stored("model").keys() != weights.keys():
        raise BadInput(f"{saved.path} holds another model than the recipe of its run describes")
    saved.read("model", weights)
    if state.average is not None:
        saved.read("average", state.average.weights)
    if state.scaler is not None and found["scaler"]:  # none, if the run was not in fp16 until now
        state.scaler.load_state_dict(found["scaler"])
    remembered = slots(state.model, saved)
    saved.read("optimizer", remembered)
    optimizer.load_state_tensors(state.model, state.optimizers, remembered)
    state.step, state.best = found["step"], Best(**found["best"])
    if state.carried is not None:
        carried = {name: t.empty() for name, t in saved.stored("carried").items()}
        saved.read("carried", carried)
        state.carried.load(carried, state.step)


def slots(model: nn.Module, saved: Saved) -> dict[str, Tensor]:
    """Room for what optimizers remember: a tensor of a weight's shape is spread as the weight is."""
    weights = dict(model.named_parameters())
    found = {}
    for key, stored in saved.stored("optimizer").items():
        weight = weights.get(key.rpartition(":")[0])
        if weight is None:
            raise BadInput(f"{saved.path} holds {short(key)} of a weight that the model does not have")
        like = stored.shape == tuple(weight.shape)
        found[key] = torch.empty_like(weight.detach(), dtype=stored.dtype) if like else stored.empty()
    return found


def put_weights(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Every weight that a run keeps, by its name; tied ones have one name, and stay tied."""
    with torch.no_grad():
        for name, weight in kept(model).items():
            weight.copy_(placed_as(weight, tensors[name]))


def kept(model: nn.Module) -> dict[str, Tensor]:
    """The weights that a run keeps: all of them; of a model with adapters, only what is learned."""
    weights = weights_of(model)
    if not adapters(model):
        return weights
    return {name: weights[name] for name, weight in model.named_parameters() if weight.requires_grad}


# What may have changed since the checkpoint was written. Changed at will, a run is no longer the one that was
# begun: what makes it another run is refused, what only makes it less exact is said.

ANOTHER_RUN = (
    "data.",
    "model.",
    "train.seed",
    "train.optimizer",
    "train.ema_decay",
    "train.average_checkpoints",
    "train.from",
    "train.tune",
    "train.lora_",
    "train.algorithm",
    "train.reward",
    "train.prompts",
    "train.responses",
    "train.passes",
    "train.updates",
    "evaluate.rows",
)
WHICH_ARE_AVERAGED = ("train.steps", "checkpoint.every")
ROUNDING = ("heedful", "torch", "python", "device", "threads", "processes")


DATA_RECIPE = "recipe of the data"


def data_fingerprint(recipe: Recipe) -> dict[str, str]:
    """A fact to know by whether what the data were made from has been edited since."""
    settings = json.dumps([recipe.task, to_json(recipe)["data"]], sort_keys=True)
    return {DATA_RECIPE: hashlib.sha256(settings.encode()).hexdigest()}


def compare_recipes(then: dict[str, Any], recipe: Recipe, path: Path, say: Callable[[str], None]) -> None:
    """A recipe edited by hand between two parts of a run."""
    now = flat(to_json(recipe))
    refused = ("task", *ANOTHER_RUN, *(WHICH_ARE_AVERAGED if recipe.train.average_checkpoints else ()))
    for key, value in flat(then).items():
        new = now.get(key)
        if new == value:
            continue
        if key.startswith(refused):
            raise BadInput(
                f"recipe.json has {key} {new!r}, and {path} was made with {value!r}: that is another run; "
                f"put it back, or start a new one"
            )
        say(
            f"warning: {key} was {value!r} and is {new!r} now: not what the run would have been uninterrupted"
        )


def flat(recipe: dict[str, Any]) -> dict[str, Any]:
    """Every value by its name, "task" or "part.name"."""
    parts = {part: value if isinstance(value, dict) else {"": value} for part, value in recipe.items()}
    return {
        f"{part}.{name}".rstrip("."): value for part, named in parts.items() for name, value in named.items()
    }


def compare_facts(then: dict[str, Any], now: dict[str, Any], run: Path, say: Callable[[str], None]) -> None:
    """The same bytes come only under the same conditions."""
    for name, value in now.items():
        if name not in then or then[name] == value:
            continue
        if name not in ROUNDING:
            raise BadInput(
                f"{run}: the {name} is not the one the run was begun with "
                f"({hash_in(value)} instead of {hash_in(then[name])}): put it back, or start a new run"
            )
        say(f"warning: {name} was {then[name]} and is {value} now: numbers will differ in their last digits")


def hash_in(fact: Any) -> str:
    """The beginning of a fact, or of the hash that it has among other things."""
    return str(fact.get("sha256") if isinstance(fact, dict) else fact)[:16]
