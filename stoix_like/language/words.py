"""The words of the shipped worlds, which are the whole vocabulary of a model that knows nothing else.

One vocabulary serves all worlds, modes and sizes up to 8 cells a side, so a model of one may go on in another.
"""

from __future__ import annotations

from stoix_like.language.templates import ORDERS, TAGS, reminder, turn_texts

_SYMBOLS = tuple(f" {symbol}" for symbol in "_OGPX√S#.1234|")
_ROW_ENDS = tuple(f" {symbol}\n" for symbol in "_OGPX√#|")
_CELLS = (*(f" ({row}," for row in range(8)), *(f"{column})" for column in range(8)))
_PHRASES = (
    "Player (P) is at",
    " ; holes (O) are at",
    " ; goal (G) is at",
    " ; box (X) is at",
    " ; target (O) is at",
    "Empty cells:",
    " no cell",
    " none",
    " .\n",
)
_ACTIONS = ("Left", "Down", "Right", "Up", ",")  # Sudoku's are digits and commas
_MARKS = ("<frozen_lake>", "<sokoban>", "<sudoku>", "<base>", "<worldmodel>")

WORDS: tuple[str, ...] = tuple(
    dict.fromkeys(
        (
            *turn_texts("base"),
            *turn_texts("worldmodel"),
            *TAGS,
            *_SYMBOLS,
            *_ROW_ENDS,
            *_CELLS,
            *_PHRASES,
            *_ACTIONS,
            *_MARKS,
            *(reminder("worldmodel", order) for order in ORDERS),
            "Player (X) is at",
            "Player (√) is at",
        )
    )
)
"""Each word once. Its place is its token id: a new word goes to the end, or models of before cannot be loaded."""
