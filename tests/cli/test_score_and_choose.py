"""heedful score and heedful choose give what the model gives in Python, line by line."""

import json
import math

import pytest
from helpers.small_runs import PAIRS, lines

CONTEXTS = {
    "the cat sleeps .": ["it is a cat", "it is a dog"],
    "the dog eats .": ["it is a cat", "it is a dog"],
}


def test_a_language_model_scores_each_line(given, load):
    texts = ["the cat sat", "the dog ate the fish.", "tac eht"]
    code, out, said = given("score", "lm", stdin=lines(texts[0], "", *texts[1:]))
    first, *others = [f"{one.total:.4f}\t{one.perplexity:.4f}" for one in load("lm").score(texts)]
    assert (code, out, said) == (0, [first, "", *others, ""], "")
    assert float(first.split("\t")[0]) > float(others[-1].split("\t")[0])


def test_a_translator_scores_targets_given_their_sources(given, load):
    pairs = [*PAIRS.items(), ("the cat sleeps", "le chien dort")]
    code, out, said = given("score", "demo", "--json", stdin=lines(*(f"{a}\t{b}" for a, b in pairs)))
    expected = load("demo").score([a for a, _ in pairs], [b for _, b in pairs])
    assert (code, said) == (0, "")
    for number, (line, one, pair) in enumerate(zip(out, expected, pairs, strict=False), 1):
        found = json.loads(line)
        assert found["line"] == number and found["input"] == "\t".join(pair) and found["unknown"] == 0
        assert found["log_probability"] == pytest.approx(sum(found["log_probabilities"])) == one.total
        assert found["tokens"] == one.tokens and found["tokens"][-1] == "[EOS]"
        assert found["perplexity"] == pytest.approx(math.exp(-one.total / len(one.tokens)))
    alone = given("score", "demo", "the cat sleeps", "--target", "le chien dort")
    assert alone == (0, [f"{expected[-1].total:.4f}\t{expected[-1].perplexity:.4f}", ""], "")


def test_a_line_without_a_target_is_named_and_the_others_are_scored(given):
    code, out, said = given("score", "demo", stdin=lines("the cat sleeps\tle chat dort", "the cat sleeps"))
    assert code == 0 and out[0] and out[1:] == ["", ""]
    assert said == "line 2: the text has no target after a tab; answered by an empty line\n"


def test_the_best_choice_is_that_of_python(given, load):
    rows = [json.dumps({"context": context, "choices": some}) for context, some in CONTEXTS.items()]
    expected = load("choose").choose(list(CONTEXTS), list(CONTEXTS.values()))
    assert [str(one) for one in expected] == ["it is a cat", "it is a dog"]
    assert given("choose", "choose", stdin=lines(rows[0], "", rows[1])) == (
        0,
        ["it is a cat", "", "it is a dog", ""],
        "",
    )
    _, out, _ = given("choose", "choose", "--json", stdin=lines(*rows))
    found = [json.loads(line) for line in out[:-1]]
    assert [one["choice"] for one in found] == expected and [one["number"] for one in found] == [0, 1]
    for one, other in zip(found, expected, strict=True):
        assert one["probabilities"] == pytest.approx(other.probabilities) and one["unknown"] == 0
    for context, some in CONTEXTS.items():
        right = expected[list(CONTEXTS).index(context)]
        assert given("choose", "choose", context, *some) == (0, [right, ""], "")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("it is", 'the line is no JSON object with "context" and "choices"'),
        ('{"choices": ["a", "b"]}', 'the line has no text as its "context"'),
        ('{"context": "the cat", "choices": ["a"]}', '"choices" must be a list of 2 to 1,000 texts'),
        ('{"context": "the cat", "choices": ["a", 3]}', 'one of the "choices" is empty or no text'),
        ("[" * 5000, 'the line is no JSON object with "context" and "choices"'),
    ],
)
def test_a_line_without_choices_is_named(line, sentence, given):
    good = json.dumps({"context": "the cat sleeps .", "choices": ["it is a cat", "it is a dog"]})
    code, out, said = given("choose", "choose", stdin=lines(line, good))
    assert (code, out) == (0, ["", "it is a cat", ""])
    assert said == f"line 1: {sentence}; answered by an empty line\n"
    code, out, _ = given("choose", "choose", "--json", stdin=lines(line))
    assert json.loads(out[0]) == {"line": 1, "error": sentence}
