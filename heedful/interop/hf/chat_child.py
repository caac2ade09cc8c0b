"""The process that renders chat templates: started by chat_process.py, and not trusted.

A template is a program by whoever published the model. Jinja's sandbox keeps it from the interpreter, but not
from taking all time and memory. So before it looks at the template, this process gives up opening and writing
files, and more than a little memory; each conversation has a little time. Breaking a limit ends the process,
and nothing else. Lines of JSON come in, the template first and then conversations, and each is answered by a
line.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import signal
import sys
from datetime import datetime
from importlib import import_module
from typing import Any


def main() -> None:
    setup = json.loads(sys.stdin.readline())
    sys.path[:] = setup["path"]
    environment, limits = sandbox(), setup["limits"]
    give_up(limits["memory"])
    renderer = Renderer(environment, setup)
    while line := sys.stdin.readline():
        timed(limits["seconds"])
        sys.stdout.write(json.dumps(renderer.answer(line)) + "\n")
        timed(0)
        sys.stdout.flush()


def timed(seconds: float) -> None:
    """End the process after so much work, whatever it is busy with; 0 takes that back. (The time is the
    processor's: a busy computer is no reason to be stopped.)"""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def give_up(memory: int) -> None:
    """Set the limits, for good."""
    resource = import_module("resource")
    with contextlib.suppress(OSError, ValueError):  # where the system does not say, or has no such limit
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory,) * 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))  # those that are open already


def sandbox() -> Any:
    """Jinja as transformers sets it up for chat templates."""
    jinja = import_module("jinja2")
    ext, nodes = import_module("jinja2.ext"), import_module("jinja2.nodes")
    for late in ("jinja2.debug", "jinja2.loaders", "random", "pprint", "encodings.unicode_escape"):
        import_module(late)  # what it imports when it comes to that, and then could not any more
    codecs.lookup("unicode_escape")
    datetime.now().strftime("%d %b %Y")

    class Generation(ext.Extension):  # type: ignore[name-defined]
        """{% generation %}, which marks what a model is taught to say, and says nothing itself."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return nodes.Scope(body).set_lineno(line)

    class Names(jinja.utils.Namespace):  # type: ignore[name-defined]
        """A namespace without names that begin with an underscore."""

        def __init__(*args: Any, **attributes: Any) -> None:  # so that namespace(self=...) is possible
            for name in dict(*args[1:], **attributes):
                check_name(name)
            jinja.utils.Namespace.__init__(*args, **attributes)

        def __setitem__(self, name: str, value: Any) -> None:
            check_name(name)
            jinja.utils.Namespace.__setitem__(self, name, value)

    def check_name(name: Any) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise jinja.exceptions.SecurityError(f"a namespace has no {name}")

    class Dictionary:
        """`dict`, and none of its attributes."""

        def __call__(self, *args: Any, **more: Any) -> dict[Any, Any]:
            return dict(*args, **more)

    def refuse(message: str) -> None:
        raise jinja.exceptions.TemplateError(message)

    made = import_module("jinja2.sandbox").ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols]
    )
    made.filters["tojson"] = as_json
    made.globals |= {"raise_exception": refuse, "namespace": Names, "dict": Dictionary()}
    made.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return made


def as_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


class Renderer:
    """The template, made at the first conversation and kept."""

    def __init__(self, environment: Any, setup: dict[str, Any]) -> None:
        self.environment, self.setup = environment, setup
        self.template: Any = None
        self.error: type[Exception] = import_module("jinja2").exceptions.TemplateError

    def answer(self, line: str) -> dict[str, Any]:
        """{"text": ...} or {"refused": why} of a conversation, or {"error": why} of the template."""
        try:
            if self.template is None:
                self.template = self.environment.from_string(self.setup["template"])
            return self.written(**json.loads(line))
        except MemoryError:
            return {"error": "took more memory than it may"}
        except RecursionError:
            return {"error": "goes too deep"}
        except Exception as found:  # noqa: BLE001 (a template can do anything, and can fail in any way)
            return {"error": f"cannot be used: {type(found).__name__}: {str(found)[:500]}"}

    def written(self, messages: Any, answer: bool) -> dict[str, Any]:
        given = {**self.setup["given"], "add_generation_prompt": answer}
        parts, size, longest = [], 0, self.setup["longest"]
        try:
            for part in self.template.generate(messages=messages, tools=None, documents=None, **given):
                parts.append(part)
                size += len(part)
                if size > longest:
                    return {"refused": f"makes a text of more than {longest:,} characters of it"}
        except self.error as found:
            return {"refused": f"refuses it: {str(found)[:500]}"}
        return {"text": "".join(parts)}


if __name__ == "__main__":
    main()
