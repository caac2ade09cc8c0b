"""The worker of the studio: that of the service, which can also trace, edit and measure a model.

python -m heedful.studio.worker runs/demo
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..service.worker import main

if TYPE_CHECKING:
    from ..service.methods import Method


def methods() -> Mapping[str, Method]:
    """The methods, with the traces that they share. torch is imported only here."""
    from .costing import cost_methods
    from .looking import look_methods
    from .measuring import measure_methods
    from .tracing import Traces, trace_methods
    from .writing import write_methods

    traces = Traces()
    reading = {**trace_methods(traces), **look_methods(traces)}
    return {**reading, **write_methods(traces), **measure_methods(traces), **cost_methods()}


if __name__ == "__main__":
    sys.exit(main(methods))
