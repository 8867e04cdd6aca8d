"""Play a run or an engine: `python scripts/play_board.py runs/NAME`, or `mcts-512 --game connect_four`."""

from stoix_like.commands.entry import run_main


def main(argv: list[str]) -> int:
    from stoix_like.commands.games import play_board

    return play_board.main(argv)


if __name__ == "__main__":
    run_main(main)
