"""LibreTranslate's endpoints: /translate, /languages and /frontend/settings, as its clients speak them.

The languages are those of `heedful serve --languages en:fr`, or those that a model itself knows (NLLB,
M2M100, mBART), by its own codes. Some clients send forms instead of JSON, and the key as a field.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..models.base.settings import Range
from .answering import body_bytes, route
from .app import Service
from .fields import HttpError, Most, json_body, read, shown
from .guard import is_form
from .tasks import Text, TextList
from .workers import WorkerProcess

NAMES = {
    "ar": "Arabic", "az": "Azerbaijani", "bg": "Bulgarian", "bn": "Bengali", "ca": "Catalan", "cs": "Czech",
    "da": "Danish", "de": "German", "el": "Greek", "en": "English", "eo": "Esperanto", "es": "Spanish",
    "et": "Estonian", "eu": "Basque", "fa": "Persian", "fi": "Finnish", "fr": "French", "ga": "Irish",
    "gl": "Galician", "he": "Hebrew", "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian", "id": "Indonesian",
    "it": "Italian", "ja": "Japanese", "ko": "Korean", "lt": "Lithuanian", "lv": "Latvian", "ms": "Malay",
    "nl": "Dutch", "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian",
    "sk": "Slovak", "sl": "Slovenian", "sq": "Albanian", "sr": "Serbian", "sv": "Swedish", "th": "Thai",
    "tl": "Tagalog", "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu", "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip
AUTO = "auto"
FIELDS = 20  # of a form
Code = Annotated[str, Most("stop_characters", 1)]


@dataclass(frozen=True, kw_only=True)
class LibreTranslateRequest:
    """Translate texts, as LibreTranslate's clients ask for it."""

    q: Annotated[Text | TextList, "a text, or several"]
    source: Annotated[Code, 'the language of the texts; "auto" where only one is possible']
    target: Annotated[Code, "the language to translate into"]
    format: Annotated[Literal["text", "html"], '"html" is refused'] = "text"
    alternatives: Annotated[int, Range(0, 100), "other translations to return with each"] = 0
    api_key: Annotated[str | None, Most("characters"), "the key of this service, unless a header has it"] = (
        None
    )


@dataclass(frozen=True)
class Translator:
    """A model that translates. languages: those it knows by tokens; otherwise it has one pair."""

    worker: WorkerProcess
    pair: tuple[str, str] = ("", "")
    languages: tuple[str, ...] = ()

    @property
    def sources(self) -> tuple[str, ...]:
        return self.languages or self.pair[:1]

    def targets(self, source: str) -> list[str]:
        """The languages that it translates this one into."""
        known = self.languages or (self.pair[1:] if source == self.pair[0] else ())
        return [code for code in known if code != source]


def libretranslate_routes(service: Service) -> list[Route]:
    """All of them."""
    takes, example = LibreTranslateRequest, {"translatedText": "Bonjour !"}
    return [
        route("/translate", translate, service, takes=takes, example=example, lenient=True, forms=True),
        route("/languages", languages, service, "GET"),
        route("/frontend/settings", settings, service, "GET"),
    ]


async def translators(service: Service) -> list[Translator]:
    """The models that translate between languages whose names are known."""
    found, refused = [], None
    for worker in service.workers.values():
        try:
            await worker.ready()
        except HttpError as error:
            refused = error
            continue
        known = tuple(worker.facts.get("languages", ()))
        if "translate" in worker.facts.get("can", ()) and (known or all(service.languages)):
            found.append(Translator(worker, service.languages, known))
    if not found:
        raise refused or HttpError(404, "no model here has languages: start it with --languages FROM:TO")
    return found


# /translate


async def translate(service: Service, request: Request) -> Response:
    """Translate texts, as LibreTranslate does."""
    try:
        return await translated(service, request)
    except HttpError as refused:
        return JSONResponse({"error": refused.message}, refused.status, refused.headers)


async def translated(service: Service, request: Request) -> Response:
    body, ignored = known_fields(await fields_of(service, request))
    check_key(request, body.get("api_key"))
    asked = read(LibreTranslateRequest, body, service.limits)
    if asked.format == "html":
        raise HttpError(400, '"format": "html" is not supported: send texts without their tags', "format")
    chosen, source, target = choose(await translators(service), asked.source, asked.target)
    texts = [asked.q] if isinstance(asked.q, str) else asked.q
    given: dict[str, Any] = {"ability": "translate", "texts": texts, "options": options_of(asked, service)}
    if chosen.languages:
        given |= {"source_lang": source, "target_lang": target}
    over: dict[str, Any] = {}
    async for event in service.ask(chosen.worker, "write", given, len(texts)):
        over = event
    found = reply(asked, over["result"]["answers"], source)
    return JSONResponse(found, headers={"x-heedful-ignored": ignored} if ignored else {})


async def fields_of(service: Service, request: Request) -> dict[str, Any]:
    """The fields of a request, from JSON or from a form."""
    body = await body_bytes(request, service.limits.body_bytes)
    if not is_form(request.scope):
        return json_body(body)
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FIELDS, errors="strict")
    except ValueError:
        raise HttpError(400, "the body is not a form in UTF-8") from None
    found: dict[str, Any] = dict(pairs)
    if len(found) < len(pairs):
        raise HttpError(400, "the form has a field twice: send several texts as JSON")
    if str(found.get("alternatives", "x")).isdecimal():
        found["alternatives"] = int(found["alternatives"][:9])
    return found


def known_fields(body: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The fields that are known, and the names of the others for a header."""
    known = {field.name for field in fields(LibreTranslateRequest)}
    others = ", ".join(shown(name) for name in body if name not in known and name.isascii())
    return {name: value for name, value in body.items() if name in known}, others[:1000]


def check_key(request: Request, sent: Any) -> None:
    """Refuse a request whose key is neither in its header, where the guard looked for it, nor in its body."""
    key = request.scope["heedful.access"].key
    if not key or "authorization" in request.headers:
        return
    given = sent.encode("utf-8", "replace") if isinstance(sent, str) else b""
    if not hmac.compare_digest(given, key.encode()):
        raise HttpError(401, "give the key of this service as api_key, or in a header", "api_key")


def choose(known: list[Translator], source: str, target: str) -> tuple[Translator, str, str]:
    """A model for two languages, and their codes as the model has them."""
    found = []
    for one in known:
        for a in one.sources if source == AUTO else matching(source, one.sources):
            found += [(one, a, b) for b in matching(target, one.targets(a))]
    wanted = f"{shown(source)} to {shown(target)}"
    if not found:
        raise HttpError(400, f"{wanted} is not available: {offered(known)}", "target")
    pairs = list(dict.fromkeys(f"{a} to {b}" for _, a, b in found))
    if len(pairs) > 1:
        raise HttpError(400, f"{wanted} may be {', or '.join(pairs[:3])}: name one of them", "source")
    return found[0]


def matching(code: str, known: Iterable[str]) -> list[str]:
    """The code itself, or those it is the beginning of: "en" of "en_XX"."""
    plain = {one: one.lower().replace("-", "_") for one in known}
    given = code.lower().replace("-", "_")
    return [one for one, name in plain.items() if name == given] or [
        one for one, name in plain.items() if name.partition("_")[0] == given
    ]


def offered(known: list[Translator]) -> str:
    one = known[0]
    if not one.languages:
        return f"there is {one.pair[0]} to {one.pair[1]}"
    return f"/languages has {len(one.languages)}, such as {', '.join(one.languages[:3])}"


def options_of(asked: LibreTranslateRequest, service: Service) -> dict[str, Any]:
    """The options of decoding: a beam with room for the alternatives."""
    if asked.alternatives >= service.limits.beams:
        most = service.limits.beams - 1
        raise HttpError(400, f'"alternatives" may be at most {most}', "alternatives")
    if not asked.alternatives:
        return {}
    return {"beam": max(4, asked.alternatives + 1), "n_best": asked.alternatives + 1}


def reply(asked: LibreTranslateRequest, answers: list[dict[str, Any]], source: str) -> dict[str, Any]:
    """The answer, in the form that it was asked for: one text, or a list."""
    several = not isinstance(asked.q, str)
    texts = [one["text"] for one in answers]
    found: dict[str, Any] = {"translatedText": texts if several else texts[0]}
    if asked.alternatives:
        others = [[other["text"] for other in one.get("n_best", [])[1:]] for one in answers]
        found["alternatives"] = others if several else others[0]
    if asked.source == AUTO:  # nothing was measured: no other language was possible
        detected = {"confidence": 0.0, "language": source}
        found["detectedLanguage"] = [detected] * len(texts) if several else detected
    return found


# /languages


async def languages(service: Service, request: Request) -> Response:
    """The languages, each with those that it can be translated into."""
    found: dict[str, dict[str, None]] = {}
    for one in await translators(service):
        for source in one.sources:
            found.setdefault(source, {}).update(dict.fromkeys(one.targets(source)))
    for target in {target for some in found.values() for target in some}:
        found.setdefault(target, {})
    rows = [{"code": code, "name": name_of(code), "targets": [*some]} for code, some in found.items()]
    return JSONResponse(rows)


def name_of(code: str) -> str:
    return NAMES.get(code.lower().partition("_")[0].partition("-")[0], code)


async def settings(service: Service, request: Request) -> Response:
    """What front ends of LibreTranslate ask at their start."""
    first = (await translators(service))[0]
    source = first.sources[0]
    target = first.targets(source)[0]
    return JSONResponse(
        {
            "apiKeys": False,
            "charLimit": service.limits.characters,
            "filesTranslation": False,
            "frontendTimeout": 500,
            "keyRequired": bool(request.scope["heedful.access"].key),
            "language": {
                "source": {"code": source, "name": name_of(source)},
                "target": {"code": target, "name": name_of(target)},
            },
            "suggestions": False,
            "supportedFilesFormat": [],
        }
    )
