"""Runs of fedplug in experiment trackers: MLflow, TensorBoard, Weights & Biases."""
