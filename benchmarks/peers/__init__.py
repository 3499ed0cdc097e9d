"""Other people's trainers on CartPole-v1, each under the same stopwatch and stopping rule."""
