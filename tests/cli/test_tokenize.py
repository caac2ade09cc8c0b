"""heedful tokenize: what the tokenizer of a folder makes of texts and files, without torch."""

import json
import subprocess
import sys

import heedful


def test_a_text_is_shown_in_pieces_as_python_spells_it(given, load):
    spelling = load("demo").spell("the cat barks loudly")
    code, out, said = given("tokenize", "demo", "the cat", "barks loudly", "--merges")
    assert (code, said) == (0, "") and "\n".join(out) == spelling.as_text(merges=True) + "\n"
    code, out, _ = given("tokenize", "lm", "--json", stdin="def a\nx = 1\n\n")
    rows = [json.loads(line) for line in out[:-1]]
    assert code == 0 and [row["text"] for row in rows] == ["def a", "x = 1", ""]
    assert [piece["id"] for piece in rows[1]["pieces"]] == load("lm").spell("x = 1").ids


def test_a_file_is_counted(given, tmp_path):
    file = tmp_path / "some.txt"
    file.write_text("the cat\nthe zebra\n")
    code, out, _ = given("tokenize", "demo", "--data", str(file))
    assert code == 0 and out[0] == "2 lines, 4 words, 16 bytes, 4 tokens" and "unknown tokens 1" in out[2]
    code, out, _ = given("tokenize", "demo", "--data", str(file), "--json")
    assert json.loads(out[0])["tokens_per_word"] == 1.0


def test_torch_is_not_imported(small_run):
    call = f"from heedful.cli.main import main; main(['tokenize', {str(small_run('demo'))!r}, 'the cat'])"
    check = "import sys; assert 'torch' not in sys.modules, 'torch was imported'"
    root = heedful.__path__[0].removesuffix("heedful")
    done = subprocess.run(
        [sys.executable, "-c", f"{call}\n{check}"], capture_output=True, text=True, cwd=root, check=False
    )
    assert done.returncode == 0, done.stderr
