"""The bench of attention against length: powers, every kind, and lines that can be read."""

import json

import pytest

from benchmarks import attention_lengths


def test_powers_are_those_of_the_numbers():
    lengths = [64, 128, 256, 512]
    for power in (1, 1.5, 2):
        assert attention_lengths.power(lengths, [3 * n**power for n in lengths]) == pytest.approx(power)
    assert attention_lengths.power([2, 4], [5, 5]) == pytest.approx(0)


def test_every_kind_is_measured_and_told(monkeypatch, capsys, tmp_path):
    asked = ["", "--lengths", "32", "64", "--heads", "1", "--width", "4", "--turns", "1"]
    monkeypatch.setattr("sys.argv", [*asked, "--json"])
    attention_lengths.main()
    found = json.loads(capsys.readouterr().out)
    assert len(found) == 13
    for told in found.values():
        assert [n for n, _, _ in told["points"]] == [32, 64] and all(s > 0 for _, s, _ in told["points"])
    open_tables = [found[name]["points"][1][2] for name in ("full, open", "compressed, open")]
    assert open_tables[1] < open_tables[0]
    drawing = tmp_path / "lengths.svg"
    monkeypatch.setattr("sys.argv", [*asked, "--only", "linear", "--plot", str(drawing)])
    attention_lengths.main()
    assert capsys.readouterr().out.startswith("linear  ")
    assert ">linear n^" in drawing.read_text()


def test_one_length_has_no_power(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["", "--lengths", "64"])
    with pytest.raises(SystemExit):
        attention_lengths.main()
    assert "two lengths" in capsys.readouterr().err
