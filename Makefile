# Two commands: `make demo` and `make test`.  Each prepares all it needs in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo cluster-demo test format bench clean clean-cache

demo: $(VENV)/.ready
	$(BIN)/python examples/demo.py

cluster-demo: $(VENV)/.ready
	$(BIN)/pip install --quiet -e ".[spark]"
	$(BIN)/python examples/cluster_demo.py

test: $(VENV)/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell src tests docs examples benchmarks README.md CONTRIBUTING.md CHANGELOG.md
	$(BIN)/mypy
	$(BIN)/pytest -n auto --dist loadgroup -rs

format: $(VENV)/.ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.ready
	$(BIN)/pip install --quiet -e ".[bench]"
	$(BIN)/python -m benchmarks $(if $(DATA),--data-dir $(DATA)) $(if $(LIBODM),--libodm $(LIBODM))

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e ".[test]"
	touch $@

clean-cache:
	find src -name '*.nb[ci]' -delete
	rm -rf .numba-cache

clean: clean-cache
	rm -rf $(VENV) demo-output build dist
