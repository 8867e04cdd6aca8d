"""Lists the environments: `python scripts/envs.py [TASK ...]`."""

from stoix_like.commands.entry import run_main


def main(argv: list[str]) -> int:
    from stoix_like.commands.machine import envs

    return envs.main(argv)


if __name__ == "__main__":
    run_main(main)
