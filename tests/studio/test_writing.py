"""Writing over HTTP: tokens with alternatives, branches, beam trees, and what else a model can do."""

import math

import pytest
from helpers.studio_cases import load, ran
from helpers.tokenizer_cases import byte_level, word_piece

from heedful.inside.spelling import spell
from heedful.studio.spelled import spelled

TEXT = "My aunts are curious."


def tokens_of(events):
    return [event["token"] for event in events if "token" in event]


@pytest.mark.parametrize("name", ["demo", "lm"])
def test_tokens_come_one_by_one_with_the_likeliest_in_their_place(studio, stored, name):
    events = studio.stream(
        "/api/write", {"run": studio.id(name), "text": TEXT, "top": 3, "max_new_tokens": 7}
    )
    tokens, done = tokens_of(events), events[-1]["done"]
    assert all(len(one["top"]) == 3 and one["top"][0][0] == one["id"] for one in tokens)
    assert math.isclose(done["log_probability"], sum(one["log_probability"] for one in tokens))
    model = load(str(stored / name))
    ability = model.translate if name == "demo" else model.generate
    assert done["text"] == ability(TEXT, beam=1, max_new_tokens=7)
    assert "".join(one["piece"] for one in tokens) + done["rest"] == done["text"]


def test_a_branch_begins_with_the_tokens_that_it_is_given(studio):
    asked = {"run": studio.id("demo"), "text": TEXT, "top": 4}
    first = tokens_of(studio.stream("/api/write", asked))
    other = [first[0]["id"], first[1]["top"][1][0]]
    events = studio.stream("/api/write", asked | {"prefix_tokens": other})
    assert [one["id"] for one in events[0]["start"]["tokens"]] == other
    assert events[-1]["done"]["tokens"][:2] == other
    branch = tokens_of(events)
    assert [one["id"] for one in branch[:2]] == other and branch[1]["top"] == first[1]["top"]
    assert branch[1]["log_probability"] == first[1]["top"][1][2]
    same = studio.stream("/api/write", asked | {"prefix_tokens": [one["id"] for one in first[:2]]})
    assert tokens_of(same) == first


def test_a_branch_that_begins_with_an_end_has_nothing_after_it(studio):
    asked = {"run": studio.id("demo"), "text": TEXT, "top": 4}
    end = tokens_of(studio.stream("/api/write", asked))[-1]["id"]
    done = studio.stream("/api/write", asked | {"prefix_tokens": [end]})[-1]["done"]
    assert done["tokens"] == [end] and done["ended"] and done["text"] == ""


def test_a_target_is_written_to_its_end_as_it_is_scored(studio, stored):
    asked = {"run": studio.id("demo"), "text": TEXT, "target": "Mes tantes sont curieuses."}
    done = studio.stream("/api/write", asked)[-1]["done"]
    score = load(str(stored / "demo")).score(TEXT, asked["target"])
    assert done["ended"] and done["text"] == asked["target"]
    assert math.isclose(done["log_probability"], sum(score.log_probabilities), rel_tol=1e-5)


@pytest.mark.parametrize("name", ["demo", "lm"])
@pytest.mark.parametrize("more", [{}, {"edits": ["zero:self.1.1"]}, {"sample": True, "seed": 3, "top_k": 5}])
def test_the_code_of_a_branch_writes_the_same(studio, name, more):
    asked = {"run": studio.id(name), "text": TEXT, "top": 4, "max_new_tokens": 6}
    first = tokens_of(studio.stream("/api/write", asked))
    events = studio.stream(
        "/api/write", asked | more | {"prefix_tokens": [first[0]["id"], first[1]["top"][2][0]]}
    )
    answer = ran(events[-1]["done"]["code"], "answer")
    written = [one["log_probability"] for one in tokens_of(events)]
    if name == "lm":  # its call continues the text and the two given tokens
        written = written[2:]
    assert len(answer.log_probabilities) == len(written)
    if name != "lm" or "sample" not in more:
        assert answer.log_probabilities == pytest.approx(written, abs=1e-5)


def test_an_alignment_without_a_trace_is_that_of_the_trace_and_of_its_code(studio):
    told = {"run": studio.id("demo"), "text": TEXT, "target": "Mes tantes sont curieuses.", "edits": []}
    id = studio.post("/api/trace", told).json["id"]
    found = studio.post("/api/align", told | {"by": "norm", "which": "cross", "layer": 1, "mean": 1}).json
    assert found == studio.get(f"/api/trace/{id}/alignment?by=norm&which=cross&layer=1&mean=1").json
    values = ran(found["code"], "seen").chosen[0].weights_TS
    assert values.flatten().tolist() == pytest.approx([x for row in found["values"] for x in row], rel=1e-5)


def test_an_edit_changes_what_is_written_and_only_there(studio):
    asked = {"run": studio.id("demo"), "text": TEXT, "top": 2, "max_new_tokens": 5}
    plain = studio.stream("/api/write", asked)
    edited = studio.stream("/api/write", asked | {"edits": ["zero:cross.*.*"]})
    assert tokens_of(edited)[0]["log_probability"] != tokens_of(plain)[0]["log_probability"]
    assert studio.stream("/api/write", asked) == plain


def test_a_beam_tree_is_the_one_of_the_model(studio, stored):
    asked = {
        "run": studio.id("demo"),
        "text": TEXT,
        "beam": 3,
        "max_new_tokens": 8,
        "reference": "Mes tantes.",
    }
    *steps, last = studio.stream("/api/search", asked)
    tree = (
        load(str(stored / "demo"))
        .beam_tree(TEXT, beam=3, max_new_tokens=8, reference="Mes tantes.")
        .as_json()
    )
    assert [node for event in steps for node in event["nodes"]] == tree.pop("nodes")
    finished, parting, code = (last["done"].pop(name) for name in ("finished", "parting", "code"))
    assert ran(code, "tree").as_json() == {
        **tree,
        "nodes": [node for event in steps for node in event["nodes"]],
    }
    assert last["done"] == tree
    nodes = {node["id"]: node for event in steps for node in event["nodes"]}
    assert [one["length"] for one in finished] == sorted(
        node["step"] for node in nodes.values() if node["fate"] in ("ended", "beaten")
    )
    way = [nodes[tree["best"][0]]]
    while way[0]["before"] in nodes:
        way.insert(0, nodes[way[0]["before"]])
    assert " ".join(node["text"] for node in way) in [one["text"] for one in finished]
    plain = tokens_of(studio.stream("/api/write", {"run": asked["run"], "text": TEXT, "max_new_tokens": 8}))
    same = [node["token"] for node in way] == [one["id"] for one in plain]
    assert (parting is None) == same


def test_guesses_fill_blanks_or_are_labels(studio, stored):
    text = "the old [MASK] of the [MASK]"
    filled = studio.post("/api/guess", {"run": studio.id("mlm"), "text": text}).json["guesses"]
    blanks = load(str(stored / "mlm")).fill(text, top=10).blanks
    assert filled == [[[one.word, one.probability] for one in some] for some in blanks]
    assert studio.post("/api/guess", {"run": studio.id("mlm"), "text": "the old"}).json["guesses"] == []
    refused = studio.post("/api/guess", {"run": studio.id("demo"), "text": TEXT})
    assert refused.status == 400


def test_other_tasks_take_a_run_in_place_of_a_model(studio):
    filled = studio.post("/api/task/fill", {"run": studio.id("mlm"), "texts": "the old [MASK]", "top": 2})
    assert len(filled.json["texts"][0]["blanks"][0]) == 2
    refused = studio.post("/api/task/fill", {"run": studio.id("lm"), "texts": "the old [MASK]"})
    assert refused.status == 404 and "cannot fill" in refused.json["error"]["message"]
    unknown = studio.post("/api/write", {"run": studio.id("lm"), "text": "a", "temprature": 1})
    assert unknown.status == 400 and 'did you mean "temperature"' in unknown.json["error"]["message"]


def test_costs_and_positions_are_those_of_the_model(studio, stored):
    run = studio.id("demo")
    found = studio.post("/api/cost", {"run": run, "length": 9, "source_length": 7}).json["costs"]
    assert found["parameters"] == load(str(stored / "demo")).parameter_count and found["length"] == 9
    spelled = studio.post("/api/tokenize", {"run": run, "text": TEXT}).json
    assert [piece["text"] for piece in spelled["pieces"]] == ["My", "aunts", "are", "curious", "."]
    assert "5 tokens, 1.25 tokens per word" in spelled["measures"] and spelled["back"].startswith("✓")
    assert "whole words" in spelled["why"] and spelled["words"][-1]["last"] == 0
    (order,) = studio.post("/api/positions", {"run": run, "length": 12}).json["positions"]
    table = order["tables"][0]
    assert order["kind"] and len(table["numbers"]) == len(table["down"]) == table["seen"] == 12
    assert order["curve"]["series"][0]["values"] == order["similarity"]["mean"]
    (other,) = studio.post("/api/positions", {"run": run, "length": 12, "base": 7}).json["positions"]
    assert other["base"] == 7 and other["tables"][0]["numbers"] != table["numbers"]
    assert ran(other["code"], "found").as_json()["tables"][0]["numbers"] == other["tables"][0]["numbers"]
    assert ran(spelled["code"], "found").pieces[0].text == "My"


def test_token_statistics_are_those_of_the_held_out_texts(studio, stored):
    found = studio.post("/api/token_statistics", {"run": studio.id("demo"), "count": 8}).json
    assert found["lines"] == 8 and "held-out data" in found["source"]
    assert math.isclose(found["tokens_per_word"], found["tokens"] / found["words"])
    refused = studio.post("/api/token_statistics", {"run": studio.id("demo"), "count": 1})
    assert refused.status == 400 and "count" in refused.json["error"]["message"]


def test_a_spelling_shows_marks_bytes_and_steps():
    found = spelled(spell(byte_level(), "ж cat"))
    assert [piece["shown"] for piece in found["pieces"]][:2] == ["d0", "b6"]
    assert found["pieces"][-1]["shown"].endswith("t") and "bytes" in found["pieces"][0]["told"]
    assert found["words"][-1]["last"] == sum(len(word["steps"]) - 1 for word in found["words"])
    assert all(step["note"].startswith("merge") for word in found["words"] for step in word["steps"][1:])
    other = spelled(spell(word_piece(), "THE cat"))
    assert other["back"].startswith("✗ from character 1 on, “THE cat” comes back as “")


@pytest.mark.parametrize("path", ["/api/write", "/api/search"])
def test_a_text_that_is_too_long_is_refused_before_it_takes_memory(studio, monkeypatch, path):
    far = studio.post(path, {"run": studio.id("lm"), "text": "the old king " * 2000, "max_new_tokens": 1})
    assert far.status == 400 and "the model reads at most" in far.json["error"]["message"]
    monkeypatch.setattr("heedful.studio.writing.LONGEST", 3)  # the demo has no end of its own
    refused = studio.post(path, {"run": studio.id("demo"), "text": "My aunts are curious."})
    assert refused.status == 400 and "at most 3 are read: shorten it" in refused.json["error"]["message"]
