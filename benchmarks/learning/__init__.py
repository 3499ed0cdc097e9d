"""How well does REINFORCE learn, and what does Stable-Baselines3 need for the same?"""
