"""Where training and SVM meet: conditions, diagnosis, token sets, regularisation paths."""

from .hierarchy import hierarchy as hierarchy
from .random_tokens import capacity as capacity
from .stack import train_stack as train_stack
