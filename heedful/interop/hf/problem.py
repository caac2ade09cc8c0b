"""What the scores of a classification head mean, as config.json says: `problem_type`, and the activation that
sentence-transformers applies to the scores of a cross-encoder.

one score       sigmoid, unless the problem is a regression or the activation is the identity
several scores  softmax; a sigmoid each for multi-label problems; as they are for regressions
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from ...errors import BadInput
from ...files import inside, naming, present, read_json, short
from ...models.hf.folder import one_of, read_or_null

Function = Literal["softmax", "sigmoid", "none"]

FUNCTIONS: dict[str, Function] = {  # of several scores
    "regression": "none",
    "single_label_classification": "softmax",
    "multi_label_classification": "sigmoid",
}
CONFIG, CROSS_ENCODER = "config.json", "config_sentence_transformers.json"
TYPE, BLOCK, KEY = "problem_type", "sentence_transformers", "activation_fn"
OLD = "sbert_ce_default_activation_function"
ACTIVATIONS: dict[str, Function] = {"Identity": "none", "Sigmoid": "sigmoid"}


@dataclass(frozen=True)
class Problem:
    """What kind of problem a classifier was trained for; empty where the folder does not say."""

    type: str = ""  # one of FUNCTIONS
    activation: str = ""  # the name of a class of torch

    def function(self, scores: int) -> Function:
        """What turns this many scores into what people read."""
        said = ACTIVATIONS.get(self.activation)
        if self.activation and said is None:
            known = " and ".join(ACTIVATIONS)
            raise BadInput(f"its {KEY} is {self.activation}; heedful knows {known}: change it there")
        if scores == 1:
            return said or self.of_one_score()
        return FUNCTIONS[self.type] if self.type else "sigmoid" if said == "sigmoid" else "softmax"

    def of_one_score(self) -> Function:
        """The same where no activation is named."""
        if self.type == "single_label_classification":
            raise BadInput(
                f"its {TYPE} is {self.type}, and it has one score: set {TYPE} to regression in its {CONFIG}, "
                f"or remove that line if the score is to become a probability"
            )
        return "none" if self.type == "regression" else "sigmoid"

    def values(self, scores_BL: Tensor) -> Tensor:
        """Probabilities [B, L], or the scores as they are."""
        function = self.function(scores_BL.shape[-1])
        if function == "none":
            return scores_BL
        return scores_BL.softmax(-1) if function == "softmax" else scores_BL.sigmoid()


def read_problem(folder: Path, said: dict[str, Any]) -> Problem:
    """The problem of a folder, whose config.json says `said`."""
    with naming(folder / CONFIG):
        named = read_or_null(said, TYPE, "")
        kind = "" if named is None else one_of(FUNCTIONS, TYPE, named)
    block = said.get(BLOCK)
    paths = [read_cross_encoder(folder), block.get(KEY) if isinstance(block, dict) else None, said.get(OLD)]
    # sentence-transformers runs no activation from elsewhere; it applies its default instead.
    named_here = [path for path in paths if isinstance(path, str) and path.startswith("torch.")]
    return Problem(kind, named_here[0].rpartition(".")[2] if named_here else "")


def read_cross_encoder(folder: Path) -> Any:
    """The activation that the own file of a cross-encoder names, if the folder is one."""
    if not present(folder / CROSS_ENCODER):
        return None
    with naming(folder / CROSS_ENCODER):
        said = read_json(inside(folder, CROSS_ENCODER))
        if said.get("model_type") != "CrossEncoder":
            return None
        if said.get("default_prompt_name") is not None:
            raise BadInput(
                f"default_prompt_name is {short(said['default_prompt_name'])}; heedful puts no prompt before "
                f"pairs of texts: remove that line, and put the prompt before your texts"
            )
        return said.get(KEY)


def problem_config(problem: Problem) -> Mapping[str, Any]:
    """The same as entries of config.json."""
    entries: dict[str, Any] = {TYPE: problem.type} if problem.type else {}
    if problem.activation:
        entries[BLOCK] = {KEY: f"torch.nn.{problem.activation}"}
    return entries
