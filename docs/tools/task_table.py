"""Writes the table of Jumanji's tasks that `envs.py` prints. It is shipped with the package.

`python docs/tools/task_table.py` rewrites the file in a clone; a test fails if it is out of date.
"""

from __future__ import annotations

import json

from stoix_like.commands.machine.envs import TABLE, make_table

if __name__ == "__main__":
    TABLE.write_text(json.dumps(make_table(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
