"""Logs metrics to Weights & Biases, offline unless WANDB_MODE is set. The only module that imports wandb."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stoix_like.config.dicts import config_to_dict
from stoix_like.runtime.console.installation import require_extra
from stoix_like.runtime.runs.folder import display_name
from stoix_like.runtime.storage.atomic import atomic_write_json
from stoix_like.runtime.telemetry import scalars
from stoix_like.runtime.telemetry.sink import Report, RunMeta

FILE_NAME = "wandb.json"
PROJECT = "stoix_like"  # unless WANDB_PROJECT is set


class WandbSink:
    """Logs numbers over environment steps into `wandb/` of the run folder.

    `wandb sync RUN/wandb/offline-run-*` uploads them later. A resumed run continues under the id in its `wandb.json`.
    A new run gets a new id, because the name of its folder may have been used before or elsewhere. The constructor
    raises MissingExtraError if wandb is not installed.
    """

    def __init__(self) -> None:
        require_extra("Weights & Biases", "wandb", "wandb")
        self._run: Any = None

    def open(self, run_dir: Path, meta: RunMeta) -> None:
        """Starts wandb's process."""
        import wandb

        run_id = os.environ.get("WANDB_RUN_ID")
        if run_id is None and meta.resumed_update is not None:
            run_id = _stored_run_id(run_dir)
        run_id = run_id or f"{run_dir.name}-{secrets.token_hex(4)}"
        atomic_write_json(run_dir / FILE_NAME, {"run_id": run_id})
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=display_name(run_dir),
            id=run_id,
            group=f"{meta.title} {meta.task_id}",
            dir=str(run_dir),
            config=config_to_dict(meta.config),
            mode=os.environ.get("WANDB_MODE", "offline"),  # type: ignore[arg-type]  # any text the user has set
            resume="allow",
            settings=wandb.Settings(silent=True, console="off", disable_git=True, x_disable_stats=True),
        )

    def write(self, reports: Sequence[Report]) -> None:
        """Logs the numbers of reports; texts are stored in the run's summary."""
        if self._run is None:
            raise ValueError("the sink is not open")
        for report in reports:
            self._run.log(scalars.numbers(report), step=report.clock.timesteps)
            self._run.summary.update(report.texts)

    def close(self) -> None:
        """Ends wandb's run. Safe to call twice."""
        run, self._run = self._run, None
        if run is not None:
            run.finish()


def _stored_run_id(run_dir: Path) -> str | None:
    try:
        return str(json.loads((run_dir / FILE_NAME).read_text(encoding="utf-8"))["run_id"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
