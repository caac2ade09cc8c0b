"""Commands that answer texts: the same answers as from Python, in step with the input, whatever it is."""

import json
import re
import subprocess
import sys

import pytest
import torch
from helpers.small_runs import FILMS, SOURCES, lines

from heedful.cli.main import main
from heedful.cli.shared import lines as line_commands
from heedful.cli.shared.lines import READ
from heedful.cli.shared.terminal import flat
from heedful.use.texts import LONGEST

# The same as from Python


@pytest.mark.parametrize(
    "options, how",
    [
        ([], {}),
        (["--beam", "1"], {"beam": 1}),
        (
            ["--beam=3", "--length-alpha", "1.5", "--length-penalty", "power"],
            {"beam": 3, "length_alpha": 1.5, "length_penalty": "power"},
        ),
        (
            ["--stopping", "exact", "--coverage-penalty", "0.4"],
            {"stopping": "exact", "coverage_penalty": 0.4},
        ),
        (["--sample", "--temperature", "2", "--seed", "4"], {"sample": True, "temperature": 2.0, "seed": 4}),
        (
            ["--sample", "--top-k", "3", "--top-p", ".9", "--min-p", ".01"],
            {"sample": True, "top_k": 3, "top_p": 0.9, "min_p": 0.01},
        ),
        (["--bad-words", "chat", "--bad-words", "je"], {"bad_words": ["chat", "je"]}),
        (
            ["--presence-penalty", "-0.5", "--frequency-penalty=2"],
            {"presence_penalty": -0.5, "frequency_penalty": 2.0},
        ),
        (["--logit-bias", "9=-100", "--logit-bias", "11=2.5"], {"logit_bias": {9: -100, 11: 2.5}}),
        (["--prefix", "le chien", "--max-new-tokens", "5"], {"prefix": "le chien", "max_new_tokens": 5}),
        (
            ["--repetition-penalty", "1.5", "--no-repeat-ngram-size", "2"],
            {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2},
        ),
        (
            ["--beam-groups", "2", "--diversity-penalty", "0.5", "--batch", "3"],
            {"beam_groups": 2, "diversity_penalty": 0.5},
        ),
    ],
)
def test_lines_are_translated_as_python_translates_them(options, how, given, load):
    code, out, said = given("translate", "demo", *options, stdin=lines(*SOURCES))
    warning = 'warning: 2 tokens in 1 of 8 lines are unknown to the model (the first is "and" in line 8)\n'
    assert (code, said, out) == (0, warning, [*load("demo").translate(SOURCES, **how), ""])


def test_texts_are_continued_as_python_continues_them(given, load, small_run):
    prompts, model = ["the cat", "t", "the dog ate the"], load("lm")
    for options, how in (
        (["--max-new-tokens", "9"], {"max_new_tokens": 9}),
        (["--sample", "--seed=3", "--max-new-tokens=9"], {"sample": True, "seed": 3, "max_new_tokens": 9}),
        (
            ["--max-new-tokens=40", "--draft", small_run("draft"), "--draft-tokens", "2"],
            {"max_new_tokens": 40},
        ),
        (["--beam", "2", "--max-new-tokens", "5"], {"beam": 2, "max_new_tokens": 5}),
        ([], {}),
    ):
        code, out, said = given("generate", "lm", *options, stdin=lines(*prompts))
        expected = [flat(answer) for answer in model.generate(prompts, **how)]
        assert (code, said, out) == (0, "", [*expected, ""])


def test_the_likeliest_tokens_are_shown_in_json(given, load):
    code, out, said = given("generate", "lm", "--top", "2", "--max-new-tokens=3", "--json", stdin="the cat\n")
    answer = load("lm").generate("the cat", top=2, max_new_tokens=3)
    (shown,) = json.loads(out[0])["answers"]
    assert code == 0 and shown["tokens"] == answer.tokens
    assert shown["top"] == [[one._asdict() for one in some] for some in answer.top]
    code, out, said = given("generate", "lm", "--top", "2", stdin="the cat\n")
    assert code == 2 and "--top is shown in JSON only: give --json too" in said


def test_what_is_drawn_for_a_line_depends_on_its_number_only(given, load, monkeypatch):
    """However the input is cut into chunks."""
    texts, how = ["the cat", "the dog"] * 20, ["--sample", "--temperature=3", "--batch=2"]
    _, whole, _ = given("translate", "demo", *how, stdin=lines(*texts))
    monkeypatch.setattr(line_commands, "CHUNK", 1)
    monkeypatch.setattr(line_commands, "READ", 7)
    _, cut, _ = given("translate", "demo", *how, stdin=lines(*texts))
    assert whole == cut == [*load("demo").translate(texts, sample=True, temperature=3.0), ""]
    assert len(set(whole)) > 10


def test_blanks_labels_and_vectors_are_those_of_python(given, load):
    texts = ["the [MASK] sat on the mat.", "the dog ate the [MASK]."]
    assert given("fill", "mlm", stdin=lines(*texts)) == (0, [*load("mlm").fill(texts), ""], "")
    assert given("classify", "classify", stdin=lines(*FILMS)) == (0, [*FILMS.values(), ""], "")
    for options, how in (
        ([], {}),
        (["--pooling=class", "--normalize"], {"pooling": "class", "normalize": True}),
    ):
        code, out, said = given("embed", "classify", *options, stdin=lines(*FILMS))
        found = torch.tensor([[float(number) for number in line.split(" ")] for line in out[:-1]])
        assert torch.equal(found, load("classify").embed(list(FILMS), **how)) and (code, said) == (0, "")


def test_pairs_of_texts_stand_on_one_line(given, load):
    texts = list(FILMS)
    code, out, _ = given("classify", "classify-pairs", stdin=lines(*(f"{text}\t{text}" for text in texts)))
    assert (code, out) == (0, [*load("classify-pairs").classify(texts, texts), ""])
    assert given("classify", "classify-pairs", stdin="one\n")[0] == 2


def test_words_after_the_run_are_one_text(given, load):
    assert given("translate", "demo", "the", "cat", "sleeps") == (0, ["le chat dort", ""], "")
    assert given("translate", "demo", "the cat sleeps", "--beam", "1") == (0, ["le chat dort", ""], "")
    assert given("translate", "demo", "") == (0, ["", ""], "")
    assert given("classify", "classify", "a", "good", "film", stdin="bad\n") == (0, ["positive", ""], "")
    whole = load("lm-bytes").generate("the cat", max_new_tokens=60, sample=True, temperature=3.0)
    code, out, _ = given(
        "generate", "lm-bytes", "the cat", "--max-new-tokens=60", "--sample", "--temperature=3"
    )
    assert "\n".join(out) == whole + "\n" and code == 0  # line ends and all: nothing has to stay in step


# JSON


def test_json_has_everything_that_is_known(given, load):
    texts = ["the cat sleeps", "", "i am a teacher"]
    code, out, said = given("translate", "demo", "--json", "--n-best", "2", stdin=lines(*texts))
    found = [json.loads(line) for line in out[:-1]]
    assert code == 0 and said == "" and out[-1] == "" and len(found) == 3
    assert found[1] == {"line": 2, "input": "", "unknown": 0, "answers": []}
    expected = load("demo").translate(texts, n_best=2)
    for number in (0, 2):
        assert found[number].keys() == {"line", "input", "unknown", "answers", "settings"}
        assert found[number]["settings"] == {"beam": 4, "n_best": 2}
        assert (found[number]["line"], found[number]["input"]) == (number + 1, texts[number])
        for answer, one in zip(found[number]["answers"], expected[number].n_best, strict=True):
            assert answer == {
                "text": str(one),
                "score": one.score,
                "log_probability": one.log_probability,
                "ended": one.ended,
                "tokens": one.tokens,
                "log_probabilities": one.log_probabilities,
            }


def test_json_of_the_other_commands(given, load):
    _, out, _ = given("fill", "mlm", "--json", "--top=2", stdin="the [MASK] sat on the mat\n\n")
    filled = load("mlm").fill("the [MASK] sat on the mat", top=2)
    blanks = [[{"word": g.word, "probability": g.probability} for g in some] for some in filled.blanks]
    text = "the [MASK] sat on the mat"
    shared = {"line": 1, "unknown": 0}
    assert json.loads(out[0]) == shared | {"input": text, "text": str(filled), "blanks": blanks}
    assert json.loads(out[1]) == shared | {"line": 2, "input": "", "text": "", "blanks": []}
    _, out, _ = given("classify", "classify", "--json", stdin="good\n\n")
    shares = load("classify").classify("good").probabilities
    assert json.loads(out[0]) == shared | {"input": "good", "label": "positive", "probabilities": shares}
    assert json.loads(out[1]) == shared | {"line": 2, "input": "", "label": None, "probabilities": {}}
    _, out, _ = given("embed", "classify", "--json", "good")
    assert json.loads(out[0]) == shared | {
        "input": "good",
        "embedding": load("classify").embed("good").tolist(),
    }
    _, out, _ = given("generate", "lm", "--json", "--max-new-tokens=3", stdin="the cat\n")
    assert json.loads(out[0])["answers"][0]["text"] == " sa"


def test_several_answers_have_a_line_each(given, load):
    code, out, _ = given(
        "translate", "demo", "--n-best", "3", stdin=lines("the cat sleeps", "", "i am a student")
    )
    assert code == 0 and len(out) == 10 and out[3:6] == ["", "", ""]
    best = load("demo").translate("the cat sleeps", n_best=3).n_best
    assert out[:3] == [f"{one.score:.4f}\t{one}" for one in best]


# Words that the model does not know


def test_unknown_words_are_told_of_once_with_the_first_of_them(given, monkeypatch):
    monkeypatch.setattr(line_commands, "CHUNK", 1)
    texts = ["the cat sleeps", "the zebra eats an okapi", "", "the zebra sleeps"]
    code, out, said = given("translate", "demo", "--batch=1", stdin=lines(*texts))
    assert code == 0 and len(out) == 5
    assert said == (
        'warning: 4 tokens in 2 of 4 lines are unknown to the model (the first is "zebra" in line 2)\n'
    )
    _, out, _ = given("translate", "demo", "--json", stdin=lines(*texts))
    assert [json.loads(line)["unknown"] for line in out[:-1]] == [0, 3, 0, 1]


@pytest.mark.parametrize(
    "command, run, text, word",
    [
        ("translate", "demo", "the zebra sleeps", "zebra"),
        ("generate", "lm", "the cåt", "å"),
        ("fill", "mlm", "the [MASK] zebra", "zebra"),
        ("classify", "classify", "a zebra film", "zebra"),
        ("embed", "mlm", f"the {'z' * 99}", "z" * 50),
    ],
)
def test_every_command_warns_of_a_word_that_it_cannot_read(command, run, text, word, given):
    code, out, said = given(command, run, text)
    assert code == 0 and out[0] and said == f'warning: 1 token is unknown to the model ("{word}")\n'
    assert given(command, run, stdin=f"{text}\n")[2] == (
        f'warning: 1 token in 1 of 1 line is unknown to the model ("{word}" in line 1)\n'
    )


# Input of every kind


def test_line_n_of_the_output_belongs_to_line_n_of_the_input(given):
    texts = ["the cat sleeps", "", "  ", "i am a student", "the dog eats a fish", "\t"]
    expected = ["le chat dort", "", "", "je suis étudiant", "le chien mange un poisson", ""]
    for end in ("\n", "\r\n"):
        assert given("translate", "demo", stdin="".join(t + end for t in texts)) == (0, [*expected, ""], "")
    assert given("translate", "demo", stdin="\ufeff" + "\n".join(texts[:4])) == (0, [*expected[:4], ""], "")
    assert given("translate", "demo", stdin="") == (0, [""], "")
    assert given("translate", "demo", "--n-best=2", stdin="\n") == (0, ["", "", ""], "")


BAD = {
    b"\xff\xfe no": "line 2: not UTF-8: byte 1 of the line is no part of a character",
    b"caf\xc3": "line 2: not UTF-8: byte 4 of the line is no part of a character",
    b"a\0b": "line 2: character 2 is NUL, which no text has",
    b"a" * (LONGEST + 1): f"line 2: longer than {LONGEST} characters",
    b"\xe2\x82\xac" * (LONGEST + 1): f"line 2: longer than {LONGEST} characters",
    b"a" * (LONGEST + 2 * READ + 40): f"line 2: longer than {LONGEST} characters",
}


@pytest.mark.parametrize("bad", BAD, ids=range(len(BAD)))
def test_a_bad_line_is_named_and_answered_by_an_empty_one(bad, given):
    data = b"the cat sleeps\n" + bad + b"\nthe cat eats\n"
    code, out, said = given("translate", "demo", stdin=data)
    assert (code, out) == (0, ["le chat dort", "", "le chat mange", ""])
    assert (
        said.startswith(BAD[bad]) and said.endswith("; answered by an empty line\n") and said.count("\n") == 1
    )
    code, out, _ = given("translate", "demo", "--json", stdin=data)
    assert json.loads(out[1]) == {
        "line": 2,
        "error": BAD[bad][8:] + json.loads(out[1])["error"][len(BAD[bad]) - 8 :],
    }
    code, out, said = given("translate", "demo", "--bad-lines", "refuse", "--batch=1", stdin=data)
    assert code == 2 and said.startswith("error: " + BAD[bad]) and said.count("\n") == 1


def test_lines_that_a_model_cannot_take_are_named(given):
    long = "the cat " * 20
    code, out, said = given("fill", "mlm", stdin=lines("the [MASK] sat", "no blank", "[MASK]" + long))
    assert code == 0 and [bool(line) for line in out] == [True, False, False, False]
    assert "line 2: the text has no [MASK] to fill in" in said
    assert "line 3: the text has 43 tokens, and the model reads at most 24: cut it" in said
    code, out, said = given("embed", "mlm", stdin=lines("the cat", long))
    assert code == 0 and out[1] == "" and "line 2: the text has 42 tokens" in said
    assert given("fill", "mlm", "no", "blank") == (2, [""], "error: the text has no [MASK] to fill in\n")


def test_only_the_first_bad_lines_are_named(given):
    code, out, said = given("translate", "demo", stdin=b"\xff\n" * 25)
    told = said.splitlines()
    assert code == 0 and len(out) == 26 and len(told) == 11
    assert told[9].startswith("line 10: ") and told[10] == "25 bad lines of 25 in all"


@pytest.mark.parametrize(
    "data, sentence",
    [
        (b"\x1f\x8b\x08\x00", "stdin is compressed by gzip: unpack it first"),
        ("the cat".encode("utf-16"), "stdin is UTF-16 text: convert it"),
        (b"PK\x03\x04", "stdin is a zip file"),
    ],
)
def test_files_of_other_kinds_are_refused(data, sentence, given):
    code, out, said = given("translate", "demo", stdin=data)
    assert (code, out) == (2, [""]) and said.startswith(f"error: {sentence}") and said.count("\n") == 1


def test_an_answer_stays_on_its_line(given, load):
    prompts = ["the cat", "the dog"]
    how = {"sample": True, "temperature": 3.0, "max_new_tokens": 80}
    answers = load("lm-bytes").generate(prompts, **how)
    assert any("\n" in answer or "\r" in answer for answer in answers)  # or this test shows nothing
    options = ["--sample", "--temperature=3", "--max-new-tokens=80"]
    _, out, _ = given("generate", "lm-bytes", *options, stdin=lines(*prompts))
    assert out == [*(re.sub("[\r\n]", " ", answer) for answer in answers), ""]
    _, out, _ = given("generate", "lm-bytes", *options, "--json", stdin=lines(*prompts))
    assert [json.loads(line)["answers"][0]["text"] for line in out[:-1]] == answers


# Mistakes


@pytest.mark.parametrize(
    "command, run, args, sentence",
    [
        ("translate", "lm", [],
            "is a decoder, which cannot translate; it can generate, stream, score, embed and look"),
        ("generate", "demo", [], "is an encoder-decoder, which cannot generate"),
        ("fill", "classify", [], "cannot fill; it can classify, embed and look"),
        ("classify", "mlm", [], "cannot classify; it can fill, embed and look"),
        ("translate", "no/where", [], "no/where is not a folder"),
        ("translate", "demo", ["--beam", "0"], "--beam must be a whole number from 1 to 1,000, not 0"),
        ("translate", "demo", ["--beam", "many"], "--beam takes a whole number, not 'many'"),
        ("translate", "demo", ["--length-penalty", "gnm"],
            '--length-penalty takes gnmt or power, not \'gnm\'; did you mean "gnmt"?'),
        ("translate", "demo", ["--temperature", "0.5"],
            "--temperature has no effect without --sample: give --sample too"),
        ("translate", "demo", ["--sample", "--beam", "4"], "give one of them"),
        ("translate", "demo", ["--sample", "--temperature=0"],
            "temperature must be a number from 0.001 to 1,000.0, not 0.0"),
        ("translate", "demo", ["--n-best", "9"], "a beam of 4 cannot find 9 hypotheses"),
        ("translate", "demo", ["--beam=1", "--length-alpha=1"], "give a --beam of 2 or more"),
        ("translate", "demo", ["--draft", "x"], "translate has no option --draft"),
        ("translate", "demo", ["--bad-words", "zebra"], '"zebra" is not in the vocabulary'),
        ("translate", "demo", ["--batch", "0"], "batch must be a whole number from 1 to 100,000"),
        ("translate", "demo", ["--bad-lines", "drop"], "--bad-lines takes blank or refuse, not 'drop'"),
        ("translate", "demo", ["--gpu"], "translate has no option --gpu"),
        ("generate", "lm", ["--prefix", "x"], "generate has no option --prefix"),
        ("generate", "lm", ["--draft-tokens", "3"], "--draft-tokens has no effect without --draft"),
        ("generate", "lm", ["--max-new-tokens", "0"], "--max-new-tokens must be a whole number"),
        ("generate", "lm", ["--n-best", "2"], "--n-best has no effect without --beam"),
        ("generate", "lm", ["--beam", "2", "--coverage-penalty", "1"], "needs cross-attention to a source"),
        ("generate", "lm", ["--draft", "no/where"], "no/where is not a folder"),
        ("fill", "mlm", ["--top", "0"], "top must be a whole number"),
        ("embed", "lm", ["--pooling", "class"], "without a class token: use --pooling mean"),
        ("embed", "lm", ["--pooling", "max"], "--pooling takes mean or class, not 'max'"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence_and_exit_code_2(command, run, args, sentence, given):
    code, out, said = given(command, run, *args, stdin="the cat\n")
    assert (code, out) == (2, [""])
    assert said.startswith("error: ") and said.count("\n") == 1 and sentence in said


@pytest.mark.parametrize("command", ["translate", "generate", "fill", "classify", "embed"])
def test_a_command_without_a_run_says_what_it_needs(command, capsys):
    assert main([command]) == 2
    assert capsys.readouterr().err == f"error: {command} needs a RUN: see `heedful {command} --help`\n"


def test_wrong_options_are_told_before_torch_is_imported():
    code = """
import sys
from heedful.cli.main import main
main(["translate", "runs/x", "--temperature", "2"])
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n" and "temperature has no effect" in done.stderr


# Trees


def test_a_tree_is_printed_as_python_draws_it(given, load):
    source = SOURCES[0]
    tree = load("demo").beam_tree(source, beam=2, reference="je suis professeur")
    how = ("--tree", "--beam", "2", "--reference", "je suis professeur")
    code, out, said = given("translate", "demo", *how, source)
    assert (code, said, "\n".join(out)) == (0, "", tree.text() + "\n")
    code, out, _ = given("translate", "demo", "--tree", "--json", "--beam=2", stdin=lines(source, ""))
    found = [json.loads(line)["tree"] for line in out[:-1]]
    assert code == 0 and [node["fate"] for node in found[0]["nodes"]] == [node.fate for node in tree.nodes]
    assert found[1] is None


@pytest.mark.parametrize(
    "call, message",
    [
        (("translate", "demo", "--reference", "le chat", "the cat"), "--reference belongs to one TEXT"),
        (("generate", "lm", "--tree", "--chat", "the cat"), "--tree is for plain texts: leave out --chat"),
        (("translate", "demo", "--tree", "--sample", "the cat"), "give one of them"),
    ],
)
def test_a_tree_without_a_search_is_refused(given, call, message):
    code, _, said = given(*call)
    assert code == 2 and message in said
