"""`heedful chat`: line by line for scripts, and at a terminal."""

import json
import os
import pty
import select
import sys
import time

import pytest
from helpers.chat_cases import CHATML, folder, tell  # noqa: F401

import heedful
from heedful.cli.chat import typed_lines


@pytest.fixture
def talk(folder, given):
    """Chats with a tiny model by lines of stdin; gives exit code, answers and what was said."""
    tell(folder, CHATML)

    def call(*lines, options=("--max-new-tokens", "6")):
        code, out, said = given("chat", str(folder), *options, stdin="".join(f"{line}\n" for line in lines))
        return code, out[:-1], said

    return call


def expected(folder, said, **how):
    """The answer of `generate` to a conversation, on one line."""
    model = heedful.load(folder)
    return model.generate(model.chat_prompt(said), **how).replace("\n", " ").replace("\r", " ")


def test_each_line_is_answered_in_the_conversation_so_far(talk, folder):
    code, answers, said = talk("what is a mat?", "", "a rug")
    first = {"role": "user", "content": "what is a mat?"}
    model = heedful.load(folder)
    answer = model.generate(model.chat_prompt([first]), max_new_tokens=6)
    second = [first, {"role": "assistant", "content": answer}, {"role": "user", "content": "a rug"}]
    assert (code, len(answers)) == (0, 2)
    assert answers == [
        expected(folder, [first], max_new_tokens=6),
        expected(folder, second, max_new_tokens=6),
    ]
    assert said.count("the answer ends here: it has 6 tokens, the most that --max-new-tokens allows") <= 2


def test_commands_change_the_conversation(talk, folder, tmp_path):
    file = tmp_path / "said.json"
    options = ("--max-new-tokens", "6", "--sample", "--seed", "3", "--system", "be brief")
    lines = [
        "hello",
        "/again",
        "a rug",
        "/undo",
        "/system be long",
        "//etc",
        f"/save {file}",
        f"/save {file}",
    ]
    code, answers, said = talk(*lines, "/new", "hello", "/quit", "never read", options=options)
    assert code == 0 and len(answers) == 5 and len({answers[0], answers[1]}) == 2
    found = json.loads(file.read_text())
    assert [message["role"] for message in found] == ["system", "user", "assistant", "user", "assistant"]
    assert [found[n]["content"] for n in (0, 1, 3)] == ["be long", "hello", "/etc"]
    flat = [message["content"].replace("\n", " ").replace("\r", " ") for message in found]
    assert (flat[2], flat[4]) == (answers[1], answers[3])
    assert f"5 messages are in {file}\n" * 2 in said and "the system prompt is changed" in said
    assert os.listdir(tmp_path) and not [name for name in os.listdir(tmp_path) if ".tmp" in name]


def test_help_lists_the_commands(talk):
    code, answers, said = talk("/help")
    assert (code, answers) == (0, []) and [line.split()[0] for line in said.splitlines()] == [
        "/help",
        "/new",
        "/undo",
        "/again",
        "/system",
        "/save",
        "/quit",
    ]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("/agin", 'line 2: there is no command /agin; did you mean "again"?; a message'),
        ("/undo me", "line 2: /undo stands alone: leave out 'me'"),
        ("/save", "line 2: /save needs a FILE"),
        ("/save /nowhere/at/all", "line 2: /nowhere/at/all cannot be written: No such file or directory"),
        ("a\0b", "line 2: character 2 is NUL, which no text has"),
        ("x" * 1200, "line 2: the message has 1,2"),
    ],
)
def test_what_cannot_be_done_ends_a_script(line, fault, talk):
    code, answers, said = talk("hello", line, "never read")
    assert code == 2 and len(answers) == 1 and f"error: {fault}" in said


def test_nothing_can_be_undone_before_the_first_message(talk, folder):
    for line in ("/undo", "/again"):
        code, answers, said = talk(line)
        assert (code, answers) == (2, []) and said.startswith("error: line 1: there is no")
    file = folder / "config.json"
    assert "config.json is there already: give another name" in talk("hello", f"/save {file}")[2]


def test_a_model_without_a_template_continues_the_text(given, load):
    model = load("lm")
    code, out, said = given("chat", "lm", "--max-new-tokens", "5", stdin="the cat\nthe\n")
    first = model.generate("the cat", max_new_tokens=5)
    assert (code, out) == (0, [first, model.generate(f"the cat{first}\nthe", max_new_tokens=5), ""])
    assert said.count("\n") == 1 and "has no chat template: it continues the text so far" in said
    assert "takes no system prompt" in given("chat", "lm", "--system", "x")[2]


def test_models_that_do_not_write_on_are_refused_with_what_they_do(given, small_run):
    for run, what in (("demo", "translate"), ("mlm", "fill"), ("summarize", "summarize")):
        code, out, said = given("chat", run, stdin="hello\n")
        assert (code, out) == (2, [""])
        assert "which cannot chat: `" in said and f"{what} {small_run(run)}` answers each line" in said


def test_ctrl_c_at_the_prompt_takes_the_line_back(monkeypatch, capsys):
    typed = iter(["hello", KeyboardInterrupt(), "a\udcff", "bye", EOFError()])

    def line(*prompt):
        found = next(typed)
        if isinstance(found, BaseException):
            raise found
        return found

    monkeypatch.setattr("builtins.input", line)
    first, nothing, fault, last = typed_lines()
    assert (first, nothing, last) == ("hello", None, "bye") and "not UTF-8" in fault.why
    assert capsys.readouterr().err.count("> ") == 5


class Typist:
    """Somebody at a terminal."""

    def __init__(self, *args):
        self.pid, self.terminal = pty.fork()
        if not self.pid:
            os.environ |= {"TERM": "dumb", "OMP_NUM_THREADS": "1"}
            os.execv(sys.executable, [sys.executable, "-m", "heedful", "chat", *args])
        self.seen = ""

    def wait_for(self, text, seconds=60):
        """What is shown up to this text."""
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            assert select.select([self.terminal], [], [], deadline - time.monotonic())[0], self.seen
            try:
                self.seen += os.read(self.terminal, 4096).decode(errors="replace")
            except OSError:  # it has ended
                assert text in self.seen, self.seen
        before, _, self.seen = self.seen.partition(text)
        return before

    def type(self, text):
        os.write(self.terminal, text.encode())

    def end(self):
        _, status = os.waitpid(self.pid, 0)
        os.close(self.terminal)
        return os.waitstatus_to_exitcode(status)


def test_at_a_terminal_ctrl_c_stops_the_answer_and_ctrl_d_leaves(folder, tmp_path):
    tell(folder, CHATML)
    config = json.loads((folder / "config.json").read_text()) | {"max_position_embeddings": 10**6}
    (folder / "config.json").write_text(json.dumps(config))
    file = tmp_path / "said.json"
    somebody = Typist(str(folder), "--max-new-tokens", "800000", "--min-new-tokens", "800000")
    somebody.wait_for("loading ")
    somebody.wait_for("1,000,000 tokens of context; /help lists the commands")
    for message in ("hello", "a rug"):
        somebody.wait_for("\r\n> ")
        somebody.type(f"{message}\n")
        somebody.wait_for(f"{message}\r\n")
        while len(somebody.seen) < 20:
            somebody.seen += os.read(somebody.terminal, 100).decode(errors="replace")
        somebody.type("\x03")
    somebody.wait_for("\r\n> ")
    somebody.type(f"/save {file}\n")
    somebody.wait_for("4 messages are in")
    somebody.wait_for("\r\n> ")
    somebody.type("/nonsense\n")
    somebody.wait_for("there is no command /nonsense")
    somebody.wait_for("\r\n> ")
    somebody.type("\x04")
    assert somebody.end() == 0
    said = json.loads(file.read_text())
    assert [message["role"] for message in said] == ["user", "assistant"] * 2
    assert [message["content"] for message in said[::2]] == ["hello", "a rug"]
    assert all(len(message["content"]) > 10 for message in said[1::2])
