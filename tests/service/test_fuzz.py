"""Twenty thousand changed requests to every endpoint: no status 500, no connection without an answer, and
the workers that were started are those that are there at the end."""

import asyncio
import base64
import json
import os

import pytest
from helpers.chat_cases import CHATML, tell, write_llama
from helpers.mutation import Mutator, send_all
from helpers.serve_cases import serving
from helpers.small_runs import make_runs

COUNT = int(os.environ.get("HEEDFUL_FUZZ", "20000"))
PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()
TEXTS = {"texts": ["the cat sleeps", "i am a teacher"]}
WRITTEN = {"max_new_tokens": 4, "beam": 2, "stop": [], "sample": False, "seed": 3}
SAMPLED = {
    "max_tokens": 4, "temperature": 0.7, "top_p": 0.9, "n": 2, "stop": ["a"], "seed": 3, "stream": True,
    "presence_penalty": 0.5, "logit_bias": {"3": 1.0}, "stream_options": {"include_usage": True},
}  # fmt: skip
ENDPOINTS = [
    ("/v1/completions", {"model": "lm", "prompt": "the cat", "logprobs": 2, "echo": True, **SAMPLED}),
    ("/v1/chat/completions", {"model": "chat", "messages": [{"role": "user", "content": "a"}], **SAMPLED}),
    ("/v1/embeddings", {"model": "lm", "input": ["the cat"], "encoding_format": "base64"}),
    ("/v1/generate", {"model": "lm", **TEXTS, **WRITTEN}),
    ("/v1/score", {"model": "lm", **TEXTS}),
    ("/v1/tokenize", {"model": "lm", **TEXTS}),
    ("/v1/detokenize", {"model": "lm", "tokens": [[1, 2, 3]]}),
    ("/v1/translate", {"model": "demo", **TEXTS, **WRITTEN, "align": True, "n_best": 2}),
    ("/v1/fill", {"model": "mlm", "texts": ["the [MASK] sleeps"], "top": 3}),
    ("/v1/classify", {"model": "classify", **TEXTS}),
    ("/v1/tag", {"model": "parse", **TEXTS}),
    ("/v1/parse", {"model": "parse", **TEXTS}),
    ("/v1/answer", {"model": "span", "questions": ["who sleeps"], "contexts": ["the cat sleeps"]}),
    ("/v1/choose", {"model": "choose", "contexts": ["the cat"], "choices": [["sleeps", "eats"]]}),
    ("/v1/summarize", {"model": "summarize", **TEXTS, "max_new_tokens": 4}),
    ("/v1/caption", {"model": "lm", "images": [PICTURE]}),
    ("/translate", {"q": ["the cat"], "source": "en", "target": "fr", "format": "text", "alternatives": 1}),
]
MODELS = ("demo", "lm", "mlm", "classify", "parse", "span", "choose", "summarize")


@pytest.mark.slow
def test_changed_requests_break_nothing(tmp_path):
    make = make_runs(tmp_path, steps=3)
    limits = ("tokens=16", "characters=600", "request_seconds=60", "texts=8")
    options = ("--languages", "en:fr", *(word for one in limits for word in ("--limit", one)))
    tell(write_llama(tmp_path / "chat"), CHATML)
    folders = [*map(make, MODELS), str(tmp_path / "chat")]
    with serving(*folders, options=options, log=tmp_path / "log") as service:
        described = service.get("/openapi.json").json["paths"]
        assert {path for path, methods in described.items() if "post" in methods} <= {p for p, _ in ENDPOINTS}
        for number, (path, body) in enumerate(ENDPOINTS):
            bodies = [json.dumps(body).encode(), *map(Mutator(number).changed, [body] * COUNT)]
            found = asyncio.run(send_all(service.port, path, bodies))
            print(path, dict(sorted(found.items())), flush=True)
            assert set(found) <= {200, 400, 404, 413, 429}, found
        models = service.get("/health").json["models"]
        assert {one["restarts"] for one in models.values()} == {0}
        assert service.get("/ready").status == 200
    lines = (tmp_path / "log").read_text().splitlines()
    assert [line for line in lines if "Traceback" in line or "Error at" in line] == []
