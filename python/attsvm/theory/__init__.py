"""Where training and SVM meet: conditions, diagnosis, token sets, regularisation paths."""
