"""Observations and rewards normalised by running statistics, with callbacks."""

from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import CheckpointCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

environments = VecNormalize(make_vec_env("CartPole-v1", n_envs=1))
watched = VecNormalize(make_vec_env("CartPole-v1", n_envs=1), training=False, norm_reward=False)
callbacks = [
    CheckpointCallback(save_freq=1000, save_path="checkpoints"),
    EvalCallback(watched, eval_freq=500),
]
model = PPO("MlpPolicy", environments, n_steps=4, batch_size=4, n_epochs=2)
model.learn(total_timesteps=10_000, callback=callbacks)
