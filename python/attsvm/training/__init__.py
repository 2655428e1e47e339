"""The objective of softmax attention, and descent on it."""
