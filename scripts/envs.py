"""Lists the environments: `python scripts/envs.py [TASK ...]`."""

from stoix_like.runtime.cli import run_main


def main(argv: list[str]) -> int:
    from stoix_like.runtime import list_envs

    return list_envs.main(argv)


if __name__ == "__main__":
    run_main(main)
