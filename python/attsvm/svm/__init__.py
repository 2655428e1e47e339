"""The attention SVM: selections, solvers, certified answers."""
