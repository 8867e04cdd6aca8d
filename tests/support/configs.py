"""Configurations and tasks small enough to compile and play often, which still have every part of a large one."""

SMALL_PPO = {"num_envs": 8, "rollout_length": 4, "num_minibatches": 2, "epochs": 2, "hidden_dim": 16, "num_updates": 8}
SMALL_SPO = SMALL_PPO | {"num_layers": 1, "num_particles": 4, "search_depth": 4}
SMALL_SPO |= {"replay_buffer_size": 8 * 12, "sample_sequence_length": 4, "batch_size": 8}
SMALL_ALPHAZERO = {"num_envs": 8, "rollout_length": 4, "hidden_dim": 16, "num_layers": 1, "num_updates": 8}
SMALL_ALPHAZERO |= {"num_simulations": 3, "replay_buffer_size": 128, "batch_size": 8, "random_plies": 2}
SMALL_ALPHAZERO |= {"opponent": "random"}
#: The modes of the search in the presets for BinPack and for Maze; without them it is the paper's.
SOLVED = {"root": "gumbel_topk", "temperature_mode": "solve", "kl_constraint": "root"}
DISTINCT = SOLVED | {"search_depth": "full", "continuation": "greedy", "resampling": "none"}
#: Keyword arguments of tasks, by task id.
SMALL_TASKS = {
    "Maze-v0": {"num_rows": 5, "num_cols": 5},
    "JobShop-v0": {"num_jobs": 3, "num_machines": 2, "max_num_ops": 2, "max_op_duration": 2},
    "BinPack-v2": {"max_num_items": 4, "max_num_ems": 8, "obs_num_ems": 8},
    "Knapsack-v1": {"num_items": 6},
    "Snake-v1": {"num_rows": 4, "num_cols": 4},
}
