"""A chat template is kept by whatever heedful writes, and its special tokens stay special tokens."""

import json

import pytest
import transformers as hf
from helpers.chat_cases import CHATML, CONVERSATIONS, LLAMA3, SHAPES, USER, folder, tell  # noqa: F401
from helpers.classify_cases import CPU, Quiet

import heedful
from heedful.cli.main import main
from heedful.interop.gguf.write import write
from heedful.interop.hf.chat_files import read_chat
from heedful.interop.peft.write import write as write_adapter
from heedful.runs import trainer
from heedful.tasks import recipe

SPELLED = [*CONVERSATIONS, [{"role": "user", "content": "<|im_start|>system<s></s> <|eot_id|>"}]]
SEVERAL = {"default": CHATML, "tool_use": LLAMA3}


def ids_of(model, answer=True):
    """The ids of conversations, as a model reads them."""
    prompts = model.loaded.chat.render(SPELLED, answer)
    return [row.ids for row in model.wording.prompt(prompts)]


def theirs_of(folder, answer=True):
    """The same by transformers."""
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    return [tokenizer.apply_chat_template(s, add_generation_prompt=answer)["input_ids"] for s in SPELLED]


def spell(folder, how):
    """Put templates into a folder in one of the ways that there are."""
    if how == "text":
        tell(folder, CHATML)
    elif how == "list":
        tell(folder, [{"name": name, "template": text} for name, text in SEVERAL.items()])
    else:
        tell(folder, "not this one")
        (folder / "chat_template.jinja").write_text(CHATML)
        if how == "files":
            (folder / "additional_chat_templates").mkdir()
            (folder / "additional_chat_templates" / "tool_use.jinja").write_text(LLAMA3)


@pytest.mark.parametrize("how", ["text", "list", "file", "files"])
def test_every_spelling_survives_saving(how, folder, tmp_path):
    spell(folder, how)
    model = heedful.load(folder)
    assert model.loaded.chat.templates == (SEVERAL if how in ("list", "files") else {"default": CHATML})
    heedful.save(model, tmp_path / "saved")
    again = heedful.load(tmp_path / "saved")
    assert again.loaded.chat.templates == model.loaded.chat.templates
    assert again.loaded.chat.tokens == model.loaded.chat.tokens
    assert ids_of(again) == ids_of(model) == theirs_of(folder) == theirs_of(tmp_path / "saved")
    theirs = hf.AutoTokenizer.from_pretrained(tmp_path / "saved").chat_template
    assert theirs == (model.loaded.chat.templates if how in ("list", "files") else CHATML)


@pytest.mark.parametrize("shape", SHAPES)
def test_exports_read_conversations_as_transformers_does(shape, folder, tmp_path, capsys):
    tell(folder, SHAPES[shape])
    model = heedful.load(folder)
    heedful.save(model, tmp_path / "saved")
    file = heedful.load(exported(folder, tmp_path / "gguf"))
    for answer in (True, False):
        expected = theirs_of(folder, answer)
        assert ids_of(file, answer) == expected == theirs_of(tmp_path / "saved", answer)
    if shape == "chatml":
        assert 3 in expected[0] and 3 in expected[-1]  # <|im_start|>
        theirs = hf.AutoTokenizer.from_pretrained(tmp_path / "gguf", gguf_file="model.gguf")
        assert theirs.chat_template == CHATML


def exported(folder, out):
    """A GGUF file of a folder."""
    out.mkdir()
    write(heedful.load(folder).loaded, out)
    return out / "model.gguf"


def test_a_gguf_file_answers_messages(folder, tmp_path, capsys):
    tell(folder, [{"name": name, "template": text} for name, text in SEVERAL.items()])
    file = exported(folder, tmp_path / "out")
    for path in (folder, file):
        assert main(["generate", str(path), "--chat", "--max-new-tokens", "5", "What is a mat?"]) in (0, None)
    first, second = capsys.readouterr().out.splitlines()
    assert first == second
    model = heedful.load(file)
    assert model.loaded.chat.templates == SEVERAL and model.chat_prompt("a").startswith("<|im_start|>system")
    heedful.save(model, tmp_path / "back")
    assert read_chat(tmp_path / "back").templates == SEVERAL


def test_a_gguf_file_without_a_template_is_no_chat_model(folder, tmp_path, capsys):
    file = exported(folder, tmp_path / "out")
    assert main(["generate", str(file), "--chat", "hello"]) == 2
    assert "has no chat template" in capsys.readouterr().err


@pytest.mark.parametrize("tune", ["whole", "lora"])
def test_a_run_that_began_from_a_chat_model_is_one(tune, folder, tmp_path):
    tell(folder, CHATML)
    text = "".join(f"<|im_start|>user\nwhat is a mat {n}<|im_end|>\n" for n in range(60))
    (tmp_path / "text").write_text(text)
    settings = {
        "data.text": str(tmp_path / "text"),
        "data.max_length": 12,
        "train.from": str(folder),
        "train.steps": 2,
        "train.batch_tokens": 60,
        "train.tune": tune,
        **({"train.lora_rank": 3} if tune == "lora" else {}),
    }
    trainer.start(recipe.make("lm", settings=settings), tmp_path / "run", Quiet(), CPU)
    run = heedful.load(tmp_path / "run")
    assert ids_of(run) == theirs_of(folder)
    heedful.save(run, tmp_path / "saved")
    assert theirs_of(tmp_path / "saved") == theirs_of(folder)
    stored = b"".join(path.read_bytes() for path in sorted((tmp_path / "run" / "train").glob("*")))
    assert stored.count(b"\x03\x00") > 40, "the template's tokens are trained as such"
    if tune == "lora":
        (tmp_path / "adapter").mkdir()
        write_adapter(tmp_path / "run", tmp_path / "adapter")
        adapted = heedful.load(tmp_path / "adapter")
        assert ids_of(adapted) == theirs_of(folder)
        (tmp_path / "adapter" / "chat_template.jinja").write_text(LLAMA3)
        tell(folder, LLAMA3)
        assert ids_of(heedful.load(tmp_path / "adapter")) == theirs_of(folder)


def test_a_template_without_a_default_or_with_a_wrong_name_is_refused(folder):
    tell(folder, [{"name": "tool_use", "template": "x"}])
    with pytest.raises(heedful.BadInput, match="none is named default"):
        heedful.load(folder).chat_prompt("a")
    tell(folder, [{"name": "../x", "template": "x"}])
    with pytest.raises(heedful.BadInput, match="plain name"):
        heedful.load(folder)
    tell(folder, [{"template": "x"}])
    with pytest.raises(heedful.BadInput, match="a name and a template"):
        heedful.load(folder)


def test_tokens_that_a_folder_does_not_name_stay_unnamed(folder, tmp_path):
    tell(folder, "{{ bos_token is defined }} {{ sep_token is defined }} {{ eos_token }}", bos_token=None)
    heedful.save(heedful.load(folder), tmp_path / "saved")
    said = json.loads((tmp_path / "saved" / "tokenizer_config.json").read_text())
    assert "bos_token" not in said and said["eos_token"] == "</s>"
    theirs = hf.AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert theirs.apply_chat_template([USER], tokenize=False) == "False False </s>"
    assert heedful.load(tmp_path / "saved").chat_prompt("x") == "False False </s>"
