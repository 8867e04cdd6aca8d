"""Reading a configuration: layers, strictness, exact error texts, and the way back to YAML."""

import dataclasses
import shlex
from pathlib import Path

import config_table
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.asserts import refused
from support.marks import full
from support.transcripts import rows

from stoix_like.config import layers
from stoix_like.config.checks.access import check_leaf, get_leaf, leaf_sections, leaf_types, section_types
from stoix_like.config.checks.values import LARGEST_NUMBER, allows, choices
from stoix_like.config.dicts import config_from_dict, config_to_dict
from stoix_like.config.sections import runs
from stoix_like.config.sections.agent import PretrainSectionConfig, TokenPPOSectionConfig
from stoix_like.config.sections.agent_runs import AgentConfig, FineTuneConfig, PretrainConfig
from stoix_like.config.sections.runs import (
    AlphaZeroConfig,
    HardwareConfig,
    PPOConfig,
    SPOConfig,
    SPOSectionConfig,
    ppo_config,
)
from stoix_like.config.sections.selfplay import SelfPlayConfig
from stoix_like.config.sections.spa import SPAConfig
from stoix_like.errors import CheckpointError, ConfigError
from stoix_like.runtime.loading import documents, flags, help
from stoix_like.runtime.loading.config import preset_note
from stoix_like.runtime.loading.documents import read_yaml, to_yaml
from stoix_like.runtime.loading.partial import read_partial
from stoix_like.runtime.loading.presets import find, preset_paths
from stoix_like.runtime.runs.sources import load_config

PPO_PRESETS = ["binpack", "binpack_gpu", "binpack_large", "binpack_v0", "connect_four", "frozen_lake", "maze"]
PPO_PRESETS += ["maze_gpu", "maze_mlp", "quick", "snake", "sokoban", "sudoku"]
SPO_PRESETS = ["binpack", "binpack_gpu", "binpack_v0", "frozen_lake", "maze", "maze_gpu", "maze_mlp", "quick"]
SPO_PRESETS += ["sokoban", "sudoku"]
ALPHAZERO_PRESETS = [
    "connect_four",
    "connect_four_gpu",
    "go_9x9",
    "hex8",
    "hex_11x11",
    "othello",
    "square8",
    "tic_tac_toe",
]
SELFPLAY_PRESETS = ["connect_four", "hex8_2p", "othello", "square8_2p", "square8_4p", "tic_tac_toe", "unified_loop"]
PRESETS = [
    "agent/frozen_lake",
    *(f"alphazero/{name}" for name in ALPHAZERO_PRESETS),
    *(f"ppo/{name}" for name in PPO_PRESETS),
    "pretrain/frozen_lake",
    *(f"selfplay/{name}" for name in SELFPLAY_PRESETS),
    "sft/frozen_lake",
    *(f"spa/small/{name}" for name in ("frozen_lake", "frozen_lake_6x6", "smoke", "sokoban")),
    *(f"spo/{name}" for name in SPO_PRESETS),
]
CONFIG_TYPES = {"ppo": PPOConfig, "spo": SPOConfig, "alphazero": AlphaZeroConfig, "selfplay": SelfPlayConfig}
CONFIG_TYPES |= {"agent": AgentConfig, "pretrain": PretrainConfig, "sft": FineTuneConfig, "spa": SPAConfig}


def loaded(*argv):
    return load_config(PPOConfig, "ppo", argv, default_config="ppo/quick")


def problems(*argv):
    with pytest.raises(ConfigError) as caught:
        loaded(*argv)
    return caught.value.problems


def test_defaults_below_yaml_below_flags_and_the_bare_command_is_the_quick_preset(file):
    result = loaded()
    assert result.options.config == "ppo/quick"
    assert result.overridden == frozenset()
    assert (result.config.environment.num_envs, result.config.training_core.num_updates) == (128, 100)
    path = file("environment: {num_envs: 16}\ntraining_core: {epochs: 7}\n")
    result = loaded("--config", path, "--epochs", "3")
    assert result.config.training_core.epochs == 3  # flag over file
    assert result.config.environment.num_envs == 16  # file over default
    assert result.config.training_core.rollout_length == 128  # default
    assert result.overridden == {"epochs"}


@pytest.mark.parametrize(
    "text", ["", "environment:\n  # num_envs: 3\n", "spo: {num_particles: lots, adaptive_temperature: true}"]
)
def test_files_of_defaults_alone(file, text):
    """Of another algorithm's section the keys are checked and the values are not read."""
    assert loaded("--config", file(text)).config == PPOConfig()


def test_spellings_of_numbers_booleans_and_rust_rl(file):
    path = file("optimization:\n  actor_lr: 1e-3\n  critic_lr: 3e-4\ntraining_core:\n  num_updates: 1e7\n")
    config = loaded("--config", path).config
    assert (config.optimization.actor_lr, config.optimization.critic_lr) == (0.001, 0.0003)
    assert config.training_core.num_updates == 10_000_000
    assert isinstance(config.training_core.num_updates, int)
    assert loaded("--num-updates", "1e7", "--num-envs=1_024").config.training_core.num_updates == 10_000_000
    words = ("--no-progress", "--backend-logs-visible", "--exact-reference=true", "--shared-torso", "false")
    config = loaded(*words).config
    assert (config.logging.progress, config.logging.backend_logs_visible) == (False, True)
    assert (config.environment.exact_reference, config.architecture.shared_torso) == (True, False)
    assert loaded("--standardize-advantages", "true").config.optimization.standardize_advantages == "batch"
    assert loaded("--checkpoint-save-dir", "a", "--checkpoint-load-path", "b").config.checkpointing.load_path == "b"
    assert loaded("--config", file("ppo_core: {epochs: 9}\n")).config.training_core.epochs == 9


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("010", 10), ("0x10", "0x10"), ("1:30", "1:30"), ("yes", "yes"), ("2026-11-21", "2026-11-21"), ("1_0", 10)],
        *[("1.", 1.0), (".5", 0.5), ("-1e-3", -0.001), ("1e3", 1000.0), (".inf", float("inf")), ("~", None)],
        *[("'3'", "3"), ("True", True), ("[1, a]", [1, "a"]), ("none", "none")],
    ],
)
def test_scalars_are_those_of_yaml_1_2(file, text, value):
    path = file(f"environment:\n  kwargs: {{a: {text}}}\n")
    read = loaded("--config", path).config.environment.kwargs["a"]
    assert read == value
    assert type(read) is type(value)


def test_none_is_null_only_where_null_is_allowed_and_text_is_as_written(file):
    path = file("optimization: {value_clip_eps: none, standardize_advantages: none}\ncheckpointing: {run_name: none}\n")
    config = loaded("--config", path).config
    assert config.optimization.value_clip_eps is None
    assert config.optimization.standardize_advantages == "none"
    assert config.checkpointing.run_name is None
    flagged = loaded("--num-layers", "none", "--keep-last-n=null", "--run-name", "None").config
    assert (flagged.architecture.num_layers, flagged.checkpointing.keep_last_n) == (None, None)
    assert flagged.checkpointing.run_name is None
    assert loaded("--config", file("checkpointing: {run_name: 0042}\n")).config.checkpointing.run_name == "0042"
    assert loaded("--save-dir", "out #1: x").config.checkpointing.save_dir == "out #1: x"


def test_options_are_those_of_the_command_line():
    options = loaded("--print-config", "--debug", "--no-compile-cache").options
    assert (options.print_config, options.debug, options.no_compile_cache) == (True,) * 3


@pytest.mark.parametrize(
    ("config_type", "further"),
    [(PPOConfig, SPOSectionConfig), (AgentConfig, PretrainSectionConfig), (PretrainConfig, TokenPPOSectionConfig)],
)
def test_leaf_names_are_unique_over_all_sections_and_no_option_is_one(config_type, further):
    """Of the sections of another algorithm, too, that its file may have."""
    assert not set(flags.OPTION_HELP) & set(leaf_sections(config_type))
    kinds = [*section_types(config_type).values(), further]
    names = [leaf for kind in kinds for leaf in leaf_types(kind)]
    assert len(names) == len(set(names))
    spellings = [flags.flag_name(name) for name in names] + [flags.flag_name("no_" + name) for name in names]
    assert len(spellings) == len(set(spellings))


def test_steps_and_updates_replace_each_other_across_layers(file):
    sizes = "environment: {num_envs: 4}\ntraining_core: {rollout_length: 32, "
    path = file(sizes + "num_updates: 9, total_timesteps: null}\n")
    by_steps = loaded("--config", path, "--total-timesteps", "1280")
    assert by_steps.config.training_core.num_updates == 10
    assert by_steps.config.training_core.total_timesteps is None
    assert by_steps.overridden == {"num_updates"}
    path = file(sizes + "total_timesteps: 1280}\n")
    assert loaded("--config", path).config.training_core.num_updates == 10
    assert loaded("--config", path, "--num-updates", "3").config.training_core.num_updates == 3
    path = file("training_core: {num_updates: 3, total_timesteps: 3}\n")  # wrong, even if a flag overwrites both
    both = "run.yaml:1: give num_updates or total_timesteps, not both"
    assert problems("--config", path, "--num-updates", "3") == [both]


@pytest.mark.parametrize(
    ("text", "expected"),
    rows("""
environment:|  num_env: 4 => 2: unknown key 'environment.num_env'; did you mean 'num_envs'?
environment:|  gamma: 1 => 2: unknown key 'environment.gamma'; it belongs to section 'training_core'
num_envs: 4 => 1: unknown section 'num_envs'; it is a key of section 'environment'
enviroment: {} => 1: unknown section 'enviroment'; did you mean 'environment'?
environment: 3 => 1: section 'environment' must hold keys, such as 'environment: {task_id: ...}'
- 3 => 1: a configuration is made of sections, such as 'environment:'
optimization:||  actor_lr: fast => 3: optimization.actor_lr: expected float, got 'fast' (str)
logging: {progress: yes} => 1: logging.progress: expected bool, got 'yes' (str)
logging: {progress: 1} => 1: logging.progress: expected bool, got 1 (int)
training_core: {epochs: true} => 1: training_core.epochs: expected int, got True (bool)
training_core: {epochs: 1.5} => 1: training_core.epochs: expected int, got 1.5 (float)
training_core: {epochs: null} => 1: training_core.epochs: expected int, got null
training_core: {gamma: 1.01} => 1: training_core.gamma: must lie in [0, 1], got 1.01
training_core: {gamma: .nan} => 1: training_core.gamma: must be finite, got nan
optimization: {clip_eps: 0} => 1: optimization.clip_eps: must be greater than 0, got 0.0
architecture: {num_layers: 0} => 1: architecture.num_layers: must lie in [1, 1000], got 0
architecture: {observation_adapter: gird} =>
    1: architecture.observation_adapter: expected dense, binpack, grid, cells, board, lines, action_planes or null,
    got 'gird' (str); did you mean 'grid'?
architecture:|  seed: 1|  seed: 2 => 3: duplicate key 'architecture.seed' (first at line 2)
logging: {}|logging: {} => 2: duplicate key 'logging' (first at line 1)
ppo_core: {}|training_core: {} => 2: 'training_core' and 'ppo_core' (line 1) are the same section; keep one of them
environment:|  kwargs: {a: 1, a: 2} => 2: not valid YAML: duplicate key 'a'
environment: &e {}|logging: *e => 2: not valid YAML: aliases (*name) are not read here
architecture: {seed: !!python/name:os.system x} =>
    1: not valid YAML: tag tag:yaml.org,2002:python/name:os.system is not read here
architecture: {seed: !!int x} => 1: not valid YAML: 'x' is no int
spo:|  init_log_alpha: 3 => 2: 'spo.init_log_alpha' is not read; use init_alpha: the weight itself
spo: {num_particle: 3} => 1: unknown key 'spo.num_particle'; did you mean 'num_particles'?
training_core: {num_updates: 3, total_timesteps: 3} => 1: give num_updates or total_timesteps, not both
environment.num_envs: 3|environment: {num_envs: 4} =>
    1: unknown section 'environment.num_envs'; did you mean 'environment'?
~ => 1: a configuration is made of sections, such as 'environment:'
"""),
)
def test_file_problems_word_for_word(file, text, expected):
    """A bar ends a line."""
    assert problems("--config", file(text.replace("|", "\n") + "\n")) == [f"run.yaml:{expected}"]


def test_kwargs_are_yaml_flow_of_plain_data_and_their_keys_text_whatever_they_look_like(file):
    assert loaded("--config", file("environment:\n  kwargs: {1: 2}\n")).config.environment.kwargs == {"1": 2}
    assert loaded("--kwargs", "{num_rows: 6, a: [1]}").config.environment.kwargs == {"num_rows": 6, "a": [1]}
    assert ppo_config(kwargs={"size": (3, 4)}).environment.kwargs == {"size": [3, 4]}
    with pytest.raises(ConfigError, match="expected a mapping of plain values"):
        ppo_config(kwargs={"generator": object()})
    with pytest.raises(ConfigError, match="expected a mapping whose keys are text"):
        ppo_config(kwargs={1: 2})


def test_broken_yaml_names_its_line(file):
    (problem,) = problems("--config", file("environment:\n  num_envs: [1\nlogging: {}\n"))
    assert problem.startswith("run.yaml:3: not valid YAML: ")
    (problem,) = problems("--config", file("a: " + "[" * 3000))
    assert problem == "run.yaml: not valid YAML: nested too deeply"
    Path("run.yaml").write_bytes(b"\xff\xfe\x00")
    assert problems("--config", "run.yaml") == ["run.yaml: not a text file in UTF-8"]


@pytest.mark.parametrize(
    ("words", "expected"),
    rows("""
--num-envs lots => --num-envs: expected int, got 'lots' (str)
--num-envs -1e-3 => --num-envs: expected int, got -0.001 (float)
--gamma=-1 => --gamma: must lie in [0, 1], got -1.0
--nun-envs 64 => unknown flag '--nun-envs'; did you mean '--num-envs'?
--num_envs 64 => unknown flag '--num_envs'; did you mean '--num-envs'?
--task x => unknown flag '--task'; did you mean '--task-id'?
-x => unknown flag '-x'
--num-particles 3 => unknown flag '--num-particles'; it belongs to section 'spo', which this command does not use
--init-log-alpha 3 => unknown flag '--init-log-alpha'; use --init-alpha: the weight itself
num_envs=64 => unexpected argument 'num_envs=64'; write --num-envs 64
Maze-v0 => unexpected argument 'Maze-v0'
--seed 1 --seed=2 => --seed: given twice
--progress --no-progress => --no-progress: given twice (first as --progress)
--save-dir=a --checkpoint-save-dir=b => --checkpoint-save-dir: given twice (first as --save-dir)
--config ppo/maze --config ppo/quick => --config: given twice
--seed => --seed: needs a value
--seed= => --seed: needs a value
--seed --progress => --seed: needs a value
--no-progress=false => --no-progress: takes no value, got 'false'
--debug=1 => --debug: takes no value, got '1'
--progress maybe => --progress: expected bool, got 'maybe' (str)
--kwargs 6 => --kwargs: expected mapping, got 6 (int)
--config ppo/mase => --config: no file or preset 'ppo/mase'; did you mean 'ppo/maze'?
--config maze => --config: no file or preset 'maze'; did you mean 'ppo/maze'?
--run-name ../x => --run-name: '../x' cannot name a run; use letters, digits and . _ = + -, begin with a letter or
    digit, and not the word latest
--num-envs 1e12 => --num-envs: must be at most 2147483647, got 1000000000000
--hidden-dim 1e12 => --hidden-dim: must be at most 2147483647, got 1000000000000
--actor-lr 1e39 => --actor-lr: must be at most 3.4028235e+38, the largest float32, got 1e+39
--reward-scale 1e300 => --reward-scale: must be at most 3.4028235e+38, the largest float32, got 1e+300
--num-envs 1024 --rollout-length 1e9 => --rollout-length: num_seeds * num_envs * rollout_length = 1,024,000,000,000 is
    above 2,147,483,647; lower one of them
--num-eval-envs 1e9 --num-eval-episodes 1e9 --num-seeds 3 =>
    --num-eval-episodes: num_seeds * num_eval_episodes = 3,000,000,000 is above 2,147,483,647; lower one of them
--num-envs 4 --rollout-length 8 --num-minibatches 32 --standardize-advantages minibatch => --standardize-advantages:
    a minibatch is one step, of num_envs * rollout_length = 4 * 8 = 32, and standardized to 0, so that no policy would
    be learned; standardize over the batch, or use fewer minibatches
--num-envs 1 --rollout-length 1 --num-minibatches 1 --standardize-advantages batch => --standardize-advantages:
    a batch is one step, of num_envs * rollout_length = 1 * 1 = 1, and standardized to 0, so that no policy would be
    learned; use none, or play more steps
--hidden-dim 2e9 => --hidden-dim: num_seeds * hidden_dim * hidden_dim = 4,000,000,000,000,000,000 is above
    2,147,483,647; lower one of them
--max-items=1e6 --max-ems=1e6 =>
    --max-items: max_items * max_ems = 1,000,000,000,000 is above 2,147,483,647; lower one of them
--total-timesteps 5120e10 =>
    --total-timesteps: 51,200,000,000,000 steps are 10,000,000,000 updates, and at most 2,147,483,647 can be counted
--total-timesteps 1e6 =>
    --total-timesteps: 1,000,000 is not a multiple of num_envs * rollout_length = 5,120; use 998,400 or 1,003,520
--num-updates 3 --total-timesteps 1000 => --total-timesteps: give num_updates or total_timesteps, not both
--seed 2147483646 --num-seeds 3 => --num-seeds: the last seed would be 2147483648, above 2147483647; use a lower seed
--otlp-endpoint localhost:4318 =>
    --otlp-endpoint: 'localhost:4318' is no address; give one such as http://localhost:4318
--mlflow-tracking-uri mlruns => --mlflow-tracking-uri: 'mlruns' is a folder, which MLflow no longer takes as a store;
    give sqlite:///<path>.db or http://<server>
--mlflow-tracking-uri file:./mlruns => --mlflow-tracking-uri: 'file:./mlruns' is a folder, which MLflow no longer takes
    as a store; give sqlite:///<path>.db or http://<server>
--coordinator-address localhost --num-processes 2 --process-id 0 =>
    --coordinator-address: expected HOST:PORT, got 'localhost'
--coordinator-address host:port --num-processes 2 --process-id 0 =>
    --coordinator-address: expected HOST:PORT, got 'host:port'
--coordinator-address 'a b:12' --num-processes 2 --process-id 0 =>
    --coordinator-address: expected HOST:PORT, got 'a b:12'
--coordinator-address : --num-processes 2 --process-id 0 => --coordinator-address: expected HOST:PORT, got ':'
"""),
)
def test_flag_problems_word_for_word(words, expected):
    """No flag can be abbreviated. (On a product as of --hidden-dim 2e9 XLA aborts the process.)"""
    assert problems(*shlex.split(words)) == [expected]


def test_problems_of_file_and_flags_come_together_in_order(file):
    path = file("environment:\n  num_env: 3\n  num_envs: lots\nnonsense: 1\ntraining_core:\n  gamma: 2\n")
    assert problems("--config", path, "--sed", "1", "--epochs", "0", "--num-envs", "-3") == [
        "run.yaml:2: unknown key 'environment.num_env'; did you mean 'num_envs'?",
        "run.yaml:3: environment.num_envs: expected int, got 'lots' (str)",
        "run.yaml:4: unknown section 'nonsense'",
        "run.yaml:6: training_core.gamma: must lie in [0, 1], got 2.0",
        "unknown flag '--sed'; did you mean '--seed'?",
        "--epochs: must be at least 1, got 0",
        "--num-envs: must be at least 1, got -3",
    ]


def test_impossible_and_absurd_sizes_name_file_line_flag_and_nearest_values(file):
    path = file("environment:\n  num_envs: 25\ntraining_core:\n  rollout_length: 40\n  num_minibatches: 16\n")
    assert problems("--config", path, "--num-devices", "2", "--process-id", "0") == [
        "run.yaml:5: training_core.num_minibatches: num_envs * rollout_length = 25 * 40 = 1000 is not divisible by 16;"
        " use 10 or 20",
        "--num-devices: num_envs = 25 is not divisible by 2; use 1 or 5",
        "hardware: coordinator_address, num_processes and process_id go together; give all or none",
    ]
    found = problems("--num-envs", "2e9", "--rollout-length", "2e9", "--num-minibatches", "7")
    assert [problem.partition(":")[0] for problem in found] == ["--num-minibatches", "--rollout-length"]
    prime = "2147483647"
    (problem,) = problems("--num-envs", prime, "--rollout-length", "1", "--num-minibatches", "1000000000")
    assert problem.endswith("is not divisible by 1000000000; use 1")
    assert problems("--gamma", "1" + "0" * 400)[0].startswith("--gamma: expected float, got 1000")
    assert problems("--seed", "1" * 5000)[0].startswith("--seed: not valid YAML: '1111")


def test_where_telemetry_goes_must_be_an_address_without_a_password():
    for flag, address in (
        ("--otlp-endpoint", "http://localhost:4318"),
        ("--otlp-endpoint", "https://collector.lab/v1/traces"),
        ("--mlflow-tracking-uri", "postgresql://me@lab/db"),
    ):
        assert getattr(loaded(flag, address).config.logging, flag[2:].replace("-", "_")) == address
    for flag, address in (
        ("--otlp-endpoint", "http://me:s3cret@lab:4318"),
        ("--mlflow-tracking-uri", "https://s3cret@lab"),
        ("--mlflow-tracking-uri", "postgresql://me:s3cret@lab/db"),
    ):
        (problem,) = problems(flag, address)
        assert "it has a password, which would be written into files of the run" in problem
        assert "s3cret" not in problem


def test_keywords_and_stored_configurations_are_checked_alike():
    assert ppo_config(num_envs=1e2, num_minibatches=8).environment.num_envs == 100
    assert ppo_config(num_updates=None, total_timesteps=81920).training_core.num_updates == 10
    with refused(ConfigError, ["training_core: give num_updates or total_timesteps, not both"]):
        ppo_config(num_updates=3, total_timesteps=81920)
    unknown = ["unknown leaf 'num_env'; did you mean 'num_envs'?", "unknown leaf 'gama'; did you mean 'gamma'?"]
    with refused(ConfigError, unknown):
        ppo_config(num_env=3, gama=1)
    device = "hardware.device_type: expected auto, cpu, cuda, gpu, tpu, got 'gpp' (str); did you mean 'gpu'?"
    with refused(ConfigError, ["training_core.gamma: must lie in [0, 1], got 2.0", device]):
        ppo_config(gamma=2, device_type="gpp")
    assert layers.resolve(ppo_config(num_updates=3), {"total_timesteps": 81920}).training_core.num_updates == 10
    assert layers.resolve(ppo_config(total_timesteps=81920), {"num_updates": 3}).training_core.num_updates == 3
    assert config_from_dict(PPOConfig, {"environment": {"num_envs": 32}}) == ppo_config(num_envs=32)
    with refused(ConfigError, ["unknown key 'environment.num_env'", "unknown section 'spo'"]):
        config_from_dict(PPOConfig, {"environment": {"num_env": 32}, "spo": {}})


def test_each_value_is_checked_once_where_it_is_read(file, monkeypatch):
    seen = []

    def counted(kind, leaf, value):
        seen.append(leaf)
        return check_leaf(kind, leaf, value)

    for module in (documents, layers):
        monkeypatch.setattr(module, "check_leaf", counted)
    rates = loaded("--config", file("optimization: {actor_lr: 1}\n"), "--critic-lr", "2").config.optimization
    assert (rates.actor_lr, rates.critic_lr) == (1.0, 2.0)
    assert sorted(seen) == ["actor_lr", "critic_lr"]
    seen.clear()
    assert ppo_config(actor_lr=1).optimization.actor_lr == 1.0
    assert seen == ["actor_lr"]


def test_a_run_does_not_have_the_leaves_of_its_processes_which_stand_apart(file):
    words = ("--coordinator-address", "host:1234", "--num-processes", "2", "--process-id", "1", "--device-type", "cpu")
    result = loaded("--config", file("hardware: {distributed: true}\n"), *words)
    assert result.config == ppo_config(device_type="cpu")
    given = {"coordinator_address": "host:1234", "num_processes": 2, "process_id": 1, "distributed": True}
    assert result.launched == HardwareConfig(device_type="cpu", **given)
    assert result.given == ppo_config(device_type="cpu", **given)


def leaves_at_their_defaults(path, kind):
    """The leaves of a preset that repeat the default. `task_id` may: the hints name a preset by the task it states."""
    layer, _ = read_yaml(path, kind)
    return [leaf for leaf, (value, _) in layer.items() if leaf != "task_id" and value == get_leaf(kind(), leaf)]


def test_every_preset_states_its_differences_commented_and_sound(file):
    assert sorted(preset_paths()) == PRESETS
    for name, path in preset_paths().items():
        if name == "selfplay/unified_loop":
            continue  # of a loop, no run: it states the keys of the original (test_partial.py)
        algorithm = name.partition("/")[0]
        kind = CONFIG_TYPES[algorithm]
        assert leaves_at_their_defaults(path, kind) == [], name
        assert "task_id" in read_yaml(path, kind)[0], name
        leaves = [line for line in path.read_text().splitlines() if line.startswith("  ")]
        assert all("  # " in line for line in leaves), name
        read = read_partial if algorithm == "spa" else load_config  # a pipeline is no run
        by_name, by_path = (read(kind, algorithm, ["--config", text], "") for text in (name, str(path)))
        assert by_name.config == by_path.config
    path = file("environment: {task_id: BinPack-v2, num_envs: 64}\ntraining_core: {gamma: 0.99, epochs: 3}\n")
    assert leaves_at_their_defaults(Path(path), PPOConfig) == ["num_envs", "gamma"]
    config = loaded("--config", "ppo/maze_mlp").config
    core = config.training_core
    assert (config.environment.num_envs, core.rollout_length, core.epochs, core.num_minibatches) == (64, 128, 4, 16)
    assert (config.architecture.hidden_dim, config.architecture.observation_adapter) == (256, "dense")


@pytest.mark.parametrize(
    "name", ["ppo_config.yaml", "config/ppo_config", "ppo_config", "spo_config.yaml", "conf/spo_config"]
)
def test_the_files_of_the_original_are_answered_with_their_presets(name):
    algorithm = "spo" if "spo" in name else "ppo"
    with pytest.raises(ConfigError) as caught:
        find(name, algorithm, "--config: ")
    assert caught.value.what == f"--config: no file or preset '{name}'"
    assert caught.value.hint == f"--config {algorithm}/binpack_v0 has the task and sizes of the original's file"
    assert find("config/unified_loop.yaml", "selfplay") == preset_paths()["selfplay/unified_loop"]


def test_find_prefers_files_and_refuses_folders(file):
    assert find(file(""), "ppo") == Path("run.yaml")
    assert find("ppo/maze.yaml", "ppo") == find("ppo/maze", "ppo")
    for algorithm in ("ppo", "spo"):
        with pytest.raises(ConfigError, match=f"did you mean '{algorithm}/maze'"):
            find("maze", algorithm)
    with pytest.raises(ConfigError, match="'\\.' is a folder"):
        find(".", "ppo")
    with refused(ConfigError, hint="presets: " + ", ".join(PRESETS)):
        find("../../etc/passwd.yaml", "ppo")


def test_resume_reads_the_runs_own_configuration(file, tmp_path):
    (tmp_path / "runs" / "a").mkdir(parents=True)
    config = ppo_config(num_envs=32, rollout_length=16)
    (tmp_path / "runs" / "a" / "config.yaml").write_text(to_yaml(config))
    assert loaded("--resume", "runs/a").config == config
    again = loaded("--resume", "a", "--actor-lr", "1e-4")
    assert (again.config.optimization.actor_lr, again.config.environment.num_envs) == (1e-4, 32)
    assert again.overridden == {"actor_lr"}
    assert problems("--resume", "a", "--config", "ppo/maze") == ["--resume: the run has its own configuration"]
    with pytest.raises(CheckpointError, match="no run at runs/b"):
        loaded("--resume", "runs/b")


def test_resume_says_where_a_damaged_configuration_stands_too(file, tmp_path):
    run = tmp_path / "runs" / "a"
    (run / "checkpoints" / "3").mkdir(parents=True)
    (run / "config.yaml").write_text("training_core: {seed: [")
    with pytest.raises(ConfigError, match="not valid YAML") as caught:
        loaded("--resume", "a")
    assert "--help lists every flag" in caught.value.hint  # there is no checkpoint
    (run / "checkpoints" / "3" / "meta.json").write_text("{}")
    with pytest.raises(ConfigError, match="not valid YAML") as caught:
        loaded("--resume", "a")
    assert "the value of 'config' in runs/a/checkpoints/3/meta.json" in caught.value.hint


TEXT = st.text(st.characters(codec="utf-8"))
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
RUN_NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._=+-]{0,20}", fullmatch=True)


def leaf_values(field, annotation):
    """Legal values of one leaf, from its type and range."""
    low, high, above = (field.metadata[name] for name in ("low", "high", "above"))
    kinds = [st.sampled_from(choices(annotation))] if choices(annotation) else []
    if allows(annotation, bool):
        kinds.append(st.booleans())
    if allows(annotation, int):
        kinds.append(st.integers(int(low), int(high) if high else 10**6))
    if allows(annotation, float):
        least = low if low is not None else above
        most = LARGEST_NUMBER if high is None else high
        kinds.append(st.floats(least, most, exclude_min=above is not None, allow_infinity=False, allow_subnormal=True))
    if allows(annotation, str):
        kinds.append(RUN_NAMES if field.name == "run_name" else TEXT)
    if allows(annotation, type(None)):
        kinds.append(st.none())
    return st.one_of(kinds) if kinds else st.dictionaries(TEXT, PLAIN, max_size=3)


@st.composite
def configs(draw):
    """Any configuration that can run: each leaf drawn by itself, then the sizes made to divide."""
    leaves = {
        field.name: draw(leaf_values(field, leaf_types(kind)[field.name]))
        for kind in section_types(PPOConfig).values()
        for field in dataclasses.fields(kind)
    }
    few = {name: draw(st.integers(1, 20)) for name in ("num_devices", "num_minibatches", "num_seeds")}
    sizes = few | {
        "num_envs": few["num_devices"] * draw(st.integers(1, 50)),
        "rollout_length": few["num_minibatches"] * draw(st.integers(2, 50)),
        "seed": draw(st.integers(0, 2**31 - 1 - 20)),
        "hidden_dim": draw(st.integers(1, 10_000)),
        "max_ems": draw(st.none() | st.integers(1, 1000)),
        "task_id": "BinPack-" + leaves["task_id"],
        "opponent": None,
        "opening_plies": None,
        "num_updates": draw(st.integers(1, 10**9)),
        "total_timesteps": None,
    }
    others = draw(st.sampled_from([(None, None, None), ("host:1234", 2, 1), ("[::1]:80", 20, 0)]))
    hosts = dict(zip(("coordinator_address", "num_processes", "process_id"), others, strict=True))
    stores = {
        "otlp_endpoint": draw(st.sampled_from([None, "http://localhost:4318"])),
        "mlflow_tracking_uri": draw(st.sampled_from([None, "sqlite:////tmp/a b.db", "https://x:1/y"])),
    }
    return ppo_config(**(leaves | sizes | hosts | stores))


@pytest.mark.parametrize("examples", [50, full(300)])
def test_yaml_feeds_back_to_the_identical_configuration(examples, tmp_path):
    @settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
    @given(config=configs())
    def feed_back(config):
        path = tmp_path / "config.yaml"
        path.write_text(to_yaml(config), encoding="utf-8")
        again = loaded("--config", str(path)).given
        assert again == config
        assert repr(again) == repr(config)  # also distinguishes 1 from 1.0 and True
        assert config_from_dict(PPOConfig, config_to_dict(config)) == config

    feed_back()


def test_yaml_of_a_configuration_is_commented_and_plain_and_awkward_text_survives(tmp_path):
    text = to_yaml(ppo_config(task_id="Maze-v0", kwargs={"num_rows": 6}, actor_lr=1e-5, run_name="none"))
    lines = text.splitlines()
    assert lines[:2] == ["# The task and its environments.", "environment:"]
    assert "  num_envs: 64                            # environments stepped in parallel" in lines
    assert any(line.startswith("  kwargs: {num_rows: 6} ") for line in lines)
    assert any(line.startswith("  actor_lr: 1e-05 ") for line in lines)
    assert any(line.startswith("  run_name: 'none' ") for line in lines)  # unquoted it would be null
    odd = ["none", "~", "3", "1e3", "true", "", " x ", "a: b", "#", "é\n\t\x7f\U0001f600", "[", "it's", '"']
    config = ppo_config(kwargs={"a": [float("inf"), -float("inf"), *odd], "none": {"": None}}, save_dir=odd[9])
    (tmp_path / "c.yaml").write_text(to_yaml(config), encoding="utf-8")
    assert loaded("--config", str(tmp_path / "c.yaml")).config == config


def test_help_and_documentation_show_every_flag_with_type_default_and_range(monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")
    lines = help.help_text(PPOConfig, "ppo", "ppo/quick").splitlines()
    for leaf in leaf_sections(PPOConfig):
        assert any(line.startswith(f"  {flags.flag_name(leaf)} ") for line in lines)
    assert "  --gamma FLOAT                     discount per step [default 0.99, 0 to 1]" in lines
    assert "  --num-envs INT                    environments stepped in parallel [default 64, >= 1]" in lines
    assert max(map(len, lines)) <= 120
    text = config_table.DOCUMENT.read_text(encoding="utf-8")
    assert config_table.with_table(text, SPOConfig) == text, "run: python docs/tools/config_table.py"
    assert "| `gamma` | `--gamma` | float | `0.99` | 0 to 1 | discount per step |" in text.splitlines()


@pytest.mark.parametrize(
    ("words", "note"),
    rows("""
--task-id Snake-v1 => the values of ppo/quick were chosen for BinPack-v2; --config ppo/snake is for Snake-v1
--config ppo/maze --task-id TSP-v1 => the values of ppo/maze were chosen for Maze-v0; no preset is for TSP-v1
--config spo/maze => the values of spo/maze were chosen for SPO on Maze-v0; --config ppo/maze is for Maze-v0 and PPO,
    and scripts/train_spo.py trains SPO
"""),
)
def test_values_of_another_task_are_told(words, note):
    assert preset_note(loaded(*words.split())) == note
    for its_own in ([], ["--task-id", "BinPack-v2"], ["--config", "ppo/maze"]):
        assert preset_note(loaded(*its_own)) is None


def test_two_sections_cannot_have_a_leaf_of_one_name():
    """The flag would set one, and the algorithm might read the other."""

    @dataclasses.dataclass(frozen=True)
    class Own:
        """A section of a user."""

        gamma: float = runs.leaf(1.0, "another discount")

    @dataclasses.dataclass(frozen=True)
    class OwnConfig(PPOConfig):
        """The configuration of a user's algorithm."""

        own: Own = dataclasses.field(default_factory=Own)

    with pytest.raises(ConfigError, match="OwnConfig: training_core and own both have a leaf 'gamma'"):
        load_config(OwnConfig, "own", [], "ppo/quick")
