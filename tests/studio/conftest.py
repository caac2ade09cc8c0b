import pytest
from helpers.serve_cases import stored  # noqa: F401 (one for all files of this folder)
from helpers.studio_cases import local_studio


@pytest.fixture(scope="session")
def studio(stored):
    """A studio of the stored runs."""
    with local_studio(stored) as client:
        yield client
