"""Decoding options have one source: the command line and Python list the same, and each filter is one."""

import inspect
from dataclasses import fields

import pytest

import heedful
from heedful.cli.shared.arguments import options
from heedful.cli.shared.commands import options_of
from heedful.decode import filters
from heedful.decode.options import COMMANDS, DecodingOptions, decoding_options

DRAWN = {"sample": True, "temperature": 2.5, "seed": 3}
# For each option that makes a filter: a value, the run and its text, and what it is compared with.
CHANGES = {
    "prefix": ("le chien", "demo", "the cat sleeps", {}),
    "encoder_no_repeat_ngram_size": (1, "lm", "the cat", {"max_new_tokens": 17}),
    "bad_words": (["chat"], "demo", "the cat sleeps", {}),
    "min_new_tokens": (9, "demo", "the cat sleeps", {}),
    "no_repeat_ngram_size": (3, "lm", "the cat", {"max_new_tokens": 17}),
    "repetition_penalty": (3.0, "lm", "the cat", {"max_new_tokens": 17}),
    "logit_bias": ({9: 100}, "lm", "the cat", {"max_new_tokens": 17}),
    "presence_penalty": (2.0, "lm", "the cat", {"max_new_tokens": 60, **DRAWN}),
    "frequency_penalty": (2.0, "lm", "the cat", {"max_new_tokens": 60}),
    "temperature": (2.5, "lm", "the cat", {"max_new_tokens": 17, "sample": True, "seed": 3}),
    "top_k": (2, "lm", "the cat", {"max_new_tokens": 17, **DRAWN}),
    "top_p": (0.6, "lm", "the cat", {"max_new_tokens": 17, **DRAWN}),
    "min_p": (0.2, "lm", "the cat", {"max_new_tokens": 17, **DRAWN}),
}


def test_every_filter_has_an_option_and_every_option_its_filter():
    options = decoding_options()
    linked = {name: option.use.filter for name, option in options.items() if option.use.filter}
    typed = {name for name in linked if options[name].use.commands}  # others only a folder's settings have
    assert typed == CHANGES.keys() and len(set(linked.values())) == len(linked)
    made = {
        name
        for name, cached in vars(filters).items()
        if inspect.isfunction(function := inspect.unwrap(cached))
        and inspect.signature(function).return_annotation == "Filter"
    }
    assert made == set(linked.values())


@pytest.mark.parametrize("name", CHANGES)
def test_every_option_with_a_filter_changes_what_a_model_writes(name, load):
    value, run, text, others = CHANGES[name]
    model = load(run)
    write = model.generate if run == "lm" else model.translate
    default = decoding_options()[name].default
    assert write(text, **others, **{name: value}).tokens != write(text, **others).tokens
    assert write(text, **others, **{name: default}).tokens == write(text, **others).tokens


@pytest.mark.parametrize("beam", [1, 3])
def test_an_answer_has_at_least_min_new_tokens_and_at_most_max_new_tokens(beam, load):
    found = load("demo").translate("the cat sleeps", beam=beam, min_new_tokens=6, max_new_tokens=7)
    assert len(found.tokens) == 7 and "[EOS]" not in found.tokens[:6]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_line_and_python_list_the_same_options(command):
    mine = decoding_options(command)
    shown = inspect.signature(getattr(heedful.Model, command)).parameters
    own = {"source_lang", "target_lang"} if command == "translate" else set()
    found = {name: shown[name].default for name in list(shown)[2:] if name not in own}
    assert found == {n: o.default for n, o in mine.items()}
    typed = {field.name: field.default for field in fields(options_of(command))}
    others = {"run", "text", "json", "bad_lines", "device", "weights", "trees", "chat"} | own
    others |= {"tree", "reference"}
    assert typed.keys() - others == mine.keys()
    untyped = {name for name in mine if typed[name] in (None, ())}  # so that it is known what was typed
    assert untyped == mine.keys()
    assert {f"--{name.replace('_', '-')}" for name in mine} <= options(command).keys()


def test_each_option_is_one_field_with_its_help():
    assert list(decoding_options()) == [field.name for field in fields(DecodingOptions)]
    for option in decoding_options().values():
        assert option.help.endswith(".") and "\n" not in option.help
        assert all(len(sentence.split()) <= 25 for sentence in option.help.split(". "))
