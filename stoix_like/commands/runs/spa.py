"""The command `spa.py`: the stages of SPA, each by its name, and all of them in one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from stoix_like.commands.runs import train
from stoix_like.config.checks.values import nearest
from stoix_like.config.sections.spa import PipelineSectionConfig, SPAConfig
from stoix_like.errors import ConfigError
from stoix_like.runtime.console.arguments import ArgumentParser, output_file
from stoix_like.runtime.console.reporter import Reporter
from stoix_like.runtime.console.spelling import prog, usage
from stoix_like.runtime.loading import flags, help
from stoix_like.runtime.loading.documents import print_yaml
from stoix_like.runtime.loading.partial import PartialConfig, read_partial
from stoix_like.runtime.loading.presets import DEFAULT_PRESETS

if TYPE_CHECKING:
    from stoix_like.runtime.training.train import TrainResult

COMMAND, KIND, RUN, FROM = "spa", "spa", "run", "--from"
#: {stage: what comes of it}
STAGES = {
    RUN: "all stages of a pipeline that are due, one after the other",
    "pretrain": "a model that knows the format of answers and nothing else",
    "generate": "rows of played turns, in which the states that answers tell are those that were",
    "sft": "that model, fine-tuned on these rows",
    "ppo": "an agent, by PPO over tokens from the fine-tuned model",
    "evaluate": "scores of the agent and of its world model, before and after each stage",
    "report": "a page that compares pipelines, arms and seeds of one world",
}
#: Stages that are also runs of their own, without a pipeline.
RUNS: dict[str, Callable[[list[str]], TrainResult | int]] = {"pretrain": train.pretrain, "sft": train.fine_tune}


def main(argv: list[str]) -> TrainResult | int:
    """Runs the stage that the first argument names."""
    if not argv or argv[0] in ("-h", "--help"):
        print("\n".join(help_lines()))
        return 0
    name, *rest = argv
    if name not in STAGES:
        what = f"spa: no stage '{name}'{nearest(name, STAGES)}"
        raise ConfigError(what, f"stages: {', '.join(STAGES)}")
    if name == "report":
        return _report(rest)
    if name in RUNS and (not rest or rest[0].startswith("-")) and FROM not in rest:
        return RUNS[name](rest)
    return _run_pipeline(name, rest)


def help_lines() -> list[str]:
    """What `--help` prints."""
    width = max(map(len, STAGES))
    stages = [f"  {name:<{width}}  {summary}" for name, summary in STAGES.items()]
    return [
        f"usage: {usage(COMMAND)} STAGE [NAME] [--from PATH ...] [--flag VALUE ...]",
        "",
        f"stages, each with --help of its own; with the NAME of a pipeline, of which {RUN} makes one:",
        *stages,
        "",
        f"{' and '.join(RUNS)} without a NAME are runs of their own, with the flags of one",
    ]


def _run_pipeline(stage: str, argv: list[str]) -> int:
    words, arguments = list(argv), _parser()
    name = words.pop(0) if words and not words[0].startswith("-") else None
    if {"-h", "--help"} & set(words):
        print(_help_text(stage))
        return 0
    given, words = arguments.parse_known_args(words)
    if name is None and stage != RUN:
        raise ConfigError(f"spa {stage}: of which pipeline?", f"give its name: {usage(COMMAND)} {stage} NAME")
    loaded = _load(name, words)
    if loaded.options.print_config:
        print_yaml(loaded.config, tuple(loaded.notes))
        return 0
    from stoix_like.runtime.hardware import devices

    devices.select(loaded.config.hardware, loaded.config.logging, compile_cache=loaded.options.is_cached)
    from stoix_like.spa.folders import find_sources, layout_of
    from stoix_like.spa.running import PipelineOptions, run

    reporter = Reporter()
    for note in loaded.notes:
        reporter.note(note)
    layout = layout_of(loaded.config.pipeline.save_dir, _name_of(loaded) if name is None else name)
    again = (stage, layout.root.name, *argv[name is not None :])
    options = PipelineOptions(None if stage == RUN else stage, find_sources(given.sources), again)
    return run(loaded.config, layout, options, reporter)


def _help_text(stage: str) -> str:
    """What a stage's `--help` prints."""
    name, preset = "[NAME]" if stage == RUN else "NAME", DEFAULT_PRESETS[KIND]
    first = (
        f"NAME is that of the pipeline. One that is begun keeps its configuration; else the preset {preset} is used."
    )
    intro = f"{stage} {name} [--config FILE|PRESET] [--from PATH ...]", first
    return help.help_text(SPAConfig, KIND, preset, command=COMMAND, options=_options(), intro=intro)


def _read(words: list[str], default: str) -> PartialConfig:
    return read_partial(SPAConfig, KIND, words, default, page="docs/spa.md")


def _load(name: str | None, words: list[str]) -> PartialConfig:
    """The configuration of a pipeline: that which it was begun with, or a preset, under the flags.

    Raises ConfigError for flags that there are not.
    """
    default = DEFAULT_PRESETS[KIND]
    if name is not None:
        save_dir = _read(words, default).config.pipeline.save_dir
        begun = Path(save_dir) / name / "config.yaml"
        default = str(begun) if begun.is_file() else default
    loaded = _read(words, default)
    for option in ("resume", "profile"):
        if getattr(loaded.options, option):
            raise ConfigError(f"spa: --{option} is of a run", "the same command goes on where the pipeline stopped")
    if loaded.rest:
        problems = flags.parse_flags(loaded.rest, SPAConfig).problems
        is_word = not loaded.rest[0].startswith("-")
        hint = "the NAME of a pipeline stands right after the stage" if is_word else "--help lists every flag"
        raise ConfigError(problems or [f"spa: what is {loaded.rest[0]}?"], hint)
    return loaded


def _name_of(loaded: PartialConfig) -> str:
    """The name of a pipeline that has none: of its preset, with arm and seed if they are not the first ones."""
    from stoix_like.spa.arms import arm_of

    parts = [Path(loaded.options.config or DEFAULT_PRESETS[KIND]).stem]
    parts += [arm] if (arm := arm_of(loaded.config).name) != "spa" else []
    parts += [f"seed{loaded.config.model.seed}"] if loaded.config.model.seed else []
    return "-".join(parts)


def _report(argv: list[str]) -> int:
    """Writes the page of pipelines, or of files that they have left."""
    parser = ArgumentParser(f"{prog(COMMAND)} report", "Writes a report of pipelines into one HTML file.")
    parser.add_argument("pipelines", nargs="+", metavar="PIPELINE", help="a name, a folder, or its results.json")
    parser.add_argument("--save-dir", default=PipelineSectionConfig().save_dir, help="folder of the names")
    parser.add_argument("--out", type=output_file, help="HTML file (default: report.html, of one pipeline its own)")
    given = parser.parse_args(argv)
    from stoix_like.runtime.storage.atomic import write_output_text
    from stoix_like.spa.folders import Layout
    from stoix_like.spa.record import read_record
    from stoix_like.spa.report import spa_page

    named = [Path(given.save_dir) / text for text in given.pipelines]
    paths = [path if path.is_dir() else Path(text) for path, text in zip(named, given.pipelines, strict=True)]
    own = Layout(paths[0]).report if len(paths) == 1 and paths[0].is_dir() else Path("report.html")
    out = given.out or own
    write_output_text(out, spa_page([read_record(path) for path in paths]))
    print(f"report {out}")
    return 0


def _options() -> dict[str, tuple[str, str]]:
    """{option: (metavar, description)} of what is no leaf."""
    general = {name: flags.OPTION_HELP[name] for name in ("config", "print_config", "debug", "help", "version")}
    return {
        "from": ("PATH", "take stages that are done from this pipeline, or this stage of one; may be repeated")
    } | general


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog(COMMAND), "The stages of SPA.", add_help=False)
    parser.add_argument(FROM, action="append", default=[], metavar="PATH", dest="sources")
    return parser
