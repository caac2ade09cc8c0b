import pytest
from helpers.kept_activations import use_gpu_kernels


@pytest.fixture
def gpu_kernels(monkeypatch):
    use_gpu_kernels(monkeypatch)
