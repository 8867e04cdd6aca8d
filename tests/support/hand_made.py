"""Run folders written by hand: what a comparison reads, with every number given."""

import json


def write_run(
    path,
    score,
    *,
    seeds=(0,),
    updates=(10, 20, 40),
    pace=0.1,
    algorithm="PPO",
    task="Maze-v0",
    metrics=("evaluator/mean_return",),
    level_hash=None,
    device="cpu",
    config=None,
):
    """A run folder; `score(seed, update)` at 100 steps per update and `pace` seconds per update (None: no clock).

    Of every metric, or what {metric: function} makes of it."""
    of_score = metrics if isinstance(metrics, dict) else dict.fromkeys(metrics, lambda score: score)
    path.mkdir(parents=True)
    start = {"category": "MISC", "update": 0, "timesteps": 0, "elapsed_seconds": 0.0, "seed": None}
    start |= {"misc/algorithm": algorithm, "misc/task_id": task, "misc/num_seeds": len(seeds), "misc/device": device}
    rows = [start]
    for update in updates:
        for seed in seeds:
            row = {"category": "EVALUATOR", "update": update, "timesteps": 100 * update, "seed": seed}
            if pace is not None:
                row["elapsed_seconds"] = pace * update
            row |= {key: value_of(score(seed, update)) for key, value_of in of_score.items()}
            if level_hash is not None:
                row["evaluator/level_hash"] = level_hash(update) if callable(level_hash) else level_hash
            rows.append(row)
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if config is not None:
        (path / "config.yaml").write_text(json.dumps(config))  # JSON is YAML
    return path
