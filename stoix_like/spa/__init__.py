"""SPA as a pipeline of stages: pretrain, generate, sft, ppo, evaluate, report, each from files to files."""
