"""Learners: methods of scikit-learn behind the port ``prediction.fitted.Learner``."""
