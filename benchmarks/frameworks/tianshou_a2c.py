"""Tianshou's A2C, every setting of its loss at its default."""

import gymnasium as gym
import tianshou as ts
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.trainer import OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

environment = gym.make("CartPole-v1")
environments = ts.env.DummyVectorEnv([lambda: gym.make("CartPole-v1")])
shape = environment.observation_space.shape
actor = DiscreteActor(
    preprocess_net=Net(state_shape=shape, hidden_sizes=[8]), action_shape=2, softmax_output=False
)
critic = DiscreteCritic(preprocess_net=Net(state_shape=shape, hidden_sizes=[8]))
algorithm = ts.algorithm.A2C(
    policy=DiscreteActorPolicy(actor=actor, action_space=environment.action_space),
    critic=critic,
    optim=AdamOptimizerFactory(lr=1e-3),
)
collector = ts.data.Collector[ts.data.CollectStats](
    algorithm, environments, ts.data.VectorReplayBuffer(20_000, 1)
)
algorithm.run_training(
    OnPolicyTrainerParams(
        training_collector=collector,
        max_epochs=2,
        epoch_num_steps=1000,
        collection_step_num_env_steps=4,
        batch_size=None,
    )
)
