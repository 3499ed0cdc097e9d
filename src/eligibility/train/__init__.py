"""Training: environments, policies, rollouts, the learner, and what it leaves behind.

Nothing is imported here: the command line reads `eligibility.train.config` without torch.
"""
