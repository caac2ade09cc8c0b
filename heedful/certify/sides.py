"""The two sides of a comparison: our model, and what another library makes of the export."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from torch import Tensor

from ..interop.foreign import ForeignModel
from ..interop.formats import FORMATS, part
from ..interop.loaded import Loaded
from ..interop.rounding import with_weights
from ..interop.run_folder import is_run
from ..use.model import Model
from .certificate import Tolerance, tolerance_of
from .inputs import ProbeInputs, inputs_for
from .own import OwnModel

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Sides:
    """What the checks compare. `used` and `exact` are one where the library computes in float32 anyway."""

    ours: OwnModel  # the source
    rounded: OwnModel  # the source with weights rounded as they are stored
    used: ForeignModel  # the export as people open it
    exact: ForeignModel  # the export with products in float32
    kind: str
    tell: Tell
    source: str = "the model"  # the folder that the source comes from
    folder: Path | None = None  # the export
    format: str = ""
    given: Tolerance | None = None

    @property
    def tolerance(self) -> Tolerance:
        return self.given or tolerance_of(self.kind)

    @property
    def is_rounded(self) -> bool:
        """Whether the export differs from its source by more than rounding in float32."""
        return self.kind != "float32"

    @cached_property
    def model(self) -> Model:
        """The source as people use it."""
        return Model(self.ours.loaded, self.source, own=is_run(Path(self.source)))

    @cached_property
    def inputs(self) -> ProbeInputs:
        return inputs_for(self.ours, getattr(self.used, "limits", None))


def opened(
    loaded: Loaded, folder: Path, format: str, kind: str | None, tell: Tell, source: str = "the model"
) -> Sides:
    """Both sides of an export. kind: how weights are stored; None: they are what heedful has read from it,
    and the other library says how it computes."""
    tell(f"opening it with {FORMATS[format].packages[0]}")
    used = FORMATS[format].reopen(folder)
    computes: str = getattr(used, "computes", "float32")
    rounded = loaded
    if kind is not None and (values := as_stored(loaded, folder, format, kind)):
        rounded = with_weights(loaded, values)
    stored = kind or computes
    exact = FORMATS[format].reopen(folder, exact=True) if stored == "int8" else used
    ours = OwnModel(loaded)
    return Sides(
        ours,
        ours if rounded is loaded else OwnModel(rounded),
        used,
        exact,
        stored,
        tell,
        source,
        folder,
        format,
    )


def as_stored(loaded: Loaded, folder: Path, format: str, kind: str) -> dict[str, Tensor]:
    """{parameter: its value as the format stores it}, of those that it rounds."""
    return part(format, "stored").rounded(loaded, folder, kind)
