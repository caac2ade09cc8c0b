"""The families that heedful reads: the files of the models list them, and the page says the same."""

import json
import re
from pathlib import Path

from heedful.cli.main import main
from heedful.models import model_types

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "exchange.md"


def test_the_page_lists_every_model_type_that_is_read():
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| Hugging Face folders, ")]
    assert sorted(re.findall(r"`([^`]+)`", " ".join(rows))) == sorted(model_types())


def test_info_lists_every_model_type_that_is_read(capsys):
    assert main(["info", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model_types"] == model_types()
