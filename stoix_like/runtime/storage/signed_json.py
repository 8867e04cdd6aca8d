"""JSON files that carry the SHA-256 of their content, so that a changed or torn one is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

_MISSING, _TORN = "it is missing", "it is torn, or not ours"
_CHANGED = "it was changed after it had been written"


class SignedJsonError(Exception):
    """A file cannot be used.

    Attributes:
        reason: why not, such as `it is missing`.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    @property
    def is_missing(self) -> bool:
        """Whether there is no such file."""
        return self.reason == _MISSING

    @property
    def is_changed(self) -> bool:
        """Whether the file is whole, and has another content than its digest is of."""
        return self.reason == _CHANGED


def signed_text(body: dict[str, Any]) -> str:
    """The text of a file: the body and its SHA-256."""
    return json.dumps({"sha256": json_digest(body), "body": body}, indent=1) + "\n"


def json_digest(body: Any) -> str:
    """The SHA-256 of a JSON value, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def read_signed(path: Path, fields: tuple[str, ...] = ()) -> dict[str, Any]:
    """The body of a file. Raises SignedJsonError if it is missing, torn, was changed, or lacks one of the fields."""
    try:
        stored = json.loads(path.read_bytes())
        body = dict(stored["body"])
        is_intact = stored["sha256"] == json_digest(body)
        for name in fields:
            body[name]
    except FileNotFoundError as error:
        raise SignedJsonError(_MISSING) from error
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise SignedJsonError(_TORN) from error
    if not is_intact:
        raise SignedJsonError(_CHANGED)
    return body
