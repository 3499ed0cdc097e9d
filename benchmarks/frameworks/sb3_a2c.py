"""As the documentation's first page of A2C: every setting at its default."""

from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_vec_env

environments = make_vec_env("CartPole-v1", n_envs=4)
model = A2C("MlpPolicy", environments)
model.learn(total_timesteps=25_000)
