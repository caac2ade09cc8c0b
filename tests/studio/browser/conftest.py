"""A browser for the files of this folder, and studios to open in it."""

from contextlib import contextmanager

import pytest
from helpers.studio_browser import PAGES, Opener, launched, make_zoo, need_chromium, save_large, show
from helpers.studio_cases import local_studio


@pytest.fixture(scope="module")
def browser():
    """One browser for a file: Playwright's event loop must not run while tests of other folders do."""
    with launched() as started:
        yield started


@contextmanager
def opener(browser):
    found = Opener(browser)
    yield found
    problems = found.problems()
    found.close()
    assert not problems, "\n".join(problems)


@pytest.fixture
def open_page(browser):
    """Opens pages, each in a context of its own; at the end, nothing may have gone wrong in them."""
    with opener(browser) as found:
        yield found


@pytest.fixture(scope="module", params=PAGES)
def demo_page(browser, studio, request):
    """Every page on the demo, opened once for all tests that change no more than its size and colors."""
    with opener(browser) as found:
        page = found(studio)
        show(page, request.param, studio, run=studio.id("demo"))
        yield page


@pytest.fixture(scope="session")
def zoo(stored, tmp_path_factory):
    need_chromium()
    return make_zoo(stored, tmp_path_factory.mktemp("zoo"))


@pytest.fixture(scope="session")
def studio(zoo):
    """A studio of tiny models of every kind."""
    with local_studio(zoo) as client:
        yield client


@pytest.fixture(scope="session")
def large(tmp_path_factory):
    """A studio of two models with 12 heads a layer, of 12 layers and of 4, and the folder of one of them."""
    need_chromium()
    root = tmp_path_factory.mktemp("large")
    save_large(root / "shallow", layers=4)
    folder = save_large(root / "large")
    with local_studio(root) as client:
        yield client, folder
