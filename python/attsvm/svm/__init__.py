"""The attention SVM: its solvers, and answers that carry their certificates."""
