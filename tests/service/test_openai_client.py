"""OpenAI's own client against a running service: what it is answered equals what the library says."""

import asyncio
import base64
import json

import numpy as np
import openai
import pytest
from helpers.chat_cases import CHATML, tell, write_llama

import heedful

KEY = "a-key-of-32-characters-for-tests"
PROMPT = "the cat"
ROWS, WAITING = 4, 16


@pytest.fixture(scope="module")
def folders(stored, tmp_path_factory):
    """The folders of the two models: a run, and a chat model that reads bytes."""
    chat = write_llama(tmp_path_factory.mktemp("folders") / "chat")
    tell(chat, CHATML)
    settings = {"bos_token_id": 0, "eos_token_id": 1, "do_sample": True, "temperature": 0.3, "top_k": 7}
    (chat / "generation_config.json").write_text(json.dumps(settings))
    return {"lm": str(stored / "lm"), "chat": str(chat)}


@pytest.fixture(scope="module")
def service(served, folders, tmp_path_factory):
    key = tmp_path_factory.mktemp("key") / "key"
    key.write_text(KEY + "\n")
    rows = ("--rows", str(ROWS), "--waiting", str(WAITING))
    found = served(folders["lm"], folders["chat"], options=("--key-file", str(key), *rows))
    found.headers["authorization"] = f"Bearer {KEY}"
    return found


def options_of(service):
    return {"base_url": f"{service.address}/v1", "api_key": KEY, "max_retries": 0, "timeout": 60}


@pytest.fixture(scope="module")
def client(service):
    with openai.OpenAI(**options_of(service)) as found:
        yield found


@pytest.fixture(scope="module")
def lm(folders):
    return heedful.load(folders["lm"])


@pytest.fixture(scope="module")
def talker(folders):
    return heedful.load(folders["chat"])


def idle(service):
    """Whether nothing is being written or waits."""
    text = service.get("/metrics").body.decode()
    rows = [line for line in text.splitlines() if line.startswith("heedful_rows{")]
    return rows and all(float(line.split()[-1]) == 0 for line in rows)


def until_idle(service):
    for _ in range(2000):
        if idle(service):
            return
    raise AssertionError("rows are still held")


# Models.


def test_models_are_listed_and_found_by_name(client):
    assert [model.id for model in client.models.list()] == ["lm", "chat"]
    found = client.models.retrieve("lm")
    assert (found.id, found.object, found.owned_by) == ("lm", "model", "heedful") and found.created > 10**9
    with pytest.raises(openai.NotFoundError, match="there are lm, chat") as error:
        client.models.retrieve("gpt-4o")
    assert (error.value.code, error.value.param) == ("model_not_found", "model")


# Completions.


def test_a_completion_is_what_the_library_writes(client, lm):
    found = client.completions.create(model="lm", prompt=PROMPT, temperature=0)
    expected = lm.generate(PROMPT, max_new_tokens=16)
    assert found.choices[0].text == str(expected) and found.choices[0].finish_reason == "length"
    assert found.id.startswith("cmpl-") and found.object == "text_completion" and found.model == "lm"
    read = len(lm.wording.prompt([PROMPT])[0].ids)
    usage = found.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (read, 16, read + 16)


def test_a_seed_draws_what_the_library_draws_alone_beside_others_and_in_a_list(client, lm):
    prompts = [PROMPT, "Our nieces", "There was"]
    expected = [str(lm.generate(one, sample=True, seed=11, max_new_tokens=9)) for one in prompts]
    together = client.completions.create(model="lm", prompt=prompts, seed=11, max_tokens=9, temperature=1)
    assert [one.text for one in together.choices] == expected
    alone = [client.completions.create(model="lm", prompt=one, seed=11, max_tokens=9) for one in prompts]
    assert [one.choices[0].text for one in alone] == expected
    several = client.completions.create(model="lm", prompt=prompts[1], seed=11, max_tokens=9, n=3)
    assert several.choices[0].text == expected[1] and len({one.text for one in several.choices}) > 1
    assert several.usage.prompt_tokens == alone[1].usage.prompt_tokens  # counted once
    assert several.usage.completion_tokens == 27


def test_without_a_seed_equal_prompts_are_drawn_differently(client):
    found = client.completions.create(model="lm", prompt=[PROMPT] * 4, max_tokens=12)
    assert len({one.text for one in found.choices}) > 1
    seed = int(found.system_fingerprint.removeprefix("seed-"))
    again = client.completions.create(model="lm", prompt=PROMPT, max_tokens=12, seed=seed)
    assert again.choices[0].text == found.choices[0].text


def test_tokens_as_numbers_are_a_prompt_like_their_text(client, lm):
    ids = lm.wording.prompt([PROMPT])[0].ids
    by_text = client.completions.create(model="lm", prompt=PROMPT, temperature=0).choices[0].text
    both = client.completions.create(model="lm", prompt=[ids, ids[:1]], temperature=0)
    single = client.completions.create(model="lm", prompt=ids, temperature=0)
    assert both.choices[0].text == single.choices[0].text == by_text
    assert both.choices[1].index == 1 and both.usage.prompt_tokens == len(ids) + 1


@pytest.mark.parametrize("stop", [". ", [" very", "going", ". "], ["no such text"]])
def test_an_answer_ends_before_a_stop_string(client, lm, stop):
    expected = str(lm.generate(PROMPT, max_new_tokens=20))
    stops = [stop] if isinstance(stop, str) else stop
    cut = min((expected.find(one) for one in stops if one in expected), default=None)
    asked = {"model": "lm", "prompt": PROMPT, "temperature": 0, "max_tokens": 20, "stop": stop}
    found = client.completions.create(**asked).choices[0]
    assert found.text == expected[:cut]
    assert found.finish_reason == ("length" if cut is None else "stop")
    chunks = list(client.completions.create(**asked, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == found.text
    assert chunks[-1].choices[0].finish_reason == found.finish_reason


def test_echo_with_logprobs_scores_the_prompt_as_evaluations_need_it(client, lm):
    """lm-evaluation-harness sends tokens, and sums token_logprobs from the end of the context on."""
    text = "the cat is going to be afraid."
    ids = lm.wording.prompt([text])[0].ids
    asked = {"model": "lm", "prompt": [ids], "echo": True, "logprobs": 1, "temperature": 0}
    for most in (0, 1):
        choice = client.completions.create(**asked, max_tokens=most).choices[0]
        found = choice.logprobs
        assert len(found.tokens) == len(found.token_logprobs) == len(found.top_logprobs) == len(ids) + most
        assert found.token_logprobs[0] is None and found.top_logprobs[0] is None
        scores = lm.score([text])[0]
        assert sum(found.token_logprobs[1 : len(ids)]) == pytest.approx(scores.total, abs=1e-4)
        assert "".join(found.tokens) == choice.text and choice.finish_reason == "length"
        assert [choice.text[start:] for start in found.text_offset] == [
            "".join(found.tokens[place:]) for place in range(len(found.tokens))
        ]
        greedy = [log_p == max(top.values()) for log_p, top in zip(
            found.token_logprobs[1:], found.top_logprobs[1:], strict=True)]  # fmt: skip
        assert any(greedy) and not all(greedy)


def test_logprobs_name_the_likeliest_tokens_and_where_each_begins(client):
    asked = {"model": "lm", "prompt": PROMPT, "max_tokens": 6, "logprobs": 3, "seed": 4}
    choice = client.completions.create(**asked).choices[0]
    found = choice.logprobs
    assert "".join(found.tokens) == choice.text
    for token, log_p, top in zip(found.tokens, found.token_logprobs, found.top_logprobs, strict=True):
        assert top[token] == log_p and 3 <= len(top) <= 4
        assert list(top.values())[:3] == sorted(top.values(), reverse=True)[:3]
    for token, start in zip(found.tokens, found.text_offset, strict=True):
        assert (PROMPT + choice.text)[start:].startswith(token)
    parts = [chunk.choices[0].logprobs for chunk in client.completions.create(**asked, stream=True)]
    streamed = [part for part in parts if part is not None]
    assert [one for part in streamed for one in part.text_offset] == found.text_offset
    assert [one for part in streamed for one in part.tokens] == found.tokens


def test_best_of_returns_the_likeliest(client, lm):
    asked = {"model": "lm", "prompt": [PROMPT, "Our"], "seed": 2, "max_tokens": 5, "logprobs": 0}
    every = client.completions.create(**asked, n=6).choices
    best = client.completions.create(**asked, n=2, best_of=6)

    def mean(choice):
        return np.mean(choice.logprobs.token_logprobs)

    ranked = [sorted(some, key=mean, reverse=True)[:2] for some in (every[:6], every[6:])]
    assert [one.text for one in best.choices] == [one.text for some in ranked for one in some]
    assert [one.index for one in best.choices] == [0, 1, 2, 3] and best.usage.completion_tokens == 60


def test_penalties_and_biases_change_what_is_written(client, lm):
    asked = {"model": "lm", "prompt": PROMPT, "temperature": 0, "max_tokens": 40}
    plain = client.completions.create(**asked).choices[0].text
    (word,) = lm.wording.target([" evening"])[0][-1:]
    assert "evening" in plain
    assert "evening" not in client.completions.create(**asked, logit_bias={word: -100}).choices[0].text
    for name in ("presence_penalty", "frequency_penalty"):
        less = client.completions.create(**asked, **{name: 2}).choices[0].text
        assert less.count(" very") < plain.count(" very"), name
        assert client.completions.create(**asked, **{name: 0}).choices[0].text == plain
    same = client.completions.create(**asked, extra_body={"repetition_penalty": 1.3, "top_k": 5}).choices[0]
    assert same.text == str(lm.generate(PROMPT, max_new_tokens=40, repetition_penalty=1.3))


# Streams.


def test_a_stream_is_the_answer_in_pieces_with_one_id(client, lm):
    asked = {"model": "lm", "prompt": [PROMPT, "Our"], "temperature": 0, "max_tokens": 7, "n": 2}
    with client.completions.create(**asked, stream=True) as stream:
        chunks = list(stream)
    texts = ["".join(c.choices[0].text for c in chunks if c.choices[0].index == i) for i in range(4)]
    first, second = (str(one) for one in lm.generate([PROMPT, "Our"], max_new_tokens=7))
    assert texts == [first, first, second, second]
    assert len({chunk.id for chunk in chunks}) == 1 and all(chunk.usage is None for chunk in chunks)
    ends = [chunk.choices[0] for chunk in chunks if chunk.choices[0].finish_reason]
    assert sorted((end.index, end.finish_reason) for end in ends) == [(i, "length") for i in range(4)]


def test_a_stream_ends_with_its_usage_where_that_is_wanted(client):
    asked = {"model": "lm", "prompt": PROMPT, "max_tokens": 5, "stream": True}
    *chunks, last = client.completions.create(**asked, stream_options={"include_usage": True})
    assert last.choices == [] and last.usage.completion_tokens == 5
    assert all(chunk.usage is None and "usage" in chunk.model_fields_set for chunk in chunks)
    with pytest.raises(openai.BadRequestError, match="stream_options"):
        client.completions.create(
            model="lm", prompt=PROMPT, stream=False, stream_options={"include_usage": True}
        )


def test_sixteen_streams_at_once_say_what_each_says_alone(service, lm):
    prompts = [f"{word} {place}" for word in ("the cat", "Our", "A very old", "There") for place in range(4)]
    expected = [str(lm.generate(one, sample=True, seed=i, max_new_tokens=8)) for i, one in enumerate(prompts)]

    async def one_text(client, prompt, seed):
        asked = {"model": "lm", "prompt": prompt, "seed": seed, "max_tokens": 8}
        stream = await client.completions.create(**asked, stream=True)
        return "".join([chunk.choices[0].text async for chunk in stream])

    async def everything():
        async with openai.AsyncOpenAI(**options_of(service)) as client:
            return await asyncio.gather(*(one_text(client, p, i) for i, p in enumerate(prompts)))

    assert asyncio.run(everything()) == expected


def test_more_than_can_wait_are_refused_and_closed_streams_free_their_rows(service):
    async def first_piece(client):
        stream = await client.completions.create(model="lm", prompt=PROMPT, max_tokens=4000, stream=True)
        async for _ in stream:
            break
        return stream

    async def everything():
        async with openai.AsyncOpenAI(**options_of(service)) as client:
            tasks = [asyncio.create_task(first_piece(client)) for _ in range(ROWS + WAITING + 5)]
            while sum(task.done() for task in tasks) < ROWS + 5:
                await asyncio.sleep(0.01)
            refused = [task.exception() for task in tasks if task.done() and task.exception()]
            streams = [task.result() for task in tasks if task.done() and not task.exception()]
            for task in tasks:
                task.cancel()
            for stream in streams:
                await stream.close()
            return refused, streams

    refused, streams = asyncio.run(everything())
    assert len(refused) == 5 and len(streams) == ROWS
    assert all(isinstance(error, openai.RateLimitError) for error in refused)
    assert all(int(error.response.headers["retry-after"]) >= 1 for error in refused)
    until_idle(service)


# Conversations.


def test_a_chat_is_the_answer_to_its_template(client, talker):
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief"}]},
        {"role": "user", "content": "what is a mat", "name": "Ann"},
        {"role": "assistant", "content": None},
        {"role": "user", "content": [{"type": "text", "text": "a rug?"}]},
    ]
    plain = [
        {"role": "system", "content": "Be\nbrief"},
        {"role": "user", "content": "what is a mat"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "a rug?"},
    ]
    prompt = talker.chat_prompt(plain)
    asked = {"model": "chat", "messages": messages, "max_completion_tokens": 9}
    found = client.chat.completions.create(**asked, temperature=0)
    message = found.choices[0].message
    assert message.content == str(talker.generate(prompt, sample=False, max_new_tokens=9))
    assert message.role == "assistant" and found.object == "chat.completion"
    assert found.usage.prompt_tokens == len(talker.wording.prompt([prompt])[0].ids)
    chunks = list(client.chat.completions.create(**asked, temperature=0, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[0].object == "chat.completion.chunk"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == message.content


def test_the_folder_s_generation_settings_are_the_defaults(client, talker):
    prompt = talker.chat_prompt("what is a mat")
    asked = {"model": "chat", "messages": [{"role": "user", "content": "what is a mat"}], "seed": 5}
    found = client.chat.completions.create(**asked, max_tokens=11).choices[0].message.content
    assert found == str(talker.generate(prompt, seed=5, max_new_tokens=11))
    assert found == str(
        talker.generate(prompt, sample=True, temperature=0.3, top_k=7, seed=5, max_new_tokens=11)
    )
    hot = client.chat.completions.create(**asked, max_tokens=11, temperature=1.5, extra_body={"top_k": -1})
    expected = talker.generate(prompt, sample=True, temperature=1.5, top_k=0, seed=5, max_new_tokens=11)
    assert hot.choices[0].message.content == str(expected) != found


def test_tokens_that_are_parts_of_characters_have_their_bytes(client, talker):
    asked = {"model": "chat", "messages": [{"role": "user", "content": "a mat"}], "temperature": 0}
    choice = client.chat.completions.create(**asked, max_tokens=12, logprobs=True, top_logprobs=4).choices[0]
    entries = choice.logprobs.content
    said = b"".join(bytes(one.bytes) for one in entries)
    assert len(entries) == 12 and said.decode("utf-8", "replace") == choice.message.content
    assert any(bytes(one.bytes).decode("utf-8", "replace") != one.token for one in entries)
    for one in entries:
        assert len({other.token for other in one.top_logprobs}) == 4  # no two look alike
        assert one.top_logprobs[0].token == one.token and one.top_logprobs[0].logprob == one.logprob
    prompt = talker.chat_prompt("a mat")
    ids = talker.wording.prompt([prompt])[0].ids
    found = client.completions.create(model="chat", prompt=ids, temperature=0, max_tokens=12, logprobs=2)
    spelled = found.choices[0].logprobs
    assert any(token.startswith("bytes:\\x") for token in spelled.tokens)
    assert found.choices[0].text == choice.message.content
    before = len(talker.wording.decoded(ids))
    assert spelled.text_offset[0] == before and spelled.text_offset == sorted(spelled.text_offset)
    assert spelled.text_offset[-1] < before + len(choice.message.content)


# Embeddings.


def test_embeddings_are_the_library_s_in_both_encodings(client, lm):
    texts = ["the cat", "a very old tree"]
    expected = lm.embed(texts).numpy()
    for encoding in ("float", "base64", openai.omit):
        found = client.embeddings.create(model="lm", input=texts, encoding_format=encoding)
        vectors = [one.embedding for one in found.data]
        vectors = [np.frombuffer(base64.b64decode(v), "<f4") if isinstance(v, str) else v
                   for v in vectors]  # fmt: skip
        np.testing.assert_allclose(vectors, expected, atol=1e-5)
    ids = [row.ids for row in lm.wording.prompt(texts)]
    by_ids = client.embeddings.create(model="lm", input=ids)
    np.testing.assert_allclose([one.embedding for one in by_ids.data], expected, atol=1e-5)
    assert by_ids.usage.prompt_tokens == found.usage.prompt_tokens == sum(map(len, ids))
    with pytest.raises(openai.BadRequestError, match="dimensions"):
        client.embeddings.create(model="lm", input="the", dimensions=3)


# Errors.


def test_errors_are_the_client_s_exceptions(client, service):
    with (
        pytest.raises(openai.AuthenticationError) as error,
        openai.OpenAI(**options_of(service) | {"api_key": "another"}) as other,
    ):
        other.models.list()
    assert error.value.code == "invalid_api_key"
    create = client.completions.create
    with pytest.raises(openai.NotFoundError, match='there is no model "gpt-4o"'):
        create(model="gpt-4o", prompt=PROMPT)
    with pytest.raises(openai.NotFoundError, match="no chat template"):
        client.chat.completions.create(model="lm", messages=[{"role": "user", "content": "hello"}])
    with pytest.raises(openai.BadRequestError, match="temperature") as error:
        create(model="lm", prompt=PROMPT, temperature=7)
    assert error.value.param == "temperature" and error.value.type == "invalid_request_error"
    with pytest.raises(openai.BadRequestError, match="there is no token 9999999"):
        create(model="lm", prompt=[9999999])
    with pytest.raises(openai.BadRequestError, match="`logit_bias` names the token 9999999"):
        create(model="lm", prompt=PROMPT, logit_bias={"9999999": 1})
    with pytest.raises(openai.APIStatusError, match="30,001 characters, and 30,000") as error:
        create(model="lm", prompt="x" * 30_001)
    assert error.value.status_code == 413


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", ["cat " * 1000, [5] * 1000])
@pytest.mark.parametrize("model", ["lm", "chat"])  # 32 positions; 999, and no table of positions
def test_a_prompt_beyond_the_context_has_openai_s_code(client, model, prompt, stream):
    with pytest.raises(openai.BadRequestError, match="tokens, and the model reads at most") as error:
        client.completions.create(model=model, prompt=prompt, stream=stream)
    assert error.value.code == "context_length_exceeded"


def test_a_prompt_left_out_begins_a_text_where_the_model_knows_how(client, talker, folders):
    found = client.completions.create(model="chat", prompt=None, temperature=0, max_tokens=5)
    assert found.choices[0].text == str(talker.generate("", sample=False, max_new_tokens=5))
    with pytest.raises(openai.BadRequestError, match="text 1 is empty, and lm knows no token") as error:
        client.completions.create(model="lm", prompt="")
    assert folders["lm"] not in str(error.value)  # where it lies is not said


def test_a_client_that_waits_no_longer_frees_its_row(client, service):
    with pytest.raises(openai.APITimeoutError):
        client.completions.create(model="lm", prompt=PROMPT, max_tokens=4000, timeout=0.3)
    until_idle(service)


def test_raw_responses_name_the_fields_that_nobody_knows(client, service):
    beside = {"chat_id": 7, "num_ctx": 2048}
    raw = client.completions.with_raw_response.create(
        model="lm", prompt=PROMPT, max_tokens=3, user="ann", extra_body=beside
    )
    assert raw.status_code == 200 and raw.headers["x-heedful-ignored"] == "chat_id, num_ctx"
    assert raw.parse().usage.completion_tokens == 3
    plain = service.post("/v1/completions", {"model": "lm", "prompt": "a", "max_tokens": 1})
    assert plain.status == 200 and "x-heedful-ignored" not in plain.headers
