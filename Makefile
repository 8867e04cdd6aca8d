# Everything a person needs: `make train` trains, `make test` tests. Each makes .venv first if it is not there.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# constraints/py311.txt pins what CI ran; other Python versions resolve on their own
CONSTRAINTS := $(shell $(PYTHON) -c 'import sys; print("-c constraints/py311.txt" if sys.version_info[:2] == (3, 11) else "")')

# the name of a trained run, so that another one started meanwhile is not drawn instead
STARTED := $(shell date +%Y%m%d-%H%M%S)
RUN = $@-$(STARTED)

.PHONY: help train train-maze train-spo train-connect-four train-selfplay train-ringrift train-agent train-spa test test-integration test-full test-slow check format docs site tutorials bench clean

help:
	@echo "make train             install, train PPO on BinPack-v2, draw the curve and a GIF (some minutes on 2 cores)"
	@echo "make train-maze        the same on Maze-v0"
	@echo "make train-spo         the same with SPO on BinPack-v2"
	@echo "make train-connect-four  AlphaZero on connect four, from nothing: curve, ratings over training, a game as a GIF"
	@echo "make train-selfplay    tic-tac-toe by self-play in stages, to a champion that never loses (a minute)"
	@echo "make train-ringrift    RingRift on hex8 by self-play in stages, from nothing: ratings, a game as a GIF"
	@echo "make train-agent       an agent that writes its moves on FrozenLake, from nothing: curve, episodes as a page"
	@echo "make train-spa         SPA on FrozenLake: pretraining, data, fine-tuning, PPO, scores, and a report (an hour)"
	@echo "make test              install with the dev extra and run the tests but those of make check (some 7 minutes on 2 idle cores)"
	@echo "make test-integration  new processes, kills, clean installs, documented commands (some 7 minutes)"
	@echo "make test-full         the two above, with every variant of every claim (an hour and a quarter)"
	@echo "make test-slow         learning tests"
	@echo "make check             format, lint, types, architecture"
	@echo "make format            rewrite to the house format"
	@echo "make docs              regenerate the parts of docs/ that come from code"
	@echo "make site              build the documentation into build/site, strictly: any warning is an error"
	@echo "make tutorials         run the notebooks and write docs/tutorials (some 15 minutes on 2 cores)"
	@echo "make bench             measure what docs/benchmarks.md claims"

$(VENV)/.runtime: pyproject.toml constraints/py311.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "error: Python 3.11 or newer is needed; hint: make PYTHON=python3.11 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(CONSTRAINTS) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(CONSTRAINTS) -e ".[dev,docs,notebooks,telemetry,mlflow,wandb,sweep,language]"
	@touch $@

train: $(VENV)/.runtime
	$(BIN)/python scripts/train_ppo.py --config ppo/quick --run-name $(RUN)
	$(BIN)/python scripts/plot.py $(RUN)
	$(BIN)/python scripts/animate.py $(RUN)

train-maze: $(VENV)/.runtime
	$(BIN)/python scripts/train_ppo.py --config ppo/maze --run-name $(RUN)
	$(BIN)/python scripts/plot.py $(RUN)
	$(BIN)/python scripts/animate.py $(RUN)

train-spo: $(VENV)/.runtime
	$(BIN)/python scripts/train_spo.py --config spo/quick --run-name $(RUN)
	$(BIN)/python scripts/plot.py $(RUN)
	$(BIN)/python scripts/animate.py $(RUN)

# ratings rate every checkpoint, so that all of them are kept
train-connect-four: $(VENV)/.runtime
	$(BIN)/python scripts/train_alphazero.py --config alphazero/connect_four --keep-last-n 20 --run-name $(RUN)
	$(BIN)/python scripts/plot.py $(RUN)
	$(BIN)/python scripts/ratings.py $(RUN)
	$(BIN)/python scripts/animate.py $(RUN)

# tic-tac-toe in stages, from nothing to a champion that never loses
train-selfplay: $(VENV)/.runtime
	$(BIN)/python scripts/run_training_loop.py --board-type tic_tac_toe --save-dir runs/$(RUN) --max-iterations 12
	$(BIN)/python scripts/ratings.py --lineage runs/$(RUN)/tic_tac_toe_2p

# RingRift's hexagonal board in stages, from nothing
train-ringrift: $(VENV)/.runtime
	$(BIN)/python scripts/run_training_loop.py --board-type hex8 --num-players 2 --save-dir runs/$(RUN) \
		--selfplay-games 256 --max-iterations 6
	$(BIN)/python scripts/ratings.py --lineage runs/$(RUN)/hex8_2p
	$(BIN)/python scripts/animate.py runs/$(RUN)/hex8_2p --out runs/$(RUN)/game.gif

# an agent that writes its moves: the format of answers first, then the game
train-agent: $(VENV)/.runtime
	$(BIN)/python scripts/spa.py pretrain --run-name $(RUN)-base
	$(BIN)/python scripts/train_agent.py --load-path $(RUN)-base --run-name $(RUN)
	$(BIN)/python scripts/plot.py $(RUN)
	$(BIN)/python scripts/play_text.py --model $(RUN)

# a pipeline of its own name; given the name again, `python scripts/spa.py run NAME` goes on
train-spa: $(VENV)/.runtime
	$(BIN)/python scripts/spa.py run $(RUN) --config spa/small/frozen_lake

test: $(VENV)/.dev
	$(BIN)/python -m pytest -q -m "not integration and not slow and not full" -n auto --dist worksteal --durations=10 \
		--ignore tests/test_architecture.py

test-integration: $(VENV)/.dev
	$(BIN)/python -m pytest -q -m "integration and not full" -n 2 --dist loadfile --durations=10

test-full: $(VENV)/.dev
	$(BIN)/python -m pytest -q -m "not slow" -n 2 --dist loadfile --durations=10

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -q -m slow --durations=10

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_architecture.py

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.dev
	$(BIN)/python docs/tools/config_table.py
	$(BIN)/python docs/tools/command_reference.py
	$(BIN)/python docs/tools/benchmark_tables.py
	$(BIN)/python docs/tools/benchmark_figures.py
	$(BIN)/python docs/tools/task_table.py
	$(BIN)/python docs/tools/loop_tables.py
	$(BIN)/python docs/tools/spa_tables.py
	$(BIN)/python docs/tools/spa_figures.py
	$(BIN)/python docs/tools/ringrift_drawings.py
	$(BIN)/python tests/test_architecture.py

# the variable leaves out what mkdocs-material says of MkDocs 2, which this project does not use
site: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "open build/site/index.html"

tutorials: $(VENV)/.dev
	$(BIN)/python docs/tools/tutorials.py

bench: $(VENV)/.runtime
	$(BIN)/python scripts/bench.py --suite all

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
