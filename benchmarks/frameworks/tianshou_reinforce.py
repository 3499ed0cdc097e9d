"""Tianshou's REINFORCE by its procedural interface."""

import gymnasium as gym
import tianshou as ts
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.trainer import OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor

environment = gym.make("CartPole-v1")
environments = ts.env.DummyVectorEnv([lambda: gym.make("CartPole-v1")])
features = Net(state_shape=environment.observation_space.shape, hidden_sizes=[8])
actor = DiscreteActor(preprocess_net=features, action_shape=2, softmax_output=False)
policy = DiscreteActorPolicy(actor=actor, action_space=environment.action_space)
algorithm = ts.algorithm.Reinforce(policy=policy, optim=AdamOptimizerFactory(lr=1e-3), gamma=0.99)
collector = ts.data.Collector[ts.data.CollectStats](
    algorithm, environments, ts.data.VectorReplayBuffer(20_000, 1)
)
algorithm.run_training(
    OnPolicyTrainerParams(
        training_collector=collector,
        max_epochs=2,
        epoch_num_steps=1000,
        collection_step_num_env_steps=None,
        collection_step_num_episodes=2,
        batch_size=None,
    )
)
