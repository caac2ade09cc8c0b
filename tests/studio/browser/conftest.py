"""One browser for all files of this folder, and studios to open in it."""

import pytest
from helpers.studio_browser import Opener, launched, make_zoo, save_large
from helpers.studio_cases import local_studio


@pytest.fixture(scope="session")
def browser():
    with launched() as started:
        yield started


@pytest.fixture
def open_page(browser):
    """Opens pages, each in a context of its own; at the end, nothing may have gone wrong in them."""
    opener = Opener(browser)
    yield opener
    problems = opener.problems()
    opener.close()
    assert problems == []


@pytest.fixture(scope="session")
def zoo(stored, tmp_path_factory):
    return make_zoo(stored, tmp_path_factory.mktemp("zoo"))


@pytest.fixture(scope="session")
def studio(browser, zoo):
    """A studio of tiny models of every kind."""
    with local_studio(zoo) as client:
        yield client


@pytest.fixture(scope="session")
def large(browser, tmp_path_factory):
    """A studio of a model with 12 layers of 12 heads, and the folder of that model."""
    folder = save_large(tmp_path_factory.mktemp("large") / "large")
    with local_studio(folder.parent) as client:
        yield client, folder
