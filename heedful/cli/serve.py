"""Serve models over HTTP: OpenAI's, LibreTranslate's and heedful's own endpoints.

Each model gets a process of its own, which loads it at once; texts of many clients are written together.
Listens on this machine only, unless --host names another address, which needs a key. Ctrl-C ends it after the
requests that are running. `/openapi.json` describes every endpoint, and docs/serve.md has examples.

Examples: heedful serve runs/demo; heedful serve ./gpt2 runs/lm --port 9000;
heedful serve runs/demo --languages en:fr; heedful serve ./smollm2 --host 0.0.0.0 --key-file key.txt
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from ..errors import BadInput
from .shared.options import Positional, Repeated, arg


@dataclass(frozen=True)
class ServeOptions:
    """The options of `heedful serve`."""

    runs: Annotated[tuple[str, ...], Positional, arg("RUN|FOLDER")]
    """The models: folders of runs, or Hugging Face folders."""

    host: Annotated[str, arg("ADDRESS")] = "127.0.0.1"
    """The address to listen on. Any but this machine's own needs --key-file."""

    port: Annotated[int, arg("PORT")] = 8080
    """The port to listen on; 0 takes a free one."""

    name: Annotated[tuple[str, ...], arg("NAME", "the folder's name"), Repeated] = ()
    """What clients call a model. Repeat it for each model, in their order."""

    key_file: Annotated[str | None, arg("FILE", "none")] = None
    """A file that holds a key, which clients must send as `Authorization: Bearer KEY`."""

    languages: Annotated[str | None, arg("FROM:TO", "none")] = None
    """The languages of a translator, such as en:fr, for LibreTranslate's clients."""

    rows: Annotated[int | None, arg("N", "8 on a CPU, 64 on a GPU")] = None
    """Texts that a model writes at once."""

    waiting: Annotated[int | None, arg("N", "4 x rows")] = None
    """Texts that may wait for a row. More are refused with status 429."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes the GPU if there is one."""

    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """The type of weights and vectors."""

    weights: Literal["fp32", "fp16", "int8"] = "fp32"
    """What texts are written with on a CPU: fewer bits are read sooner, and int8 may change a word."""

    lazy: bool = False
    """Load a model at its first request."""

    allow_host: Annotated[tuple[str, ...], arg("HOST:PORT", "none"), Repeated] = ()
    """Another name under which clients reach this service: of a tunnel, or of a proxy. May be repeated."""

    allow_origin: Annotated[tuple[str, ...], arg("URL", "none"), Repeated] = ()
    """A web page's origin that may call this service. Needs --key-file. May be repeated."""

    limit: Annotated[tuple[str, ...], arg("NAME=VALUE", "none"), Repeated] = ()
    """A limit of the service, such as queue_seconds=5; docs/serve.md lists them. May be repeated."""


def serve(given: ServeOptions) -> int:
    """Serve until a signal ends it."""
    from ..interop.packages import needed

    for package in ("starlette", "uvicorn"):
        needed(package, "serve")
    from ..service.server import Serving, listen, run
    from ..service.workers import ServedModel

    models = [
        ServedModel(name, folder, worker_options(given), created(folder))
        for name, folder in zip(names_of(given), given.runs, strict=True)
    ]
    key = read_key(given.key_file)
    if given.host not in ("127.0.0.1", "::1", "localhost") and not key:
        raise BadInput(f"--host {given.host} lets other machines in, so a key is needed: give --key-file")
    if given.allow_origin and not key:
        raise BadInput("--allow-origin lets web pages call this service, so a key is needed: give --key-file")
    socket = listen(given.host, given.port)
    serving = Serving(
        models, given.rows or 0, given.waiting or 0, languages(given.languages), not given.lazy, key,
        given.allow_host, given.allow_origin, given.limit,
    )  # fmt: skip
    port = socket.getsockname()[1]
    shown = f"[{given.host}]" if ":" in given.host else given.host
    print(f"http://{shown}:{port} serves {', '.join(model.name for model in models)}", flush=True)
    return run(serving, given.host, socket)


def worker_options(given: ServeOptions) -> tuple[str, ...]:
    """What a worker is given beside its folder."""
    rows = () if given.rows is None else ("--rows", str(given.rows))
    return ("--device", given.device, "--dtype", given.dtype, "--weights", given.weights, *rows)


def names_of(given: ServeOptions) -> list[str]:
    """What clients call the models: the names that were given, or those of the folders."""
    if given.name and len(given.name) != len(given.runs):
        raise BadInput(
            f"{len(given.name)} names are given for {len(given.runs)} models: give each one its --name"
        )
    for folder in given.runs:
        if not Path(folder).exists():
            raise BadInput(f"there is no {folder}")
    names = list(given.name) or [Path(folder).resolve().name for folder in given.runs]
    if len(set(names)) < len(names):
        raise BadInput("two models have the same name: give each one its --name")
    return names


def created(folder: str) -> int:
    """When a folder was written."""
    return int(Path(folder).stat().st_mtime)


def read_key(file: str | None) -> str:
    """The key in a file; "" where there is none."""
    if file is None:
        return ""
    try:
        with open(file, encoding="ascii") as opened:
            key = opened.read(4096).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"--key-file {file} cannot be read: {error}") from None
    if len(key) < 16 or not key.isprintable() or " " in key:
        raise BadInput(f"the key in {file} must be one word of at least 16 characters")
    return key


def languages(given: str | None) -> tuple[str, str]:
    """The two languages of --languages; empty where there are none."""
    if given is None:
        return "", ""
    source, colon, target = given.partition(":")
    if not (colon and source and target):
        raise BadInput(f"--languages takes two codes such as en:fr, not {given!r}")
    return source, target
