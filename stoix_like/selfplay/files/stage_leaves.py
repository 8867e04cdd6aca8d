"""The leaves of the configuration that each stage reads: a change of one is refused in an iteration that has begun."""

SEARCH = ("num_simulations", "max_considered_actions", "value_scale", "maxvisit_init", "rescale_values")
#: What a match is specified by, beside its players and openings.
SPECIFICATION = ("task_id", "match_simulations", *SEARCH)
#: The rule of a promotion.
RULE = (
    "promotion_rule",
    "promotion_elo_0",
    "promotion_elo_1",
    "promotion_alpha",
    "promotion_beta",
    "most_pairs",
    "pairs_per_look",
)
SELFPLAY = (
    "task_id",
    "num_envs",
    "seed",
    "selfplay_games",
    "shard_games",
    "engine",
    "num_simulations",
    "quick_simulations",
    "full_search_share",
    "max_considered_actions",
    "gumbel_scale",
    "value_scale",
    "maxvisit_init",
    "rescale_values",
    "random_plies",
    "max_game_plies",
    "temperature_plies",
    "play_temperature",
)
EXPORT = ("task_id", "window_positions", "window_exponent", "window_growth", "validation_share", "replay_buffer_size")
TRAIN = (
    "task_id",
    "seed",
    "hidden_dim",
    "num_layers",
    "shared_torso",
    "compute_dtype",
    "observation_adapter",
    "actor_lr",
    "critic_lr",
    "max_grad_norm",
    "weight_decay",
    "vf_coef",
    "tau",
    "decay_learning_rates",
    "num_envs",
    "rollout_length",
    "batch_size",
    "max_reuse",
    "use_symmetries",
    "root_value_weight",
    "replay_buffer_size",
    "training_epochs",
)
EVALUATE = (*SPECIFICATION, *RULE, "match_opening_plies", "match_anchors", "anchor_pairs", "seed")
