"""Serve models over HTTP: OpenAI's endpoints, LibreTranslate's, and heedful's own.

Each model is loaded in a process of its own, which writes the texts of many clients together. Every answer
is the one that its request would get alone. The service listens on this machine only; --host opens it to
others and needs --key-file. Ctrl-C lets running requests finish, and stops it.

OpenAI's clients take the address with /v1 as their base URL. /health, /ready and /metrics are for monitoring,
and /openapi.json describes every endpoint. docs/howto/serve.md has examples and the table of limits.

Examples: heedful serve runs/demo; heedful serve ./gpt2 runs/lm --port 9000;
heedful serve runs/demo --languages en:fr; heedful serve ./smollm2 --host 0.0.0.0 --key-file key.txt
"""

from __future__ import annotations

import ipaddress
import sys
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short
from typing import Annotated, Literal

from ..errors import BadInput
from .shared.options import Positional, Repeated, arg


@dataclass(frozen=True)
class ServeOptions:
    """The options of `heedful serve`."""

    runs: Annotated[tuple[str, ...], Positional, arg("RUN|FOLDER", "none; at least one is needed")]
    """The models: folders of runs, or Hugging Face folders. Give several to serve several."""

    host: Annotated[str, arg("ADDRESS")] = "127.0.0.1"
    """The address to listen on. Any but this machine's own needs --key-file."""

    port: Annotated[int, arg("PORT")] = 8080
    """The port to listen on, up to 65535. 0 takes a free one, which the first line names."""

    name: Annotated[tuple[str, ...], arg("NAME", "the folder's name"), Repeated] = ()
    """What clients call a model. Repeat it for each model, in their order."""

    key_file: Annotated[str | None, arg("FILE", "none")] = None
    """A file that holds a key, which clients must send as `Authorization: Bearer KEY`."""

    languages: Annotated[str | None, arg("FROM:TO", "none")] = None
    """The languages of a translator, such as en:fr, for LibreTranslate's clients."""

    rows: Annotated[int | None, arg("N", "32 on a CPU, 64 on a GPU")] = None
    """Texts that a model writes at once, up to 1024. More need more memory."""

    waiting: Annotated[int | None, arg("N", "4 x rows")] = None
    """Texts that may wait until another is done, up to 100000. More are refused with status 429."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes the GPU if there is one."""

    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """The type of weights and vectors."""

    weights: Literal["fp32", "fp16", "int8", "fp8"] = "fp32"
    """What a step multiplies with. CPU: fp16 and int8 are faster. GPU: int8 and fp8 are faster for one text
    at a time of a large model, and slower for several. 8 bits may change a word."""

    lazy: bool = False
    """Load a model at its first request, instead of now."""

    allow_host: Annotated[tuple[str, ...], arg("HOST:PORT", "none"), Repeated] = ()
    """A name under which clients reach this service through a proxy or a tunnel. May be repeated."""

    allow_origin: Annotated[tuple[str, ...], arg("URL", "none"), Repeated] = ()
    """A web site whose pages may call this service, such as https://chat.example. May be repeated."""

    limit: Annotated[tuple[str, ...], arg("NAME=VALUE", "none"), Repeated] = ()
    """A limit of the service, such as queue_seconds=5; docs/howto/serve.md lists them. May be repeated."""


HERE = ("127.0.0.1", "::1", "localhost")  # addresses that only this machine reaches


def serve(given: ServeOptions) -> int:
    """Serve until a signal ends it."""
    from ..interop.packages import needed

    for package in ("starlette", "uvicorn"):
        needed(package, "serve")
    from ..service.limits import with_limits
    from ..service.server import Serving, listen, run
    from ..service.workers import ServedModel

    check_address(given)
    with_limits(given.limit)
    models = [
        ServedModel(name, folder, worker_options(given), created(folder))
        for name, folder in zip(names_of(given), given.runs, strict=True)
    ]
    key = read_key(given.key_file)
    if given.host not in HERE and not key:
        raise BadInput(f"--host {given.host} lets other machines in, so a key is needed: give --key-file")
    if given.allow_origin and not key:
        raise BadInput("--allow-origin lets web pages call this service, so a key is needed: give --key-file")
    serving = Serving(
        models, given.rows, given.waiting, languages(given.languages), not given.lazy, key,
        given.allow_host, given.allow_origin, given.limit,
    )  # fmt: skip
    socket = listen(given.host, given.port)
    line = first_line(given, [model.name for model in models], socket.getsockname()[1])
    print(line, flush=True)
    if sys.stderr.isatty():
        print(f"OpenAI's clients use {line.split()[0]}/v1; docs/howto/serve.md has examples", file=sys.stderr)
    return run(serving, given.host, socket)


def check_address(given: ServeOptions) -> None:
    """Refuse a name in place of an address, and numbers out of range."""
    try:
        ipaddress.ip_address("127.0.0.1" if given.host == "localhost" else given.host)
    except ValueError:
        raise BadInput(
            f"--host takes an address such as 127.0.0.1 or 0.0.0.0, not {given.host[:80]!r}"
        ) from None
    ranges = {"port": (0, 65535), "rows": (1, 1024), "waiting": (0, 100_000)}
    for name, (least, most) in ranges.items():
        number = getattr(given, name)
        if number is not None and not least <= number <= most:
            raise BadInput(f"--{name} must be from {least} to {most}, not {short(number)}")


def first_line(given: ServeOptions, names: list[str], port: int) -> str:
    """Where the service is, what it serves, who can call it, and how to stop it."""
    host = f"[{given.host}]" if ":" in given.host else given.host
    who = "with a key" if given.key_file is not None else "from this machine only"
    return f"http://{host}:{port} serves {', '.join(names)}, {who}; Ctrl-C stops it"


def worker_options(given: ServeOptions) -> tuple[str, ...]:
    """What a worker is given beside its folder."""
    rows = () if given.rows is None else ("--rows", str(given.rows))
    return ("--device", given.device, "--dtype", given.dtype, "--weights", given.weights, *rows)


def names_of(given: ServeOptions) -> list[str]:
    """What clients call the models: the names that were given, or those of the folders."""
    if not given.runs:
        raise BadInput("no model is given: name the folder of a run, such as runs/demo")
    if given.name and len(given.name) != len(given.runs):
        raise BadInput(
            f"{len(given.name)} names are given for {len(given.runs)} models: give each one its --name"
        )
    for folder in given.runs:
        if not Path(folder).exists():
            raise BadInput(f"there is no {folder}: give the folder of a run, or a Hugging Face folder")
    names = list(given.name) or [Path(folder).resolve().name for folder in given.runs]
    for name in names:
        if not name or len(name) > 100 or not name.isascii() or not name.isprintable() or " " in name:
            raise BadInput(
                f"{name[:80]!r} is no name for a model: give one of at most 100 ASCII letters with --name"
            )
        if names.count(name) > 1:
            raise BadInput(f"two models have the name {name}: give each one its --name")
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
