"""The subject of a plan: a model, how long its texts are, and how much it reads."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..errors import BadInput
from ..inside.costs import Costs, changed, default_length
from ..models import config_class
from ..models.base.skeleton import skeleton
from .machines import Cluster
from .search import Workload
from .training_step import count_costs

USUAL_BATCH = 2**19  # tokens in a step, if nobody says another number
TOKENS_EACH = 20  # tokens to read for each parameter, if nobody says a number: Hoffmann et al. 2022
MOST_TOKENS = 1e18
COUNT = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,9})?(?:e[0-9]{1,2})?)([kmbt]?)")
LETTERS = {"": 1, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}


@dataclass(frozen=True)
class Subject:
    """A model to be trained. No weights are made.

    Attributes:
        name: Its name.
        architecture: Its architecture.
        config: Its config.
        context: Tokens of a row. None: as many as the model is made for.
        settings: Sizes that differ from the preset, such as "model.layers=24".

    Example:
        >>> from heedful.models import find_preset
        >>> subject = Subject("gpt2", *find_preset("gpt2"))
        >>> subject.costs.parameters, subject.length
        (124439808, 1024)
        >>> subject.tokens(None) == 20 * subject.costs.active
        True
        >>> from heedful.planner.machines import find_cluster, find_gpu
        >>> subject.workload(find_cluster(find_gpu("h100"), 8)).rows
        512
    """

    name: str
    architecture: str
    config: Any
    context: int | None = None
    settings: tuple[str, ...] = ()

    @cached_property
    def model(self) -> Any:
        return skeleton(self.architecture, self.config)

    @cached_property
    def length(self) -> int:
        """Tokens of a row."""
        return default_length(self.model, self.config) if self.context is None else self.context

    @cached_property
    def costs(self) -> Costs:
        """The costs of one row."""
        return count_costs(self.model, 1, self.length)

    def workload(self, cluster: Cluster, batch: float | None = None) -> Workload:
        """What a step has to do.

        Args:
            cluster: The machines.
            batch: Tokens of a step. None: 524,288, and at least one row for each GPU.

        Returns:
            `Workload`.

        Raises:
            BadInput: The batch is less than one row.
        """
        rows = round(batch / self.length) if batch else max(-(-USUAL_BATCH // self.length), cluster.gpus)
        if rows < 1:
            raise BadInput(
                f"--batch {batch:,.0f} is less than one row of {self.length:,} tokens: "
                f"give at least that many, or a smaller --context"
            )
        return Workload(self.model, self.length, rows)

    def tokens(self, given: float | None) -> float:
        """Tokens to train on.

        Args:
            given: The number, or None for 20 tokens per active parameter (Hoffmann et al. 2022).

        Returns:
            The number of tokens.
        """
        return TOKENS_EACH * self.costs.active if given is None else given


def with_settings(architecture: str, config: Any, settings: Sequence[str]) -> Any:
    """The config with sizes as `heedful train` takes them: "model.layers=24"."""
    sizes = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.startswith("model."):
            raise BadInput(f"--set takes model.NAME=VALUE, such as model.layers=24, not {setting[:40]!r}")
        sizes[name.removeprefix("model.")] = value
    return changed(config, sizes)


def default_config(architecture: str) -> Any:
    """The config of an architecture whose sizes nobody has chosen."""
    return config_class(architecture)()


def read_count(option: str, text: str) -> float:
    """Tokens as people write them: 300B, 1.5T, 4e11, 524288."""
    found = COUNT.fullmatch(text.lower().replace(",", ""))
    count = float(found[1]) * LETTERS[found[2]] if found else math.nan
    if not 1 <= count <= MOST_TOKENS:
        raise BadInput(f"{option} is a number of tokens such as 300B, 1.5T or 524288, not {text[:40]!r}")
    return count
