"""heedful's own endpoints: every answer is what the methods of the model give."""

import base64
import json
import re
import shlex
from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers as hf
from helpers import pages
from helpers.caption_cases import SMALL, write_pictures
from helpers.fuzzing import fuzz
from helpers.image_files import huge_png
from helpers.loaded_models import spread
from helpers.local_service import local_service
from helpers.odd_texts import SPACES
from helpers.runs import CPU, Quiet
from helpers.small_runs import make_runs
from helpers.tokenizer_cases import word_piece

import heedful
from heedful.data.images.files import png_bytes
from heedful.decode.options import decoding_options
from heedful.runs import trainer
from heedful.service import tasks
from heedful.service.fields import object_schema
from heedful.service.limits import Limits
from heedful.service.methods import kept
from heedful.service.task_routes import OTHERS, WRITING
from heedful.tasks import recipe
from heedful.use.as_json import as_json

NAMES = ("demo", "lm", "mlm", "classify", "classify-pairs", "parse", "span", "choose", "summarize")
TEXTS = ["the cat sleeps", "i am a teacher", "the dog eats a fish and the cat sleeps"]
FEW = {"num_hidden_layers": 1, "num_attention_heads": 3, "hidden_size": 12, "intermediate_size": 20}


def entity_folder(folder):
    """A Hugging Face folder of a tiny token classifier with random weights."""
    tokenizer = word_piece()
    config = hf.BertConfig(**FEW, vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=29)
    config.id2label = dict(enumerate(("O", "B-PER", "I-PER")))
    spread(hf.BertForTokenClassification(config), 3).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def vit_folder(folder):
    """The same of a classifier of pictures."""
    config = hf.ViTConfig(**FEW, image_size=12, patch_size=4, id2label=dict(enumerate("abc")))
    spread(hf.ViTForImageClassification(config), 3).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(
        json.dumps({"image_processor_type": "ViTImageProcessor", "size": {"height": 12, "width": 12}})
    )
    return folder


def caption_run(folder):
    """A run that describes pictures, after one step."""
    write_pictures(folder / "images", each=1)
    settings = SMALL | {"data.images": str(folder / "images"), "train.steps": 1, "evaluate.every": 1}
    settings["data.valid_images"] = settings["data.images"]
    trainer.start(recipe.make("caption", settings=settings), folder / "run", Quiet(), CPU)
    return folder / "run"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """One model for each task; what they have learned does not matter."""
    hf.utils.logging.disable_progress_bar()
    make = make_runs(tmp_path_factory.mktemp("small"), steps=3)
    folders = {name: make(name) for name in NAMES}
    with torch.no_grad():
        folders["entities"] = entity_folder(tmp_path_factory.mktemp("entities"))
        folders["vit"] = vit_folder(tmp_path_factory.mktemp("vit"))
    folders["caption"] = caption_run(tmp_path_factory.mktemp("caption"))
    return {name: heedful.load(folder) for name, folder in folders.items()}


@pytest.fixture(scope="module")
def service(models):
    with local_service(models) as client:
        yield client


def same(found, expected):
    """Whether two answers are equal, numbers up to rounding in another batch."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[k], expected[k]) for k in expected)
    if isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(same, found, expected))
    return found == pytest.approx(expected, abs=2e-6) if isinstance(expected, float) else found == expected


def answer_of(service, path, model, **body):
    """The whole answer of a request that is answered."""
    reply = service.post(f"/v1/{path}", {"model": model, **body})
    assert reply.status == 200, reply.json
    assert reply.json["model"] == model
    usage = reply.json["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    return reply.json


def shape_of(answer, align=False, several=True):
    """An answer of the Python API as the service sends it; the best of several does not name itself again."""
    found = {"text": str(answer), "score": answer.score, "ended": answer.ended, "tokens": answer.tokens}
    found["log_probabilities"] = answer.log_probabilities
    if align:
        found["alignment"] = [list(pair) for pair in answer.alignment]
    if several and len(answer.n_best) > 1:
        found["n_best"] = [shape_of(one, align, several=False) for one in answer.n_best]
    return found


WRITTEN = [
    ("translate", "demo", "translations", {}),
    ("translate", "demo", "translations", {"beam": 1}),
    ("translate", "demo", "translations", {"beam": 3, "n_best": 2, "length_alpha": 0.2}),
    ("translate", "demo", "translations", {"sample": True, "seed": 5, "top_k": 9, "bad_words": ["chat"]}),
    ("summarize", "summarize", "summaries", {"max_new_tokens": 4}),
    ("generate", "lm", "continuations", {"max_new_tokens": 7}),
    ("generate", "lm", "continuations", {"max_new_tokens": 5, "sample": True, "temperature": 2.0, "seed": 3}),
    ("generate", "lm", "continuations", {"max_new_tokens": 3, "beam": 3, "n_best": 3}),
    ("generate", "lm", "continuations", {"max_new_tokens": 9, "repetition_penalty": 3.0, "stop": ["a"]}),
]


@pytest.mark.parametrize("path, name, results, options", WRITTEN)
def test_texts_are_those_that_the_method_writes(path, name, results, options, service, models):
    texts = TEXTS[: 2 if name == "lm" else 3]
    found = answer_of(service, path, name, texts=texts, **options)
    expected = getattr(models[name], path)(texts, **options)
    assert same(found[results], [shape_of(one) for one in expected])
    assert found["usage"]["completion_tokens"] >= sum(len(one.tokens) for one in expected)


def test_words_are_aligned_as_the_method_aligns_them(service, models):
    found = answer_of(service, "translate", "demo", texts=TEXTS[0], align=True, beam=1)["translations"]
    expected = models["demo"].translate([TEXTS[0]], align=True, beam=1)
    assert same(found, [shape_of(one, align=True) for one in expected])


@pytest.mark.parametrize(
    "path, name", [("translate", "demo"), ("summarize", "summarize"), ("generate", "lm")]
)
def test_a_stream_has_the_pieces_of_each_text_and_the_whole_answer_at_its_end(path, name, service):
    options = {"max_new_tokens": 6, "beam": 1}
    body = {"model": name, "texts": TEXTS[:2], **options}
    reply = service.post(f"/v1/{path}", body | {"stream": True})
    assert reply.headers["content-type"].startswith("text/event-stream")
    *pieces, last = reply.events
    assert last == service.post(f"/v1/{path}", body).json
    (rows,) = (rows for key, rows in last.items() if key not in ("model", "usage"))
    for index, row in enumerate(rows):
        assert "".join(one["text"] for one in pieces if one["index"] == index) == row["text"]
    assert reply.body.endswith(b"data: [DONE]\n\n")


def test_streams_are_greedy_and_refuse_what_is_known_only_at_the_end(service, models):
    reply = service.post("/v1/translate", {"model": "demo", "texts": TEXTS[0], "stream": True})
    assert reply.events[-1]["translations"][0]["text"] == "".join(models["demo"].stream(TEXTS[0]))
    for more in ({"beam": 4}, {"beam_groups": 2}, {"align": True}):
        body = {"model": "demo", "texts": TEXTS[0], "stream": True, **more}
        assert service.post("/v1/translate", body).status == 400


TARGETS = ["le chat dort", "je", "le chien mange un poisson"]
QUESTIONS = {"questions": ["who eats ?", "who ?"], "contexts": ["the dog eats .", "a fish " * 70]}
CHOICES = {"contexts": TEXTS[:2], "choices": [["a cat", "a dog"], ["it", "is", "the cat"]]}
BLANKS = ["the [MASK] sat on the [MASK]", "[MASK] dog ate the fish."]
CALLS = [
    ("fill", "mlm", "texts", {"texts": BLANKS, "top": 3}),
    ("classify", "classify", "labels", {"texts": TEXTS}),
    ("classify", "classify-pairs", "labels", {"texts": TEXTS, "seconds": TEXTS[::-1]}),
    ("score", "demo", "scores", {"texts": TEXTS, "targets": TARGETS}),
    ("score", "lm", "scores", {"texts": TEXTS[:2]}),
    ("answer", "span", "answers", QUESTIONS),
    ("choose", "choose", "choices", CHOICES),
    ("tag", "parse", "sentences", {"texts": TEXTS}),
    ("tag", "entities", "sentences", {"texts": ["The cat sat on the mat", "Köln"]}),
    ("parse", "parse", "sentences", {"texts": TEXTS}),
]


@pytest.mark.parametrize("path, name, results, body", CALLS, ids=lambda one: one if type(one) is str else "")
def test_answers_are_those_of_the_method(path, name, results, body, service, models):
    found = answer_of(service, path, name, **body)[results]
    lists = [value for value in body.values() if isinstance(value, list)]
    method = getattr(models[name], path)
    expected = [as_json(one) for one in method(*lists, **{k: v for k, v in body.items() if k == "top"})]
    assert same(found, json.loads(json.dumps(expected)))
    single = {key: value[0] if isinstance(value, list) else value for key, value in body.items()}
    assert same(answer_of(service, path, name, **single)[results], json.loads(json.dumps(expected[:1])))


def pictures(folder):
    """Two pictures as files and as clients send them: in base64, and as a data: URL."""
    made = [np.random.default_rng(n).integers(0, 256, (9 + n, 14, 3)).astype(np.uint8) for n in range(2)]
    for n, pixels in enumerate(made):
        (folder / f"{n}.png").write_bytes(png_bytes(pixels))
    sent = [base64.b64encode((folder / f"{n}.png").read_bytes()).decode() for n in range(2)]
    return [str(folder / f"{n}.png") for n in range(2)], [sent[0], f"data:image/png;base64,{sent[1]}"]


def test_pictures_are_labeled_and_described(service, models, tmp_path):
    files, sent = pictures(tmp_path)
    found = answer_of(service, "classify", "vit", pictures=sent)["labels"]
    assert same(found, [as_json(one) for one in models["vit"].classify(files)])
    found = answer_of(service, "caption", "caption", pictures=sent, beam=2, max_new_tokens=4)["captions"]
    expected = models["caption"].caption(files, beam=2, max_new_tokens=4)
    assert same(found, [shape_of(one) for one in expected])


def test_tokens_have_numbers_and_places_and_go_back_to_texts(service, models):
    text = "The cat sat on the mat, Köln"
    (found,) = answer_of(service, "tokenize", "entities", texts=text)["texts"]
    encoding = models["entities"].tokenizer.encode(text)
    assert [one["id"] for one in found["tokens"]] == encoding.ids
    assert [(one["start"], one["end"]) for one in found["tokens"]] == encoding.offsets
    (plain,) = answer_of(service, "tokenize", "entities", texts=text, special=False)["texts"]
    ids = [one["id"] for one in plain["tokens"]]
    assert plain["tokens"] == found["tokens"][1:-1]
    (back,) = answer_of(service, "detokenize", "entities", tokens=ids)["texts"]
    assert back["text"] == models["entities"].tokenizer.decode(ids)


def test_vectors_are_those_of_the_method_from_texts_and_from_tokens(service, models):
    body = {"model": "demo", "input": TEXTS}
    vectors = [row["embedding"] for row in service.post("/v1/embeddings", body).json["data"]]
    assert same(vectors, models["demo"].embed(TEXTS).tolist())
    tokens = [row.ids for row in models["demo"].wording.source(TEXTS)]
    again = service.post("/v1/embeddings", body | {"input": tokens, "encoding_format": "base64"}).json["data"]
    assert [np.frombuffer(base64.b64decode(row["embedding"]), "<f4").tolist() for row in again] == vectors
    assert service.post("/v1/embeddings", body | {"dimensions": len(vectors[0])}).status == 200
    refused = service.post("/v1/embeddings", body | {"dimensions": 3})
    assert refused.status == 400 and "not made to be cut" in refused.json["error"]["message"]
    assert service.post("/v1/embeddings", {"model": "demo", "input": [10**6]}).status == 400


def test_vectors_are_cut_where_they_are_made_for_it():
    vector_D, made = (
        torch.arange(7.0),
        SimpleNamespace(folder="it", sentences=SimpleNamespace(truncate_dim=7)),
    )
    assert kept(made, vector_D, 3).tolist() == [0, 1, 2] and kept(made, vector_D, None) is vector_D
    with pytest.raises(heedful.BadInput, match="give fewer"):
        kept(made, vector_D, 9)


# The page.


def test_the_requests_of_the_page_are_answered_as_its_table_says(service, tmp_path):
    page = (pages.ROOT / "docs" / "howto" / "serve.md").read_text(encoding="utf-8")
    lists = dict(re.findall(r"^\| `/v1/(\w+)` \| .* \| `(\w+)` \|$", page, re.MULTILINE))
    lines = [line for line in page.splitlines() if line.startswith("curl $URL")]
    assert list(lists) == [one.do for one in (*WRITING, *OTHERS)] and len(lines) == len(lists)
    _, (picture, _) = pictures(tmp_path)
    for line in lines:
        line = line.replace("'$(base64 -w0 picture.png)'", picture).replace("$URL", "")
        _, path, *_, body = shlex.split(line)
        reply = service.post(path, body.encode())
        assert reply.status == 200, (line, reply.json)
        assert list(reply.json) == ["model", lists.pop(path.removeprefix("/v1/")), "usage"]
    assert not lists


# Refusals.

ODD = ["", SPACES, "\0", "\x1b[31m", "\u200b", "\ufffd", "a\u0301" * 9, "猫😀", "[MASK]", "[CLS]", "x " * 99]


def test_answers_that_would_be_very_long_are_refused(service, monkeypatch):
    monkeypatch.setattr("heedful.service.methods.MOST", 9)
    calls = (
        ("tokenize", "demo", {}),
        ("score", "lm", {}),
        ("tag", "parse", {}),
        ("fill", "mlm", {"top": 10}),
    )
    for path, name, more in calls:
        reply = service.post(
            f"/v1/{path}", {"model": name, "texts": ["the [MASK] cat a a a a a a a a"], **more}
        )
        assert reply.status == 400 and "9 are the most" in reply.json["error"]["message"], path


def test_a_model_that_cannot_says_what_it_can(service):
    reply = service.post("/v1/translate", {"model": "classify", "texts": "a good film"})
    assert reply.status == 404
    assert "classify cannot translate: it can classify, embed" in reply.json["error"]["message"]


REFUSED = [
    ("translate", "demo", {"text": "the cat"}, 'did you mean "texts"'),
    ("translate", "demo", {"texts": []}, "at least 1"),
    ("translate", "demo", {"texts": "the cat", "draft": "/etc/passwd"}, "draft"),
    ("translate", "demo", {"texts": "the cat", "beam": 17}, "16 are allowed"),
    ("translate", "demo", {"texts": "the cat", "beam": 6, "beam_groups": 3}, "18 hypotheses"),
    ("translate", "demo", {"texts": "the cat", "n_best": 2, "beam": 1}, "n_best"),
    ("translate", "demo", {"texts": "the cat", "target_lang": "fr"}, "leave out `target_lang`"),
    ("generate", "lm", {"texts": "the cat", "max_new_tokens": 5000}, "4,096 are allowed"),
    ("generate", "lm", {"texts": "a" * 99}, "shorten it"),
    ("fill", "mlm", {"texts": ["the [MASK]", "no blank"]}, "text 2 has no [MASK]"),
    ("classify", "classify", {"texts": "a", "seconds": "b"}, "single texts"),
    ("classify", "classify", {"texts": ["a", "b"], "seconds": ["b"]}, "two by two"),
    ("classify", "classify", {}, "either"),
    ("classify", "classify", {"pictures": "aaaa"}, 'give "texts"'),
    ("classify", "vit", {"texts": "a"}, 'give "pictures"'),
    ("classify", "vit", {"pictures": ["a"]}, "pictures[0]"),
    ("classify", "vit", {"pictures": ["aaaa", "aaaa"]}, "picture 1"),
    ("classify", "vit", {"pictures": "data:image/png,aaaa"}, "base64"),
    ("classify", "vit", {"pictures": base64.b64encode(huge_png(60_000, 60_000)).decode()}, "picture 1"),
    ("score", "demo", {"texts": "a"}, "give their targets too"),
    ("score", "demo", {"texts": ["the cat", "a"], "targets": ["le", ""]}, ""),
    ("answer", "span", {"questions": ["who ?", " "], "contexts": "the cat ."}, "question 2 is empty"),
    ("answer", "span", {"questions": ["a", "b"], "contexts": ["a", "b", "c"]}, "two by two"),
    ("choose", "choose", {"contexts": "the cat", "choices": ["one"]}, "two or more"),
    ("choose", "choose", {"contexts": ["a", "b"], "choices": ["one", "two"]}, "2 texts and 1 list"),
    ("detokenize", "demo", {"tokens": [10**6]}, "there is no token 1000000"),
    ("tokenize", "vit", {"texts": "a"}, "has no tokenizer"),
]


@pytest.mark.parametrize("path, name, body, why", REFUSED)
def test_what_cannot_be_answered_is_refused_in_a_sentence(path, name, body, why, service):
    reply = service.post(f"/v1/{path}", {"model": name, **body})
    if why:
        assert reply.status == 400 and why in reply.json["error"]["message"]
    assert reply.status in (200, 400)


def test_odd_texts_are_answered_or_refused(service):
    for path, name, _, body in (*CALLS, *((*one[:3], {"texts": [], **one[3]}) for one in WRITTEN[4:6])):
        for odd in ODD:
            lists = {key: [odd] for key in body if key not in ("top", "max_new_tokens", "beam", "stop")}
            if "choices" in lists:
                lists["choices"] = [[odd, odd]]
            reply = service.post(f"/v1/{path}", {"model": name, **body, **lists})
            assert reply.status in (200, 400), (path, odd, reply.json)


def test_every_option_of_decoding_but_the_machine_s_is_a_field():
    for command, kind in (("translate", tasks.TranslateRequest), ("caption", tasks.CaptionRequest)):
        known = {field.name for field in fields(kind)}
        assert known >= set(decoding_options(command)) - set(tasks.NOT_HERE)
        schema = object_schema(kind, Limits())["properties"]
        assert all("description" in schema[name] for name in decoding_options(command) if name in known)
        assert schema["top_p"]["maximum"] == 1.0 and schema["max_new_tokens"]


CROSSED = (  # `n_best` needs `beam`: no schema says so
    "--phases", "fuzzing", "--exclude-checks", "positive_data_acceptance"
)  # fmt: skip


def fuzz_tasks(models, tmp_path, capfd, cases):
    """Requests made from the description: each is answered or refused, and nothing breaks."""
    limits = Limits(characters=60, texts=3, tokens=12, beams=3)
    for name, paths in FUZZED.items():
        with local_service({name: models[name]}, limits, languages=("en", "fr")) as client:
            fuzz(client, tmp_path, cases, "--include-path-regex", f"^/({paths})$", *CROSSED)
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
    assert [line for line in lines if "fault" in line or line.get("status", 200) >= 500] == []


FUZZED = {
    "demo": "v1/translate|v1/score|v1/tokenize|v1/detokenize|translate|v1/embeddings",
    "lm": "v1/generate|v1/score",
    "mlm": "v1/fill",
    "summarize": "v1/summarize",
    "classify": "v1/classify",
    "vit": "v1/classify",
    "caption": "v1/caption",
    "span": "v1/answer",
    "choose": "v1/choose",
    "parse": "v1/tag|v1/parse",
}


@pytest.mark.slow
def test_requests_made_from_the_description_break_nothing(models, tmp_path, capfd):
    fuzz_tasks(models, tmp_path, capfd, 200)
