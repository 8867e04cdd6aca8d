"""The model card of an exported policy: one page for readers who know neither the run nor this project.

The Hugging Face Hub reads the block at its top. There the page is named README.md.
"""

from __future__ import annotations

import json
from typing import Any

import jax

from stoix_like.config.checks.combinations import steps_per_update
from stoix_like.runtime.console.spelling import PROGRAM
from stoix_like.runtime.console.text import DASH, algorithm_title, number_text
from stoix_like.runtime.runs.saved import SavedRun
from stoix_like.runtime.weights.parameters import PARAMETERS

_COLUMNS = {"evaluator": "policy", "evaluator_network": "network alone", "evaluator_sampled": "sampled actions"}
_HIDDEN_METRICS = ("episodes", "max_return", "min_return", "episode_length_max", "episode_length_min", "level_hash")
_MAX_METRICS = 4  # keeps the page short
_SEARCH_NOTE = (
    "The {algorithm} policy searches before it acts; `policy.stablehlo` is its network alone, which is faster and"
    " weaker.\n"
)

_PAGE = """\
---
library_name: stoix_like
pipeline_tag: reinforcement-learning
tags: {tags}
---
# {algorithm} on {task_id}

{facts}

## Scores

{scores}

To score it with stoix_like (`python scripts/evaluate.py` in a clone is the same as `{program} evaluate`):

```bash
{command}
```

## Use

{search_note}With stoix_like, which also makes the environment, from `params.safetensors`:

```python
import jax
import stoix_like as sl
saved = sl.load_run("params.safetensors")
state, timestep = jax.jit(jax.vmap(saved.env.reset))(jax.random.split(jax.random.key(0), 4))
policy = jax.jit(saved.learner.policy, static_argnums=4)
print(policy(saved.params, state, timestep.observation, jax.random.key(1), True))
```

With jax, numpy and flatbuffers alone, from `policy.stablehlo`; `policy.json` describes inputs and outputs:

```python
import json, jax, numpy as np
from pathlib import Path
from jax import export
spec = json.loads(Path("policy.json").read_text())
act = jax.jit(export.deserialize(bytearray(Path("policy.stablehlo").read_bytes())).call)
batch = {{x["name"]: np.ones((1, *x["shape"][1:]), x["dtype"]) for x in spec["observation"]}}
print(act(batch, np.zeros(2, np.uint32), np.bool_(True))["action"])
```
"""


def render(saved: SavedRun, description: dict[str, Any], network_params: Any) -> str:
    """The page in Markdown, shorter than 60 lines; `description` is the content of policy.json."""
    algorithm, levels = description["algorithm"], saved.config.evaluation.level_set
    return _PAGE.format(
        tags=json.dumps(["reinforcement-learning", "jax", algorithm, description["task_id"]]),
        algorithm=algorithm_title(algorithm),
        task_id=description["task_id"],
        facts=_facts(saved, description, network_params),
        scores=_scores(saved, description),
        program=PROGRAM,
        command=f"{PROGRAM} evaluate {PARAMETERS}" + (f" --level-set {levels}" if levels else ""),
        search_note="" if algorithm == "ppo" else _SEARCH_NOTE.format(algorithm=algorithm_title(algorithm)),
    )


def _facts(saved: SavedRun, description: dict[str, Any], network_params: Any) -> str:
    environment, architecture = description["environment"], saved.config.architecture
    changed = {name: value for name, value in environment.items() if value and name != "task_id"}
    sizes = ("hidden_dim", "num_layers", "num_heads", "shared_torso", "compute_dtype")
    network = [f"{name} {getattr(architecture, name)}" for name in sizes]
    count = sum(leaf.size for leaf in jax.tree.leaves(network_params))
    steps = description["update"] * steps_per_update(saved.config)
    rows = {
        "task": f"`{description['task_id']}`" + (f" `{json.dumps(changed)}`" if changed else ""),
        "algorithm": f"{algorithm_title(description['algorithm'])}, {description['checkpoint']} checkpoint",
        "network": ", ".join([architecture.observation_adapter or saved.env.observation_adapter, *network]),
        "parameters": f"{count:,}",
        "environment steps": f"{steps:,} ({description['update']:,} updates)",
        "seed": str(description["seed"]),
        "made with": ", ".join(f"{name} {version}" for name, version in description["versions"].items()),
    }
    return "\n".join(["| | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows.items())])


def _scores(saved: SavedRun, description: dict[str, Any]) -> str:
    found = description["evaluation"]
    if not found:
        return "It was not evaluated during training."
    columns = [prefix for prefix in _COLUMNS if any(name.startswith(f"{prefix}/") for name in found)]
    metrics = dict.fromkeys(name.partition("/")[2] for name in found)
    shown = [metric for metric in metrics if metric not in _HIDDEN_METRICS][:_MAX_METRICS]
    levels = saved.config.evaluation.level_set
    hashed = found.get("evaluator/level_hash")
    where = f"the frozen levels `{levels}`" + (f" ({hashed})" if hashed else "") if levels else "fresh levels"
    bias = " It was selected by this score, which is therefore biased upwards." * (description["checkpoint"] == "best")
    return "\n".join(
        [
            f"On {where}, during training; means over {found.get('evaluator/episodes', 'all')} episodes.{bias}",
            "",
            "| metric | " + " | ".join(_COLUMNS[prefix] for prefix in columns) + " |",
            "| --- " * (len(columns) + 1) + "|",
            *(
                f"| {metric} | " + " | ".join(_cell(found.get(f"{prefix}/{metric}")) for prefix in columns) + " |"
                for metric in shown
            ),
        ]
    )


def _cell(value: Any) -> str:
    return DASH if value is None else number_text(value)
