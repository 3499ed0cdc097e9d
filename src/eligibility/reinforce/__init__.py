"""The parts of REINFORCE: returns, baselines, every weight's eligibility, and the exact truth."""
