"""The policy with which a saved run is evaluated: its own, its network alone, or a search configured by flags.

A PPO run has no search of its own. Its default is a cheap search without a critic: the most probable first actions, all
different, each followed greedily to the end of the episode (compared in docs/benchmarks/searches.md). An SPO run uses
its own search, changed by the flags.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from stoix_like.errors import ConfigError

if TYPE_CHECKING:
    from stoix_like.runtime.runs.saved import SavedRun
    from stoix_like.search.model import SearchConfig, SearchModel
    from stoix_like.search.roots import RootKind
    from stoix_like.types import MemoryPolicy, Policy

DEFAULT_PARTICLES = 4
LONG_EPISODE = 200  # steps; a search to the end of longer episodes gets a note
DEFAULT_TEMPERATURE = 0.001  # reward units; so low that the best path decides


class SelectedPolicy(NamedTuple):
    """A policy, and its name in tables and files."""

    policy: Policy | MemoryPolicy
    name: str
    notes: tuple[str, ...] = ()  # see `search_notes`
    hidden_state: str | None = None  # what its search sees and no player can know


def select_policy(saved: SavedRun, choice: SearchChoice | None, network: bool, deterministic: bool) -> SelectedPolicy:
    """The policy to evaluate: the run's own, its network alone, or the search that was chosen.

    Raises ConfigError if the search does not fit the environment.
    """
    from stoix_like.algorithms import searching

    env, (policy, network_policy) = saved.env, saved.learner.policies
    if choice is None and (network or policy is network_policy):
        return SelectedPolicy(network_policy, "network")
    if saved.meta.algorithm == "alphazero":
        return _board_search(saved, choice)
    played = choice or SearchChoice()
    config, temperature = search_config(saved, played)
    text = search_text(saved, played, deterministic)
    notes = tuple(search_notes(config, env.task_id, played.incumbent))
    if choice is None:
        return SelectedPolicy(policy, f"search as trained: {text}", notes, env.hidden_state)
    chosen = searching.counting_policy(
        env, search_model(saved), config, saved.network_params, temperature, follows_plan=choice.incumbent
    )
    name = f"search {text}, incumbent plan" if choice.incumbent else f"search {text}"
    return SelectedPolicy(chosen, name, notes, env.hidden_state)


def _board_search(saved: SavedRun, choice: SearchChoice | None) -> SelectedPolicy:
    """An AlphaZero run's own search, with the number of simulations that was chosen."""
    from stoix_like.algorithms import alphazero

    config = alphazero.settings_of(saved.config).search
    if choice is None:
        return SelectedPolicy(saved.learner.policies[0], f"search as trained: {config.num_simulations} simulations")
    others = [name for name, value in choice._asdict().items() if name != "simulations" and value not in (None, False)]
    if others:
        raise ConfigError(
            f"--search-{others[0].replace('_', '-')}: {saved.path} searches a game by simulations, not with particles",
            "give --search-simulations N",
        )
    config = config._replace(num_simulations=choice.simulations or config.num_simulations)
    policy = alphazero.make_search_policy(saved.env.game, saved.network, config)
    return SelectedPolicy(policy, f"search {config.num_simulations} simulations")


def search_text(saved: SavedRun, choice: SearchChoice, deterministic: bool) -> str:
    """The search of `search_config`, in the form of `describe_search`."""
    from stoix_like.algorithms import searching

    config, _ = search_config(saved, choice)
    temperature = f"temperature {choice.temperature or DEFAULT_TEMPERATURE:g}"
    if choice.temperature is None and saved.meta.algorithm == "spo":
        section = saved.config.spo
        fixed, std = f"temperature {section.fixed_temperature:g}", "temperature by deviation"
        temperature = {"fixed": fixed, "std": std}.get(section.temperature_mode, "learned temperature")
    return describe_search(searching.deterministic(config) if deterministic else config, temperature)


def search_model(saved: SavedRun) -> SearchModel:
    """The run's environment and network as a search model, with rewards and randomness as in training."""
    from stoix_like.algorithms import searching

    rekey = saved.config.spo.rekey_particles if saved.meta.algorithm == "spo" else "auto"
    scale = saved.config.optimization.reward_scale
    return searching.search_model(saved.env, saved.network, reward_scale=scale, rekey=rekey)


def search_config(saved: SavedRun, choice: SearchChoice) -> tuple[SearchConfig, Any]:
    """(the search, a function from the run's parameters to its temperature). Raises ConfigError as `model.check`."""
    from stoix_like.algorithms import searching, spo
    from stoix_like.config.sections.spo import SPOSectionConfig
    from stoix_like.search.model import check

    factored = saved.env.action_spec.num_factors is not None
    core, is_spo = saved.config.training_core, saved.meta.algorithm == "spo"
    section = saved.config.spo if is_spo else SPOSectionConfig()
    config = searching.search_config(saved.env, section, core.gamma, core.gae_lambda)
    if not is_spo:
        depth = "full" if saved.env.time_limit is not None else config.search_depth
        root: RootKind = "iid" if factored else "topk"
        config = config._replace(
            num_particles=DEFAULT_PARTICLES, search_depth=depth, root=root, continuation="greedy", resampling="none"
        )
    if choice.simulations is not None:
        what = f"--search-simulations: {saved.path} searches with particles"
        raise ConfigError(what, "give --search-particles N; AlphaZero runs search by simulations")
    _check_resampling(choice, config)
    names = {"particles": "num_particles", "depth": "search_depth"}
    names |= {"period": "resampling_period", "ess_threshold": "resampling_ess_threshold"}
    others = ("temperature", "incumbent", "simulations")
    given = {names.get(k, k): v for k, v in choice._asdict().items() if k not in others}
    config = config._replace(**{name: value for name, value in given.items() if value is not None})
    check(config, factored=factored)
    if choice.temperature is None and is_spo:
        settings = spo.settings_of(saved.env, saved.config)
        return config, lambda params: spo.temperature_of(settings, params)
    temperature = choice.temperature or DEFAULT_TEMPERATURE
    return config, lambda _params: temperature


def _check_resampling(choice: SearchChoice, config: SearchConfig) -> None:
    """Raises ConfigError if a number is given for a kind of resampling that is not used."""
    resampling = choice.resampling or config.resampling
    for flag, value, kind, what in (
        ("--search-period", choice.period, "period", "period"),
        ("--search-ess-threshold", choice.ess_threshold, "ess", "threshold"),
    ):
        if value is not None and resampling != kind:
            raise ConfigError(
                f"{flag}: resampling is {resampling}, which has no {what}",
                f"add --search-resampling {kind}, or leave {flag} out",
            )


def describe_search(config: SearchConfig, temperature: str) -> str:
    """`4 x full, root topk, greedy, resampling none, temperature 0.001`."""
    from stoix_like.search.model import may_resample

    resampling = f"every {config.resampling_period}" if config.resampling == "period" else config.resampling
    resampling = resampling if may_resample(config) else "none"
    parts = [f"{config.num_particles} x {config.search_depth}", f"root {config.root}", config.continuation]
    return ", ".join([*parts, f"resampling {resampling}", temperature])


def search_notes(config: SearchConfig, task_id: str, follows_plan: bool = False) -> list[str]:
    """Notes on a search that is probably a mistake: with one particle, or to the end of a very long episode."""
    from stoix_like.search.model import depth_of

    notes = []
    if config.num_particles == 1 and not follows_plan:
        notes.append("a search with one particle has no choice: it plays as the policy alone")
    if config.search_depth == "full" and depth_of(config) > LONG_EPISODE:
        notes.append(
            f"searches to the end of an episode may take {depth_of(config):,} steps on {task_id}: a decision may take"
            " minutes; with a search_depth such as 16 the critic values the rest"
        )
    return notes


class SearchChoice(NamedTuple):
    """The values of the flags `--search-...`; None where a flag was not given."""

    particles: int | None = None
    depth: int | str | None = None
    root: str | None = None
    continuation: str | None = None
    temperature: float | None = None
    resampling: str | None = None
    period: int | None = None
    resampler: str | None = None
    ess_threshold: float | None = None
    gamma: float | None = None
    gae_lambda: float | None = None
    incumbent: bool = False
    simulations: int | None = None  # of AlphaZero's
