"""Training: the objective of softmax attention, and gradient descent on it."""
