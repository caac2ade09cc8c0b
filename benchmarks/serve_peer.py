"""A plain server around Hugging Face's `generate`, as people write them, for `benchmarks.serve`.

    python -m benchmarks.serve_peer FOLDER --port 9000 [--batching]

One request at a time: a lock, `generate` in a thread that is kept, and a streamer. --batching uses the
continuous batching of transformers instead, behind the same application.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # as heedful: threads that wait leave the cores to others

import torch
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route
from transformers import (
    AsyncTextIteratorStreamer,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
)


class OneByOne:
    """`generate` in a thread, one request after the other.

    It is one thread for all of them: torch keeps cuDNN's plans of attention, one for each length, for every
    thread apart. In a thread for each request every token would wait for a plan.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer, self.lock = model, tokenizer, asyncio.Lock()
        self.thread = ThreadPoolExecutor(1)

    def generate(self, prompt: list[int], most: int, streamer: Any) -> None:
        ids = torch.tensor([prompt], device=self.model.device)
        given = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "streamer": streamer}
        self.model.generate(**given, max_new_tokens=most, do_sample=False)

    def warm_up(self, prompt: int, most: int) -> None:
        """Write as much as any request will, before there is one."""
        for _ in range(2):
            self.thread.submit(self.generate, [0] * prompt, most, None).result()

    async def write(self, prompt: list[int], most: int) -> AsyncIterator[str]:
        async with self.lock:
            streamer = AsyncTextIteratorStreamer(self.tokenizer, skip_prompt=True)
            done = self.thread.submit(self.generate, prompt, most, streamer)
            async for piece in streamer:
                yield piece
            await asyncio.wrap_future(done)


class Batching:
    """transformers' continuous batching."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        how = GenerationConfig(do_sample=False, max_new_tokens=64, eos_token_id=-1, pad_token_id=0)
        self.tokenizer, self.manager = tokenizer, model.init_continuous_batching(generation_config=how)
        self.manager.start()
        self.numbers = itertools.count()

    def warm_up(self, prompt: int, most: int) -> None:
        """Nothing: the clients of `benchmarks.serve` do it."""

    async def write(self, prompt: list[int], most: int) -> AsyncIterator[str]:
        outputs: asyncio.Queue[Any] = asyncio.Queue()
        name = f"r{next(self.numbers)}"
        self.manager.register_result_handler(name, outputs.put_nowait)
        self.manager.add_request(prompt, request_id=name, max_new_tokens=most, streaming=True)
        said = 0
        while True:
            output = await outputs.get()
            new, said = output.generated_tokens[said:], len(output.generated_tokens)
            yield self.tokenizer.decode(new)
            if output.is_finished():
                return


def application(writer: OneByOne | Batching) -> Starlette:
    async def completions(request: Request) -> StreamingResponse:
        body = await request.json()

        async def events() -> AsyncIterator[str]:
            async for piece in writer.write(body["prompt"], body["max_tokens"]):
                yield f"data: {json.dumps({'choices': [{'text': piece}]})}\n\n"
            yield f"data: {json.dumps({'usage': {'completion_tokens': body['max_tokens']}})}\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    async def ready(request: Request) -> StreamingResponse:
        return StreamingResponse(iter(["ready"]))

    return Starlette(
        routes=[
            Route("/v1/completions", completions, methods=["POST"]),
            Route("/ready", ready),
        ]
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folder")
    options.add_argument("--port", type=int, required=True)
    options.add_argument("--device", default="cpu")
    options.add_argument("--dtype", default="float32")
    options.add_argument("--warm-up", nargs=2, type=int, default=[32, 64], metavar=("PROMPT", "NEW"))
    options.add_argument("--batching", action="store_true")
    given = options.parse_args()
    dtype = getattr(torch, given.dtype)
    attention = {"attn_implementation": "paged|sdpa"} if given.batching else {}
    model = AutoModelForCausalLM.from_pretrained(given.folder, dtype=dtype, **attention)
    model = model.to(given.device).eval()
    tokenizer = AutoTokenizer.from_pretrained(given.folder)
    model.generation_config.pad_token_id = 0
    writer = Batching(model, tokenizer) if given.batching else OneByOne(model, tokenizer)
    writer.warm_up(*given.warm_up)
    uvicorn.run(application(writer), port=given.port, log_level="error", http="h11", ws="none")


if __name__ == "__main__":
    main()
