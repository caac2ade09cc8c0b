"""What the Training page asks for: samples, and evaluations among many steps."""

import json

from helpers.studio_cases import local_studio

from heedful.studio.curves import Curves
from heedful.studio.runs import EVALUATIONS, ModelFolder, id_of, last_line


def new_run(folder):
    run = folder / "run"
    run.mkdir()
    (run / "recipe.json").write_text('{"task": "translate"}')
    return run


def sample(step, text="a"):
    return json.dumps({"step": step, "samples": [{"source": text, "output": "b", "reference": "c"}]}) + "\n"


def test_samples_are_shown_and_damaged_lines_counted(tmp_path):
    run = new_run(tmp_path)
    with local_studio(tmp_path) as client:
        path = f"/api/runs/{id_of(run)}/samples"
        assert client.get(path).json == {"rows": [], "skipped": 0}
        (run / "samples.jsonl").write_text(sample(5) + "torn\n" + '{"step": "x"}\n' + sample(10, "y" * 5000))
        found = client.get(path).json
    assert [row["step"] for row in found["rows"]] == [5, 10] and found["skipped"] == 2
    assert len(found["rows"][1]["samples"][0]["source"]) == 1000


def test_many_samples_are_thinned_and_the_last_stays(tmp_path):
    run = new_run(tmp_path)
    with (run / "samples.jsonl").open("w") as file:
        file.writelines(sample(step, "z" * 900) for step in range(1, 4002))
    steps = [row["step"] for row in ModelFolder(id_of(run), run).samples()["rows"]]
    assert EVALUATIONS <= len(steps) <= 4 * EVALUATIONS * 2 and steps[-1] == 4001 and steps == sorted(steps)


def test_thinning_leaves_evaluations_where_they_are(tmp_path):
    run = new_run(tmp_path)
    lines = [{"step": n, "loss": 1 / n, "tokens": 7 * n} for n in range(1, 3001)]
    lines.insert(1500, {"step": 1500, "valid_loss": 0.25})
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    curves = Curves(run / "metrics.jsonl")
    while not curves.whole:
        curves.load()
    first = curves.since("", 2000).as_json()
    assert first["anew"] and first["thinned"] and len(first["rows"]) <= 2000
    evaluations = [row for row in first["rows"] if "valid_loss" in row]
    assert evaluations == [{"step": 1500, "valid_loss": 0.25, "tokens": 10500}]
    steps = [row["step"] for row in first["rows"]]
    assert steps == sorted(steps) and {1, 3000} <= set(steps)


def test_the_last_loss_of_a_file_is_read_from_its_end(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert last_line(path) == {}
    lines = ['{"step": 1, "loss": 2.0}'] * 500 + ['{"step": 2, "loss": 1.5}', '{"step": 2, "valid_loss": 1}']
    path.write_text("\n".join([*lines, '{"st']))
    assert last_line(path) == {"step": 2, "loss": 1.5}
