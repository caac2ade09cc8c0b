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
    assert not problems, "\n".join(problems)


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
    """A studio of two models with 12 heads a layer, of 12 layers and of 4, and the folder of one of them."""
    root = tmp_path_factory.mktemp("large")
    save_large(root / "shallow", layers=4)
    folder = save_large(root / "large")
    with local_studio(root) as client:
        yield client, folder
