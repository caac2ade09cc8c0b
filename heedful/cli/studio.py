"""Look inside models in the browser: attention, step by step, writing, training curves.

The page shows the runs in --runs and the models that are named. Every number is the model's own. The studio
listens on this machine only, and the link it prints has a token that the page needs. Ctrl-C stops it.

Without any run, it shows a recorded example, and can train the demo.

Examples: heedful studio; heedful studio runs/demo; heedful studio ./gpt2 --no-open --port 9000
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short
from typing import Annotated

from ..errors import BadInput
from .shared.options import Positional, Repeated, arg


@dataclass(frozen=True)
class StudioOptions:
    """The options of `heedful studio`."""

    models: Annotated[tuple[str, ...], Positional, arg("RUN|FOLDER", "none")] = ()
    """Models to show beside those in --runs: folders of runs, or Hugging Face folders."""

    runs: Annotated[str, arg("DIR")] = "runs"
    """The folder whose runs are listed. It need not exist."""

    port: Annotated[int, arg("PORT")] = 0
    """The port to listen on, up to 65535. 0 takes a free one."""

    no_open: bool = False
    """Print the link, and open no browser."""

    data: Annotated[str | None, arg("FILE", "none")] = None
    """A file of texts, one in a line, to search through beside the data of runs."""

    allow_host: Annotated[tuple[str, ...], arg("HOST:PORT", "none"), Repeated] = ()
    """A name under which a tunnel reaches the studio, such as localhost:9000. May be repeated."""


def studio(given: StudioOptions) -> int:
    """Serve the studio until a signal ends it."""
    from ..interop.packages import needed

    for package in ("starlette", "uvicorn"):
        needed(package, "serve")
    check(given)
    from ..service.server import listen
    from ..studio.runs import ModelFolders
    from ..studio.server import new_service, run
    from ..studio.studio import Studio

    folders = ModelFolders(Path(given.runs), tuple(map(Path, given.models)))
    found = Studio(folders, new_service(), None if given.data is None else Path(given.data))
    socket = listen("127.0.0.1", given.port)
    link = f"http://127.0.0.1:{socket.getsockname()[1]}/?token={found.key}"
    print(f"{link} is the studio, for this machine only; Ctrl-C stops it", flush=True)
    return run(found, socket, given.allow_host, not given.no_open)


def check(given: StudioOptions) -> None:
    """Refuse a port out of range, and what is not there."""
    if not 0 <= given.port <= 65535:
        raise BadInput(f"--port must be from 0 to 65535, not {short(given.port)}")
    for folder in given.models:
        if not Path(folder).is_dir():
            raise BadInput(f"there is no folder {folder}: give the folder of a run, or a Hugging Face folder")
    if given.data is not None and not Path(given.data).is_file():
        raise BadInput(f"--data {given.data} is no file: give a file of texts, one in a line")
