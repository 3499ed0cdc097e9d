"""As the documentation's first page of PPO: every setting at its default."""

from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

environments = make_vec_env("CartPole-v1", n_envs=4)
model = PPO("MlpPolicy", environments, verbose=0)
model.learn(total_timesteps=25_000)
model.save("ppo_cartpole")
