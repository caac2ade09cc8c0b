"""Chat templates give transformers' texts, and those of strangers can do nothing but write."""

import copy
import importlib
import io
import json
import subprocess
import time
from pathlib import Path

import pytest
import transformers as hf
from helpers.chat_cases import CHATML, CONVERSATIONS, LLAMA2, SHAPES, USER, folder, tell  # noqa: F401
from helpers.refusals import at_most

import heedful
from heedful.cli.main import main
from heedful.interop.hf import chat_process
from heedful.interop.hf.chat import Chat, Prompt, Refused, conversation_of
from heedful.interop.hf.chat_files import read_chat


def of(template):
    return Chat("template", {"default": template}, {"bos_token": "<s>", "eos_token": "</s>"})


@pytest.mark.parametrize("shape", SHAPES)
def test_templates_give_the_texts_and_numbers_of_transformers(shape, folder):
    tell(folder, SHAPES[shape])
    theirs, ours = hf.AutoTokenizer.from_pretrained(folder), read_chat(folder)
    words = heedful.load(folder).wording
    for answer in (True, False):
        found = ours.render(CONVERSATIONS, answer)
        for said, text in zip(CONVERSATIONS, found, strict=True):
            assert text == theirs.apply_chat_template(said, tokenize=False, add_generation_prompt=answer)
            assert isinstance(text, Prompt)
            numbers = theirs.apply_chat_template(said, add_generation_prompt=answer)["input_ids"]
            assert [row.ids for row in words.prompt([text, "a"])] == [numbers, theirs("a")["input_ids"]]


def test_a_template_may_refuse_a_conversation(folder):
    tell(folder, LLAMA2)
    wrong = [{"role": "assistant", "content": "hello"}]
    found = heedful.load(folder).loaded.chat.render([[USER], wrong, [USER]])
    assert isinstance(found[0], Prompt) and found[0] == found[2]
    assert found[1] == Refused("refuses it: roles must take turns")


def test_a_file_of_its_own_goes_first_and_the_default_of_several_is_taken(folder):
    tell(
        folder,
        [
            {"name": "tool_use", "template": "no"},
            {"name": "default", "template": "yes {{ messages | length }}"},
        ],
    )
    assert heedful.load(folder).loaded.chat.render([[USER]]) == ["yes 1"]
    (folder / "chat_template.jinja").write_text("file {{ bos_token }}{{ eos_token }}")
    theirs = hf.AutoTokenizer.from_pretrained(folder)
    assert (
        heedful.load(folder).loaded.chat.render([[USER]])
        == ["file <s></s>"]
        == [theirs.apply_chat_template([USER], tokenize=False)]
    )


@pytest.mark.parametrize(
    "content",
    [
        '{"chat_template": 7}',
        '{"chat_template": [{"name": "default", "template": 7}]}',
        "[]",
        '{"chat_template": "\\ud800"}',
    ],
)
def test_a_broken_template_is_refused(content, folder):
    (folder / "tokenizer_config.json").write_text(content)
    with pytest.raises(heedful.BadInput, match=r"tokenizer_config\.json"):
        read_chat(folder)


def test_a_folder_without_a_template_is_told_so(folder, capsys):
    for said in ("{}", '{"chat_template": null}', '{"chat_template": []}'):
        (folder / "tokenizer_config.json").write_text(said)
        with pytest.raises(heedful.BadInput, match="has no chat template"):
            heedful.load(folder).chat_prompt("hello")
    assert main(["generate", str(folder), "--chat", "hello"]) == 2
    said = capsys.readouterr().err.strip()
    assert "has no chat template" in said and "\n" not in said
    assert main(["generate", str(folder / "nowhere"), "--chat", "hello"]) == 2
    assert "nowhere" in capsys.readouterr().err


# The command


def asked(monkeypatch, capsys, *call, stdin=""):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
    code = main(list(call))
    found = capsys.readouterr()
    return code or 0, found.out, found.err


def test_lines_are_messages_or_conversations(folder, monkeypatch, capsys):
    tell(folder, CHATML)
    model = heedful.load(folder)
    typed = ["What is a mat?", "", json.dumps(CONVERSATIONS[2]), "[INST] is no list"]
    code, out, said = asked(
        monkeypatch,
        capsys,
        "generate",
        str(folder),
        "--chat",
        "--max-new-tokens",
        "7",
        "--json",
        stdin="\n".join(typed) + "\n",
    )
    prompts = heedful.load(folder).loaded.chat.render(
        [[{"role": "user", "content": typed[0]}], CONVERSATIONS[2], [{"role": "user", "content": typed[3]}]]
    )
    expected = [str(one) for one in model.generate(prompts, max_new_tokens=7)]
    found = [json.loads(line) for line in out.splitlines()]
    assert [row["answers"][0]["text"] for row in found if row["answers"]] == expected
    assert [row["input"] for row in found] == [prompts[0], "", *prompts[1:]] and found[1]["answers"] == []
    assert (code, said) == (0, "")
    code, out, _ = asked(
        monkeypatch, capsys, "generate", str(folder), "--chat", "--max-new-tokens", "7", "What is a mat?"
    )
    assert (code, out) == (0, expected[0] + "\n")


def test_python_has_the_same_prompts(folder):
    tell(folder, LLAMA2)
    model, expected = heedful.load(folder), heedful.load(folder).loaded.chat.render(CONVERSATIONS)
    for said, prompt in zip(CONVERSATIONS, expected, strict=True):
        found = model.chat_prompt(said)
        assert found == prompt and model.generate(found, max_new_tokens=3) == model.generate(
            prompt, max_new_tokens=3
        )
    assert model.chat_prompt("hello") == model.chat_prompt([{"role": "user", "content": "hello"}])
    with pytest.raises(heedful.BadInput, match="take turns"):
        model.chat_prompt([{"role": "assistant", "content": "x"}])


def test_a_bad_conversation_is_named(folder, monkeypatch, capsys):
    tell(folder, LLAMA2)
    bad = [
        '[{"role": "user"',
        '[{"role": 7, "content": "x"}]',
        '[{"role": "user"}]',
        '[{"role": "assistant", "content": "x"}]',
    ]
    for line, words in zip(
        bad, ("valid JSON", "each is an object", "without a content", "roles must take turns"), strict=True
    ):
        code, _, said = asked(
            monkeypatch, capsys, "generate", str(folder), "--chat", "--bad-lines", "refuse", stdin=line + "\n"
        )
        assert code == 2 and "line 1" in said and words in said and said.count("\n") == 1
    assert isinstance(conversation_of("[{" * 100_000), Refused)


def test_without_jinja_the_way_to_get_it_is_told(folder, monkeypatch):
    tell(folder, CHATML)
    known = importlib.import_module

    def without(name, *more):
        if name.startswith("jinja2"):
            raise ImportError("no", name="jinja2")
        return known(name, *more)

    monkeypatch.setattr("heedful.interop.packages.import_module", without)
    with pytest.raises(heedful.BadInput, match=r'jinja2 is not installed: pip install "heedful\[chat\]"'):
        heedful.load(folder).loaded.chat.render([[USER]])


# Hostile templates


ESCAPES = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.popen('touch MARK').read() }}",
    "{{ lipsum.__globals__['os'].system('touch MARK') }}",
    "{{ self.__init__.__globals__.__builtins__.open('MARK', 'w') }}",
    "{{ raise_exception.__globals__['sys'].modules['os'].system('touch MARK') }}",
    "{{ (messages | map(attribute='__class__') | list)[0].__base__.__subclasses__() }}",
    (
        "{{ '{0.__class__.__base__.__subclasses__}'.format(messages) }}{{ '%s' | format(messages) | "
        "attr('__class__') }}"
    ),
    "{{ ('{0.__init__.__globals__}' | attr('format'))(joiner) }}{{ ''['__class__']['__base__'] }}",
    "{% set ns = namespace(__class__=1) %}{{ ns.__class__.__init__.__globals__ }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}{{ os.system('touch MARK') }}",
    "{{ messages.append({'role': 'user', 'content': 'root:'}) }}{{ messages.clear() }}",
    "{{ namespace.__init__.__globals__ }}{{ dict.fromkeys.__func__.__globals__ }}",
    "{{ strftime_now.__globals__.sys.stdout.write('root:') }}{{ strftime_now.__closure__ }}",
]
BOMBS = {
    "nested loops": (
        "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor "
        "%}{% endfor %}{% endfor %}"
    ),
    "a power": "{{ 9 ** 9999999 }}",
    "a power of names": "{% set n = messages | length * 9 %}{{ (n ** (n ** 8)) % 7 }}",
    "a sort again and again": (
        "{% for a in range(99999) %}{% set x = range(99999) | list | sort(reverse=true) %}{% endfor %}"
    ),
    "a macro that calls itself twice": (
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}"
    ),
    "a replacement that doubles": (
        "{% set ns = namespace(s='a') %}{% for i in range(99999) %}{% set ns.s = (ns.s | "
        "replace('a', 'ab'))[:9999] %}{{ ns.s | wordcount if false }}{% set x = ns.s * 99 in ns.s * "
        "9 %}{% endfor %}"
    ),
}
GROWTHS = {
    "a long text": "{{ 'a' * 999999999 }}",
    "a text that doubles": (
        "{% set ns = namespace(s='a') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% "
        "endfor %}{{ ns.s }}"
    ),
    "a list of lists": (
        "{% set ns = namespace(s=[0]) %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% "
        "endfor %}{{ ns.s | length }}"
    ),
    "an endless text": (
        "{% for a in range(99999) %}{% for b in range(99999) %}aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa{% "
        "endfor %}{% endfor %}"
    ),
}


@pytest.mark.parametrize("number", range(len(ESCAPES)))
def test_a_template_cannot_get_out(number, tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "root:")
    mark = tmp_path / "mark"
    template = ESCAPES[number].replace("MARK", str(mark))
    try:
        (found,) = of(template).render([[USER]])
    except heedful.BadInput as error:
        found = Refused(str(error))
    assert not mark.exists()
    if not isinstance(found, Refused):
        assert not any(word in found for word in ("root:", "<class", "function", "builtin", "<module"))


@pytest.mark.parametrize("what", [*BOMBS, *GROWTHS])
def test_a_bomb_is_stopped(what):
    with at_most(20):  # of a busy machine; of its own it has less than one
        try:
            (found,) = of((BOMBS | GROWTHS)[what]).render([[USER]])
            assert isinstance(found, Refused) and "more than 600,000 characters" in found.why
        except heedful.BadInput as error:
            assert "chat template that" in str(error) and "\n" not in str(error)
    assert chat_process.SECONDS < 1 and chat_process.MEMORY < 64 << 20


MEMORY = """
import resource, sys
from heedful.interop.hf.chat import Chat
def peak():
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
Chat("t", {"default": ""}, {}).render([[]])
before = peak()
try:
    Chat("t", {"default": sys.argv[1]}, {}).render([[]])
except ValueError:
    pass
print(peak() - before)
"""


@pytest.mark.parametrize("what", GROWTHS)
def test_a_bomb_takes_little_memory(what):
    import sys

    done = subprocess.run(
        [sys.executable, "-c", MEMORY, GROWTHS[what]], capture_output=True, text=True, check=True, timeout=60
    )
    assert int(done.stdout) <= 64


def test_a_template_opens_no_file_and_inherits_nothing(monkeypatch, tmp_path):
    """Whatever got out of the sandbox would find itself in a process that can open nothing."""
    spy = tmp_path / "spy.py"
    source = Path(chat_process.chat_child.__file__).read_text()
    spy.write_text(
        source.replace(
            '        return {"text": "".join(parts)}',
            "        import os\n        opened = []\n        for path in ('/etc/passwd', '/tmp'):\n"
            "            try:\n                os.open(path, os.O_RDONLY)\n"
            "                opened.append(path)\n            except OSError:\n                pass\n"
            "        return {'text': str((opened, sorted(os.environ)))}",
        )
    )
    monkeypatch.setenv("SECRET", "1")
    monkeypatch.setattr(chat_process.chat_child, "__file__", str(spy))
    (found,) = of("").render([[USER]])
    assert found.startswith("([], [") and "SECRET" not in found


def test_a_process_that_never_answers_is_given_up(monkeypatch, tmp_path):
    (tmp_path / "silent.py").write_text("import time; time.sleep(60)")
    monkeypatch.setattr(chat_process.chat_child, "__file__", str(tmp_path / "silent.py"))
    monkeypatch.setattr(chat_process, "PATIENCE", 0.2)
    began = time.monotonic()
    with pytest.raises(heedful.BadInput, match="not done"):
        of("").render([[USER]])
    assert time.monotonic() - began < 30
    (tmp_path / "silent.py").write_text("print('nonsense')")
    monkeypatch.setattr(chat_process, "PATIENCE", 20.0)
    with pytest.raises(heedful.BadInput, match="no answer"):
        of("").render([[USER]])


def test_one_process_renders_all_conversations(monkeypatch):
    started, known = [], subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **how: started.append(1) or known(*args, **how))
    ours = of("{{ messages[0].content }}")
    for start in (0, 70):
        asked = range(start, start + 70)
        assert ours.render([{"role": "user", "content": str(n)}] for n in asked) == [str(n) for n in asked]
    assert len(started) == 1


def test_a_process_that_has_died_is_replaced_and_none_is_left_behind():
    ours, bomb = of("{{ messages[0].content }}"), BOMBS["nested loops"]
    assert ours.render([[USER]]) == [USER["content"]]
    first = ours.process.process
    first.kill()
    first.wait()
    assert copy.deepcopy(ours).render([[USER]]) == ours.render([[USER]]) == [USER["content"]]
    second = ours.process.process
    assert second is not first and second.poll() is None
    del ours
    assert second.returncode is not None  # it has been waited for, so it is no zombie
    ours = of(f"{{% if messages %}}{bomb}{{% endif %}}ok")
    with pytest.raises(heedful.BadInput, match="was stopped"):
        ours.render([[USER]])
    assert ours.process.process is None and ours.render([[]]) == ["ok"]


def test_a_conversation_as_long_as_a_text_may_be_is_rendered():
    long = "\U0001f600" * 590_000
    (found,) = of("{% for m in messages %}{{ m.content }}{% endfor %}").render([[USER | {"content": long}]])
    assert found == long
