"""Nothing in the package runs what it reads: no pickle, no eval, no shell, no code of a model folder."""

import ast
import socket

import pytest
from helpers.tensor_names import ROOT

FORBIDDEN = {
    "eval", "exec", "compile", "os.system", "os.popen", "yaml.load", "marshal.loads", "marshal.load",
    "pickle.load", "pickle.loads", "pickle.Unpickler", "dill.loads", "joblib.load", "shelve.open",
}  # fmt: skip
FLAGS = {"trust_remote_code": True, "shell": True, "allow_pickle": True, "weights_only": False}
CALLS = {"torch.load": "weights_only"}  # what must be given


def faults(source: str) -> list[str]:
    """The calls that could run code from data."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name, given = ast.unparse(node.func), {word.arg: word.value for word in node.keywords}
        if name in FORBIDDEN or (name in CALLS and CALLS[name] not in given):
            found.append(f"line {node.lineno}: {name}")
        for word, bad in FLAGS.items():
            value = given.get(word)
            if isinstance(value, ast.Constant) and value.value is bad:
                found.append(f"line {node.lineno}: {word}={bad}")
    return found


def test_no_file_runs_what_it_reads():
    files = sorted(ROOT.rglob("*.py"))
    assert any("service" in path.parts for path in files)
    found = {str(path.relative_to(ROOT)): faults(path.read_text()) for path in files}
    assert {name: some for name, some in found.items() if some} == {}


@pytest.mark.parametrize(
    "code",
    [
        "eval(text)",
        "pickle.loads(data)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "AutoModel.from_pretrained(x, trust_remote_code=True)",
        "subprocess.run(line, shell=True)",
        "np.load(path, allow_pickle=True)",
    ],
)
def test_such_a_call_is_found(code):
    assert len(faults(code)) == 1


def test_tests_reach_no_other_machine():
    with socket.socket() as client, pytest.raises(pytest.fail.Exception, match=r"192\.0\.2\.1"):
        client.connect(("192.0.2.1", 80))
    with socket.socket() as client, pytest.raises(pytest.fail.Exception):
        client.connect_ex(("192.0.2.1", 80))
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.connect(server.getsockname())
