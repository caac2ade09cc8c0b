# Two commands: `make demo` and `make test`. Both only wrap pip and heedful, so without make the same is
#   pip install -c constraints.txt -e ".[demo]"   and   heedful demo
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint bench docs dist clean

demo: .venv/installed
	$(BIN)/heedful demo

test: lint
	$(BIN)/python -m pytest -n auto --dist loadscope

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/installed-dev
	$(BIN)/python -m sphinx -j auto -W --keep-going -b html docs build/site

dist: .venv/installed-dev
	rm -rf build/lib build/bdist.* dist
	$(BIN)/python -m build --no-isolation --outdir dist

bench: .venv/installed-dev
	$(BIN)/heedful bench

# torch first and alone: it is pinned in constraints.txt, and nothing may bring a second one.
.venv/installed: pyproject.toml constraints.txt
	@echo "Installing torch and heedful into .venv: minutes, if they have to be downloaded."
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch numpy
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[demo]"
	touch $@

.venv/installed-dev: .venv/installed
	@echo "Installing what tests need into .venv."
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
