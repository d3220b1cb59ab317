# Each target does all its own set-up. Needs make and Python >= 3.11 with pip and venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup demo test lint format docs pictures bench clean

setup: $(READY)

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: $(PYTHON) is older than Python 3.11; use make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

# Asynchronous against synchronous RL on the AReaL paper's cluster, then one run with its timeline.
demo: setup
	$(BIN)/areal-sim compare areal/table1_1_5b_sync areal/table1_1_5b_async --out runs/demo/table1
	$(BIN)/areal-sim run areal/table7 --out runs/demo/table7
	$(BIN)/areal-sim trace runs/demo/table7 --perfetto runs/demo/timeline.json.gz
	@echo "report:   runs/demo/table1/report.html and runs/demo/table7/report.html (open in a browser)"
	@echo "timeline: runs/demo/timeline.json.gz (open it at https://ui.perfetto.dev)"

test: lint
	$(BIN)/pytest -n 2 -rs

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Bring generated pages and the outputs shown in the documentation up to date.
docs: setup
	$(BIN)/python docs/generate.py

# Pictures in the documentation; needs chromium.
pictures: setup
	$(BIN)/python docs/screenshots.py

# Speed of the simulator; never part of the tests.
bench: setup
	@for file in benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

clean:
	rm -rf $(VENV) build dist runs/demo *.egg-info .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
