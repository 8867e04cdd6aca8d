"""Plays two players: `python scripts/arena.py runs/NAME mcts-512`, or `heuristic random --game othello`."""

from stoix_like.commands.entry import run_main


def main(argv: list[str]) -> int:
    from stoix_like.commands.games import arena

    return arena.main(argv)


if __name__ == "__main__":
    run_main(main)
