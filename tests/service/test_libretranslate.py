"""LibreTranslate's clients are answered as LibreTranslate answers them, with what the model translates."""

import json
import urllib.request
from urllib.parse import urlencode

import pytest
from helpers.encoder_cases import _no_progress_bars  # noqa: F401 (fixtures)
from helpers.language_cases import pieces, translator  # noqa: F401 (fixtures)
from helpers.local_service import local_service
from helpers.small_runs import make_runs

import heedful

TEXTS = ["the cat sleeps", "i am a student"]
KEY = "a-key-of-twenty-chars"
FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A run that translates, hardly trained."""
    return heedful.load(make_runs(tmp_path_factory.mktemp("small"), steps=9)("demo"))


@pytest.fixture(scope="module")
def service(demo):
    with local_service({"demo": demo}, languages=("en", "fr")) as client:
        yield client


def asked(q, **more):
    return {"q": q, "source": "en", "target": "fr", **more}


def test_a_text_and_several_are_translated(service, demo):
    assert service.post("/translate", asked(TEXTS[0])).json == {"translatedText": demo.translate(TEXTS[0])}
    assert service.post("/translate", asked(TEXTS, format="text", api_key="")).json == {
        "translatedText": demo.translate(TEXTS)
    }


def test_alternatives_are_the_next_best(service, demo):
    best = [[str(one) for one in answer.n_best] for answer in demo.translate(TEXTS, beam=6, n_best=6)]
    found = service.post("/translate", asked(TEXTS, alternatives=5)).json
    assert found == {"translatedText": [one[0] for one in best], "alternatives": [one[1:] for one in best]}
    assert service.post("/translate", asked(TEXTS[0], alternatives=5)).json["alternatives"] == best[0][1:]


def test_the_only_language_is_found_without_a_claim_to_have_looked(service):
    found = service.post("/translate", asked("the cat", source="auto")).json
    assert found["detectedLanguage"] == {"confidence": 0.0, "language": "en"}


def test_languages_and_settings_are_listed(service):
    assert service.get("/languages").json == [
        {"code": "en", "name": "English", "targets": ["fr"]},
        {"code": "fr", "name": "French", "targets": []},
    ]
    said = service.get("/frontend/settings").json
    assert said["language"]["target"] == {"code": "fr", "name": "French"} and not said["keyRequired"]


@pytest.mark.parametrize(
    "more, why",
    [
        ({"source": "fr", "target": "en"}, "fr to en is not available: there is en to fr"),
        ({"format": "html"}, "without their tags"),
        ({"alternatives": 16}, "at most 15"),
        ({"target": ""}, "target"),
        ({"q": []}, "at least 1"),
    ],
)
def test_refusals_have_their_form(more, why, service):
    reply = service.post("/translate", asked("the cat") | more)
    assert reply.status == 400 and why in reply.json["error"]


def test_fields_that_nobody_knows_are_named(service):
    assert service.post("/translate", asked("the cat", secret="x")).headers["x-heedful-ignored"] == "secret"


def test_a_form_is_taken_from_clients_and_not_from_pages(service, demo):
    """libretranslatepy and older Weblates send forms. A page's form always says where it comes from."""
    form = urlencode(asked(TEXTS[0], alternatives=0)).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{service.address}/translate", form)) as reply:
        assert json.loads(reply.read())["translatedText"] == demo.translate(TEXTS[0])
    own = f"http://127.0.0.1:{service.port}"
    for page in ({"origin": own}, {"sec-fetch-site": "same-origin"}, {"referer": own}):
        assert service.send("POST", "/translate", form, FORM | page).status == 415
    for page in ({"origin": "http://evil.test"}, {"sec-fetch-site": "cross-site"}):
        assert service.send("POST", "/translate", form, FORM | page).status == 403
    assert service.send("POST", "/v1/translate", form, FORM).status == 415
    for bad in (b"q=%ff&source=en&target=fr", b"\xff", b"q=a&q=b&source=en&target=fr", b"a=1&" * 30, b""):
        assert service.send("POST", "/translate", bad, FORM).status == 400


def test_a_key_is_taken_from_the_body_or_the_header(demo):
    with local_service({"demo": demo}, key=KEY, languages=("en", "fr")) as service:
        assert service.post("/translate", asked("the cat", api_key=KEY)).status == 200
        assert service.post("/translate", asked("the cat"), authorization=f"Bearer {KEY}").status == 200
        for sent in ({}, {"api_key": "wrong"}, {"api_key": None}, {"api_key": 5}, {"api_key": "\ud800"}):
            assert service.post("/translate", asked("the cat", **sent)).status == 401
        wrong = service.post("/translate", asked("the cat", api_key=KEY), authorization="Bearer wrong")
        assert wrong.status == 401
        form = urlencode(asked("the cat", api_key=KEY)).encode()
        assert service.send("POST", "/translate", form, FORM).status == 200
        assert (
            service.get("/languages").status == 200 and service.get("/frontend/settings").json["keyRequired"]
        )
        assert service.post("/v1/translate", {"texts": "a", "api_key": KEY}).status == 401


def test_a_model_of_many_languages_is_asked_for_two_of_them(translator, demo):
    folder, _, _ = translator("mbart50")
    model = heedful.load(folder)
    with local_service({"many": model}) as service:
        listed = service.get("/languages").json
        assert {"de_DE", "en_XX", "fr_XX"} <= {one["code"] for one in listed}
        expected = model.translate("je suis", source_lang="fr_XX", target_lang="de_DE")
        for codes in ({"source": "fr_XX", "target": "de_DE"}, {"source": "fr", "target": "de"}):
            assert service.post("/translate", {"q": "je suis", **codes}).json == {"translatedText": expected}
        several = service.post("/translate", {"q": "je suis", "source": "auto", "target": "de"})
        assert several.status == 400 and "name one of them" in several.json["error"]
        own = {"texts": "je suis", "source_lang": "fr_XX", "target_lang": "de_DE"}
        assert service.post("/v1/translate", own).json["translations"][0]["text"] == expected


def test_without_languages_there_is_nothing_to_list(demo):
    with local_service({"demo": demo}) as service:
        reply = service.post("/translate", asked("the cat"))
        assert reply.status == 404 and "--languages" in reply.json["error"]
